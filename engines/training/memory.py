"""How much memory a phase of a step takes: its peak, and what it leaves behind.

An accelerator's allocator counts tensors. On the processor the system counts the pages of the whole process,
libraries and freed blocks that the allocator keeps included: that is another thing, and is named so.
"""

from pathlib import Path
from typing import Final, Protocol

import torch

Sizes = dict[str, int]

_RESET: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
_PEAK_ONLY: Final = "5"  # what the kernel is asked to forget: the peak of the resident set
_LINES: Final = {"VmHWM": "peak resident", "VmRSS": "resident at the end"}
_STATS: Final = {
    "allocated_bytes.all.peak": "peak allocated",
    "allocated_bytes.all.current": "allocated at the end",
}


class Gauge(Protocol):
    """Measures what lies between `reset` and `read`."""

    @property
    def held(self) -> int | None:
        """Bytes that are held now."""

    def reset(self) -> None: ...

    def read(self) -> Sizes:
        """Return the bytes by what they measure; empty where nothing measures them."""


class Allocated:
    """The tensors of an accelerator, by its allocator."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.reset()

    def reset(self) -> None:
        torch.accelerator.reset_peak_memory_stats(self._device)

    def read(self) -> Sizes:
        stats = torch.accelerator.memory_stats(self._device)
        return {what: int(stats[name]) for name, what in _STATS.items() if name in stats}

    @property
    def held(self) -> int | None:
        return torch.accelerator.memory_allocated(self._device)


class Resident:
    """The pages of this process, by the system; without a peak where that cannot be reset."""

    def __init__(self) -> None:
        self._lines = dict(_LINES)
        try:
            self.reset()
        except OSError:
            del self._lines["VmHWM"]

    def reset(self) -> None:
        if "VmHWM" in self._lines:
            _RESET.write_text(_PEAK_ONLY)

    def read(self) -> Sizes:
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return {what: 1024 * int(fields[name].split()[0]) for name, what in self._lines.items()}

    @property
    def held(self) -> int | None:
        return self.read()[_LINES["VmRSS"]]


class Unknown:
    """Measures nothing."""

    held = None

    def reset(self) -> None: ...

    def read(self) -> Sizes:
        return {}


def gauge(device: torch.device) -> Gauge:
    """Return what measures the memory of a device."""
    try:
        measures = Resident() if device.type == "cpu" else Allocated(device)
        return measures if measures.read() else Unknown()
    except (OSError, KeyError, RuntimeError, NotImplementedError):
        return Unknown()
