"""Counters of NVIDIA GPUs by NVML, in a process of its own: started by the sampler, never imported by it."""

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

from ..native.emit import Emitter
from .counters import Probe, Sample, Sampler, alive, rounds

SLOW_EVERY_S: Final = 1.0  # PCIe counters block for 20 ms each
_PR_SET_PDEATHSIG: Final = 1
_IMPOSSIBLE: Final = frozenset((0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))

# bit → reason for which clocks are held back
_THROTTLES: Final = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slow-down",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class Figure(NamedTuple):
    """One figure of a GPU: what it is called, and how NVML is asked for it."""

    name: str
    unit: str
    read: Callable[[Any, Any], float]  # of (pynvml, handle)
    slow: bool = False


FIGURES: Final = (
    Figure("gpu_usage", "%", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu),
    Figure("gpu_mem_usage", "%", lambda n, h: n.nvmlDeviceGetUtilizationRates(h).memory),
    Figure("gpu_sm_frequency", "MHz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)),
    Figure("gpu_mem_frequency", "MHz", lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM)),
    Figure("gpu_power", "W", lambda n, h: n.nvmlDeviceGetPowerUsage(h) / 1e3),
    Figure("gpu_energy", "J", lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3),
    Figure("gpu_temperature", "°C", lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
    Figure("gpu_mem_used", "B", lambda n, h: n.nvmlDeviceGetMemoryInfo(h).used),
    Figure(
        "gpu_pcie_transmit",
        "B/s",
        lambda n, h: 1024 * n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES),
        slow=True,
    ),
    Figure(
        "gpu_pcie_receive",
        "B/s",
        lambda n, h: 1024 * n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES),
        slow=True,
    ),
)


def gpu_handles(nvml: Any, emitter: Emitter, visible: str | None = None) -> dict[str, Any]:
    """Return track → NVML handle for every GPU that answers; the others are named in the log.

    `visible` is CUDA_VISIBLE_DEVICES of the program, None where it has none: gpu 0 is the program's first.
    """
    count, handles = nvml.nvmlDeviceGetCount(), {}
    for index, device in enumerate(visible_devices(visible, count)):
        try:
            if isinstance(device, int):
                handles[f"gpu {index}"] = nvml.nvmlDeviceGetHandleByIndex(device)
            else:
                handles[f"gpu {index}"] = _handle_by_uuid(nvml, device, count)
        except Exception as e:
            emitter.mark(f"gpu {index} cannot be measured: {e}", "log")
    return handles


def visible_devices(visible: str | None, count: int) -> list[int | str]:
    """Return the GPUs that CUDA shows a program, by their number among all or by their UUID.

    As CUDA does, the list ends at the first entry that is no GPU of this machine, and one that is named
    twice leaves none.
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


def _handle_by_uuid(nvml: Any, uuid: str, count: int) -> Any:
    """Return the handle of a GPU, or of a part of one (MIG), by its UUID or as much of it as tells it."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:
        found = [h for h in _all_devices(nvml, count) if _text(nvml.nvmlDeviceGetUUID(h)).startswith(uuid)]
        if len(found) != 1:
            raise
        return found[0]


def _all_devices(nvml: Any, count: int) -> Iterator[Any]:
    """Yield every GPU, and the parts of those that are divided."""
    for index in range(count):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        yield gpu
        with suppress(Exception):  # a GPU that cannot be divided says so
            for part in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
                with suppress(Exception):
                    yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, part)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def visible_to(pid: int) -> str | None:
    """Return CUDA_VISIBLE_DEVICES of a program as it was started; ours where its own cannot be read."""
    name = "CUDA_VISIBLE_DEVICES"
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        own = [e.partition(b"=")[2].decode() for e in entries if e.startswith(name.encode() + b"=")]
        return own[0] if own else None
    return os.environ.get(name)


def fast_probes(nvml: Any, gpus: dict[str, Any], emitter: Emitter) -> dict[str, Probe]:
    """Return the probes that may be asked in every round."""
    reasons = {f"gpu_throttle of {t}": _throttle(nvml, h, t, emitter) for t, h in gpus.items()}
    return _probes(nvml, gpus, slow=False) | reasons


def slow_probes(nvml: Any, gpus: dict[str, Any]) -> dict[str, Probe]:
    """Return the probes that take long to answer."""
    return _probes(nvml, gpus, slow=True)


def _probes(nvml: Any, gpus: dict[str, Any], *, slow: bool) -> dict[str, Probe]:
    return {
        f"{figure.name} of {track}": _probe(figure, nvml, handle, track)
        for track, handle in gpus.items()
        for figure in FIGURES
        if figure.slow == slow
    }


def _probe(figure: Figure, nvml: Any, handle: Any, track: str) -> Probe:
    def probe() -> Iterator[Sample]:
        value = figure.read(nvml, handle)
        if value not in _IMPOSSIBLE and math.isfinite(value):
            yield Sample(figure.name, value, figure.unit, track)

    return probe


def _throttle(nvml: Any, handle: Any, track: str, emitter: Emitter) -> Probe:
    """Return a probe of the reasons for held-back clocks as bits; it marks them in words when they change."""
    last: list[int] = []

    def probe() -> Iterator[Sample]:
        read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        bits = (read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle)
        why = [text for bit, text in _THROTTLES.items() if bits & bit]
        if last != [bits] and (why or last):
            emitter.mark(f"{track}: clocks held back by {', '.join(why) or 'nothing'}", "note")
        last[:] = [bits]
        yield Sample("gpu_throttle", bits, "bits", track)

    return probe


def _die_with_parent() -> None:
    """Have the kernel end this process with its parent, also while a call into the driver never returns."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(argv: list[str] | None = None) -> int:
    """Sample until the process ends; return 0 where there is nothing to read, 1 where every GPU was lost."""
    parser = argparse.ArgumentParser(prog="python -m capture.record.gpu", description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--hz", type=float, default=5.0)
    args = parser.parse_args(argv)
    parent = os.getppid()
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    emitter = Emitter(args.out)
    try:
        import pynvml

        pynvml.nvmlInit()
        gpus = gpu_handles(pynvml, emitter, visible_to(args.pid))
    except Exception as e:
        emitter.mark(f"GPUs cannot be measured: {e or type(e).__name__}", "log")
        emitter.close()
        return 0
    fast = Sampler(emitter, fast_probes(pynvml, gpus, emitter))
    slow = Sampler(emitter, slow_probes(pynvml, gpus))
    if not gpus:
        emitter.flush()
        return 0
    every = max(1, round(args.hz * SLOW_EVERY_S))
    for number in rounds(args.hz, lambda: alive(args.pid, parent)):
        fast.tick()
        if number % every == 0:
            slow.tick()
        if not fast.has_probes():
            return 1  # every GPU is lost: a new process may find them again
    return 0


if __name__ == "__main__":
    sys.exit(main())
