"""Sampler process: appends CPU, memory and GPU counters to a recording.

    python -m capture.record.counters.sampler OUT --pid N --hz 5

It ends with the sampled process. GPUs are read by a child process, because a lost GPU can crash its reader.
"""

import argparse
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...native.emit import Emitter
from ...native.parts import read_first_line
from ..watchdog import send_signal
from .core_speed import CoreSpeedProbe, list_allowed_cores

RECORD_START: Final = b'{"kind"'  # of each line of a recording

FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 30.0
_PRESSURE: Final = Path("/proc/pressure")
_POWERCAP: Final = Path("/sys/class/powercap")
_ENERGY_DOMAINS: Final = ("package", "dram")  # all others are parts of a package, or the whole platform


class CounterSample(NamedTuple):
    """A counter and its current value."""

    name: str
    value: float
    unit: str
    track: str | None = None


Probe = Callable[[], Iterable[CounterSample]]


class CounterSampler:
    """Writes the samples of its probes; a failing probe is reported once and removed."""

    def __init__(self, emitter: Emitter, probes: dict[str, Probe]) -> None:
        self._emitter = emitter
        self._probes = dict(probes)

    def has_probes(self) -> bool:
        """Return whether a working probe is left."""
        return bool(self._probes)

    def sample(self) -> None:
        """Read every probe once and write its samples."""
        failed: dict[str, list[str]] = {}
        for name, probe in list(self._probes.items()):
            try:
                for sample in probe():
                    self._emitter.counter(sample.name, sample.value, sample.unit, track=sample.track)
            except Exception as e:  # drivers raise anything, and the other probes must continue
                del self._probes[name]
                failed.setdefault(str(e) or type(e).__name__, []).append(name)
        for why, names in failed.items():
            self._emitter.mark(f"cannot be measured: {', '.join(names)} ({why})", "log")
        self._emitter.flush()


def iter_rounds(hz: float, is_running: Callable[[], bool]) -> Iterator[int]:
    """Yield round numbers at a steady rate while `is_running` holds; late rounds are skipped."""
    start, number = time.monotonic(), 0
    while is_running():
        yield number
        number = max(number + 1, int((time.monotonic() - start) * hz) + 1)
        time.sleep(max(0.0, start + number / hz - time.monotonic()))


def build_host_probes(pid: int) -> dict[str, Probe]:
    """Return probes of the machine and a process, by the name that messages use."""
    import psutil

    psutil.cpu_percent(percpu=True)  # the first reading covers no time and is always zero
    probes: dict[str, Probe] = {
        "the CPU's usage": partial(_read_cpu_usage, psutil),
        "the CPU's frequency": partial(_read_cpu_frequency, psutil),
        "memory": partial(_read_memory, psutil),
        "the process": _ProcessFamily(psutil, pid).read_usage,
    }
    if domains := EnergyDomains.find():
        probes["the CPU's energy"] = domains.read_energy
    return probes | {f"pressure on {of}": partial(_read_pressure, of) for of in ("cpu", "memory", "io")}


def _read_cpu_usage(psutil: Any) -> Iterator[CounterSample]:
    cores = psutil.cpu_percent(percpu=True)
    yield CounterSample("host_cpu_usage", sum(cores) / len(cores), "%")
    for n, usage in enumerate(cores):
        yield CounterSample("core_usage", usage, "%", f"core {n}")


def _read_cpu_frequency(psutil: Any) -> Iterator[CounterSample]:
    frequency = psutil.cpu_freq()
    if frequency is None:
        raise LookupError("the system does not report it")
    yield CounterSample("cpu_frequency", frequency.current, "MHz")


def _read_memory(psutil: Any) -> Iterator[CounterSample]:
    memory = psutil.virtual_memory()
    yield CounterSample("host_mem_used", memory.total - memory.available, "B")


def _read_pressure(resource: str) -> Iterator[CounterSample]:
    """Yield the share of the last ten seconds in which a task waited for this resource."""
    some = (_PRESSURE / resource).read_text().split()
    average = next(word for word in some if word.startswith("avg10="))
    yield CounterSample(f"{resource}_pressure", float(average.removeprefix("avg10=")), "%")


