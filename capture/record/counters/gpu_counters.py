"""Counters of NVIDIA GPUs from NVML, in a process of its own that the sampler starts."""

import argparse
import ctypes
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...native.emit import Emitter
from .sampler import CounterSample, CounterSampler, Probe, is_alive, iter_rounds, join_recording

SLOW_INTERVAL_S: Final = 1.0  # because each PCIe counter blocks for 20 ms
_PR_SET_PDEATHSIG: Final = 1
_INVALID_VALUES: Final = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))

# bit → reason for reduced clocks
_THROTTLE_REASONS: Final = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slow-down", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip


class GpuCounter(NamedTuple):
    """One counter of a GPU: its name, and how to read it from NVML."""

    name: str
    unit: str
    read: Callable[[Any, Any], float]  # called with (pynvml, handle)
    is_slow: bool = False


COUNTERS: Final = (
    GpuCounter("gpu_usage", "%", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu),
    GpuCounter("gpu_mem_usage", "%", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).memory),
    GpuCounter("gpu_sm_frequency", "MHz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
    GpuCounter("gpu_mem_frequency", "MHz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),
    GpuCounter("gpu_power", "W", lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1e3),
    GpuCounter("gpu_energy", "J", lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3),
    GpuCounter("gpu_temperature", "°C", lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
    GpuCounter("gpu_mem_used", "B", lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used),
    GpuCounter("gpu_pcie_transmit", "B/s", is_slow=True,
               read=lambda n, h: 1024 * n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES)),
    GpuCounter("gpu_pcie_receive", "B/s", is_slow=True,
               read=lambda n, h: 1024 * n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES)),
)  # fmt: skip


def find_gpu_handles(nvml: Any, emitter: Emitter, visible: str | None = None) -> dict[str, Any]:
    """Return track → NVML handle for every GPU that responds; the others are reported in the log.

    `visible` is the program's CUDA_VISIBLE_DEVICES (None: not set); gpu 0 is the first GPU that the program
    sees.
    """
    count, handles = nvml.nvmlDeviceGetCount(), {}
    for index, device in enumerate(parse_visible_devices(visible, count)):
        try:
            if isinstance(device, int):
                handles[f"gpu {index}"] = nvml.nvmlDeviceGetHandleByIndex(device)
            else:
                handles[f"gpu {index}"] = _find_handle_by_uuid(nvml, device, count)
        except Exception as e:
            emitter.mark(f"gpu {index} cannot be measured: {e}", "log")
    return handles


def parse_visible_devices(visible: str | None, count: int) -> list[int | str]:
    """Return the GPUs that CUDA shows to a program, by index among all or by UUID.

    As in CUDA, the list ends at the first invalid entry, and a repeated entry leaves none.
    """
    if visible is None:
        return list(range(count))
    devices: list[int | str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.startswith(("GPU-", "MIG-")):
            devices.append(entry)
        elif entry.isdecimal() and int(entry) < count:
            devices.append(int(entry))
        else:
            break
    return devices if len(set(devices)) == len(devices) else []


def _find_handle_by_uuid(nvml: Any, uuid: str, count: int) -> Any:
    """Return the handle of a GPU or MIG instance by its UUID or a unique prefix of it."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:
        uuids = ((h, nvml.nvmlDeviceGetUUID(h)) for h in _iter_devices(nvml, count))
        matches = [h for h, text in uuids if _decode_text(text).startswith(uuid)]
        if len(matches) != 1:
            raise
        return matches[0]


def _iter_devices(nvml: Any, count: int) -> Iterator[Any]:
    """Yield every GPU and its MIG instances."""
    for index in range(count):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        yield gpu
        with suppress(Exception):  # raised by GPUs without MIG
            for part in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(Exception):
                    yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, part)


def _decode_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def read_visible_devices(pid: int) -> str | None:
    """Return CUDA_VISIBLE_DEVICES as the program was started, or ours if it cannot be read."""
    name = "CUDA_VISIBLE_DEVICES"
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        values = [e.partition(b"=")[2].decode() for e in entries if e.startswith(name.encode() + b"=")]
        return values[0] if values else None
    return os.environ.get(name)


def _build_probes(nvml: Any, gpus: dict[str, Any], *, slow: bool) -> dict[str, Probe]:
    return {
        f"{counter.name} of {track}": _build_probe(counter, nvml, handle, track)
        for track, handle in gpus.items()
        for counter in COUNTERS
        if counter.is_slow == slow
    }


def _build_probe(counter: GpuCounter, nvml: Any, handle: Any, track: str) -> Probe:
    def probe() -> Iterator[CounterSample]:
        value = counter.read(nvml, handle)
        if value not in _INVALID_VALUES and math.isfinite(value):
            yield CounterSample(counter.name, value, counter.unit, track)

    return probe


def _build_throttle_probe(nvml: Any, handle: Any, track: str, emitter: Emitter) -> Probe:
    """Return a probe of the bits for reduced clocks; changes are also written as text."""
    last: list[int] = []

    def probe() -> Iterator[CounterSample]:
        read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        bits = (read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle)
        why = [text for bit, text in _THROTTLE_REASONS.items() if bits & bit]
        if last != [bits] and (why or last):
            emitter.mark(f"{track}: clocks reduced by {', '.join(why) or 'nothing'}", "note")
        last[:] = [bits]
        yield CounterSample("gpu_throttle", bits, "bits", track)

    return probe


def _end_with_parent() -> None:
    """Ask the kernel to kill this process with its parent, even inside a call of the driver."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str] | None = None) -> int:
    """Sample until the process ends; return 0 if there is nothing to read, 1 if all GPUs were lost."""
    parser = argparse.ArgumentParser("python -m capture.record.counters.gpu_counters", description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--hz", type=float, default=5.0)
    args = parser.parse_args(argv)
    parent = os.getppid()
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    emitter = join_recording(args.out)
    if emitter is None:
        return 0
    try:
        import pynvml

        pynvml.nvmlInit()
        gpus = find_gpu_handles(pynvml, emitter, read_visible_devices(args.pid))
    except Exception as e:
        emitter.mark(f"GPUs cannot be measured: {e or type(e).__name__}", "log")
        emitter.close()
        return 0
    if not gpus:
        emitter.flush()
        return 0
    throttle = {f"gpu_throttle of {t}": _build_throttle_probe(pynvml, h, t, emitter) for t, h in gpus.items()}
    fast = CounterSampler(emitter, _build_probes(pynvml, gpus, slow=False) | throttle)
    slow = CounterSampler(emitter, _build_probes(pynvml, gpus, slow=True))
    every = max(1, round(args.hz * SLOW_INTERVAL_S))
    for number in iter_rounds(args.hz, lambda: is_alive(args.pid, parent)):
        fast.sample()
        if number % every == 0:
            slow.sample()
        if not fast.has_probes():
            return 1  # all GPUs are lost; a new process may find them again
    return 0


if __name__ == "__main__":
    sys.exit(main())
