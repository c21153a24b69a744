"""Memory of each phase of a step: its peak, and what remains at its end.

An accelerator's allocator counts tensors. On the CPU the system counts the pages of the whole process,
including libraries and freed blocks that the allocator keeps: another quantity, with another name.
"""

from pathlib import Path
from typing import Final

import torch

MemorySizes = dict[str, int]

_RESET: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
_PEAK_ONLY: Final = "5"  # what the kernel is asked to forget: the peak of the resident set
_STATUS_FIELDS: Final = {"VmHWM": "peak resident", "VmRSS": "resident at the end"}
_ALLOCATOR_STATS: Final = {
    "allocated_bytes.all.peak": "peak allocated",
    "allocated_bytes.all.current": "allocated at the end",
}


class MemoryGauge:
    """Measures memory between `reset` and `read`; this one, without a device to ask, nothing."""

    @property
    def held_bytes(self) -> int | None:
        """Bytes in use now."""
        return None

    def reset(self) -> None: ...

    def read(self) -> MemorySizes:
        """Return bytes by the name of their measure; empty if nothing is measured."""
        return {}


class AllocatorGauge(MemoryGauge):
    """Tensors of an accelerator, by its allocator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.reset()

    def reset(self) -> None:
        torch.accelerator.reset_peak_memory_stats(self._device)

    def read(self) -> MemorySizes:
        stats = torch.accelerator.memory_stats(self._device)
        return {what: int(stats[name]) for name, what in _ALLOCATOR_STATS.items() if name in stats}

    @property
    def held_bytes(self) -> int | None:
        return torch.accelerator.memory_allocated(self._device)


class ResidentGauge(MemoryGauge):
    """Pages of this process, by the system; without peak if that cannot be reset."""

    def __init__(self) -> None:
        self._lines = dict(_STATUS_FIELDS)
        try:
            self.reset()
        except OSError:
            del self._lines["VmHWM"]

    def reset(self) -> None:
        if "VmHWM" in self._lines:
            _RESET.write_text(_PEAK_ONLY)

    def read(self) -> MemorySizes:
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return {what: 1024 * int(fields[name].split()[0]) for name, what in self._lines.items()}

    @property
    def held_bytes(self) -> int | None:
        return self.read()[_STATUS_FIELDS["VmRSS"]]


def make_gauge(device: torch.device) -> MemoryGauge:
    """Make the gauge of a device."""
    try:
        gauge = ResidentGauge() if device.type == "cpu" else AllocatorGauge(device)
        return gauge if gauge.read() else MemoryGauge()
    except (OSError, KeyError, RuntimeError, NotImplementedError):
        return MemoryGauge()