class EnergyDomains:
    """The energy counters of the processors (RAPL): packages, and their memory where it has a counter."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._last: dict[Path, int] = {}
        self._used: dict[Path, int] = {}

    @classmethod
    def find(cls, root: Path = _POWERCAP) -> "EnergyDomains | None":
        """Find the counters of the machine; None if it has none."""
        names = {folder: _read_text(folder / "name") for folder in sorted(root.glob("intel-rapl:*"))}
        folders = [folder for folder, name in names.items() if name.startswith(_ENERGY_DOMAINS)]
        return cls(folders) if folders else None

    def read_energy(self) -> Iterator[CounterSample]:
        """Yield the joules of each since the first call, past overflows; raise OSError if unreadable."""
        for folder in self._folders:
            now = int((folder / "energy_uj").read_text())
            since = now - self._last.get(folder, now)
            if since < 0:
                since += int((folder / "max_energy_range_uj").read_text()) + 1
            self._last[folder] = now
            self._used[folder] = self._used.get(folder, 0) + since
            yield CounterSample("cpu_energy", self._used[folder] / 1e6, "J", _name_energy_domain(folder))


def _name_energy_domain(folder: Path) -> str:
    """Name a counter: package-0; dram of package-0, whose number is the first in the folder's name."""
    name, number = _read_text(folder / "name"), folder.name.split(":")[1]
    return name if name.startswith("package") else f"{name} of package-{number}"


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class _ProcessFamily:
    """A process and its descendants, such as the ranks of an engine, with one psutil object each.

    The CPU time of an ended child stays included: its parent, which waited for it, reports it.
    """

    def __init__(self, psutil: Any, pid: int) -> None:
        self._psutil, self._parent = psutil, psutil.Process(pid)
        self._members = {pid: self._parent}
        self._last, self._used = time.monotonic(), self._sum_cpu_seconds()

    def read_usage(self) -> Iterator[CounterSample]:
        """Yield CPU time and memory of all members; nothing if none is left."""
        with suppress(self._psutil.NoSuchProcess):
            for child in self._parent.children(recursive=True):
                self._members.setdefault(child.pid, child)
        now, used_seconds, memory = time.monotonic(), self._sum_cpu_seconds(), 0
        for member in list(self._members.values()):
            with suppress(self._psutil.Error):
                memory += member.memory_info().rss
        elapsed, used_since = now - self._last, max(0.0, used_seconds - self._used)
        self._last, self._used = now, used_seconds
        if self._members and elapsed > 0:
            yield CounterSample("process_cpu_usage", 100 * used_since / elapsed, "%")
            yield CounterSample("process_mem_used", memory, "B")

    def _sum_cpu_seconds(self) -> float:
        """Return the CPU time of all members and the children they waited for; forget ended members."""
        seconds = 0.0
        for member in list(self._members.values()):
            try:
                seconds += sum(member.cpu_times()[:4])  # user, system, and both of ended children
            except self._psutil.Error:
                del self._members[member.pid]
        return seconds


def is_alive(pid: int, parent: int) -> bool:
    """Return whether the sampled process runs, and our parent is still the one that started us."""
    if os.getppid() != parent:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:  # it is gone, or the system has no /proc
        return not Path("/proc/self").exists() and send_signal(pid, 0)
    except OSError:
        return False
    return state not in "ZX"


class GpuSamplerProcess:
    """The process that reads the GPUs; it is restarted after it dies, after growing pauses."""

    def __init__(self, command: list[str], emitter: Emitter) -> None:
        self._command, self._emitter = command, emitter
        self._wait_s, self._retry_at = FIRST_RETRY_S, 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._is_done = False  # whether there is nothing to read

    def keep_running(self) -> None:
        """Start the process if it is due; report how it died."""
        if self._is_done or time.monotonic() < self._retry_at:
            return
        if self._process is None:
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(self._command, stdin=quiet, stderr=quiet)
            return
        code = self._process.poll()
        if code is None:
            return
        self._process = None
        if code == 0:  # it has written the reason already
            self._is_done = True
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._emitter.mark(f"the GPU sampler died ({how}); restarting in {self._wait_s:.0f} s", "log")
        self._retry_at = time.monotonic() + self._wait_s
        self._wait_s = min(MAX_RETRY_S, 2 * self._wait_s)

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()  # it may hang in the driver, where other signals have no effect
            self._process.wait()


def join_recording(path: str) -> Emitter | None:
    """Return a writer into a recording; None if it was removed or replaced before this process began."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    is_begun = stat.S_ISREG(status.st_mode) and status.st_size > 0
    if is_begun and not read_first_line(path).startswith(RECORD_START):
        return None
    return Emitter(path)


def main(argv: list[str] | None = None) -> int:
    """Sample until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m capture.record.counters.sampler", description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--pid", type=int, required=True, help="ends with this process")
    parser.add_argument("--hz", type=float, default=5.0)
    parser.add_argument("--no-gpu", action="store_true")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; we end when it ends
    parent = os.getppid()
    emitter = join_recording(args.out)
    if emitter is None:
        return 0
    # -P: a folder of our name in the working directory is not ours
    command = [sys.executable, "-P", "-m", "capture.record.counters.gpu_counters", args.out]
    command += ["--pid", str(args.pid), "--hz", str(args.hz)]
    gpu = None if args.no_gpu else GpuSamplerProcess(command, emitter)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pace = CoreSpeedProbe(emitter, list_allowed_cores(args.pid))
    try:
        sampler = CounterSampler(emitter, _try_host_probes(args.pid, emitter))
        pace.start()
        for _ in iter_rounds(args.hz, lambda: is_alive(args.pid, parent)):
            sampler.sample()
            if gpu:
                gpu.keep_running()
    finally:
        if gpu:
            gpu.stop()
        pace.stop()
        emitter.close()
    return 0


def _try_host_probes(pid: int, emitter: Emitter) -> dict[str, Probe]:
    try:
        return build_host_probes(pid)
    except Exception as e:
        emitter.mark(f"the CPU and memory cannot be measured: {e or type(e).__name__}", "log")
        return {}


if __name__ == "__main__":
    sys.exit(main())
