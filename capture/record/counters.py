"""The sampler: a process of its own that adds CPU, memory and GPU counters to a recording.

    python -m capture.record.counters OUT --pid N --hz 5

It ends with the process that it samples. GPUs are read by a child: a lost GPU can crash whoever asks it.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..native.emit import Emitter
from .pace import Pace, processors_of

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0
_PRESSURE: Final = Path("/proc/pressure")


class Sample(NamedTuple):
    """A value at this moment."""

    name: str
    value: float
    unit: str
    track: str | None = None


Probe = Callable[[], Iterable[Sample]]


class Sampler:
    """Writes the samples of its probes; one that fails is named once and asked no more."""

    def __init__(self, emitter: Emitter, probes: dict[str, Probe]) -> None:
        self._emitter = emitter
        self._probes = dict(probes)

    def has_probes(self) -> bool:
        """Return whether a probe is left that works."""
        return bool(self._probes)

    def tick(self) -> None:
        """Ask every probe once and write what it says."""
        failed: dict[str, list[str]] = {}
        for name, probe in list(self._probes.items()):
            try:
                for sample in probe():
                    self._emitter.counter(sample.name, sample.value, sample.unit, track=sample.track)
            except Exception as e:  # a driver may raise anything, and the others shall go on
                del self._probes[name]
                failed.setdefault(str(e) or type(e).__name__, []).append(name)
        for why, names in failed.items():
            self._emitter.mark(f"cannot be measured: {', '.join(names)} ({why})", "log")
        self._emitter.flush()


def rounds(hz: float, alive: Callable[[], bool]) -> Iterator[int]:
    """Yield round numbers at a steady rate while `alive` holds; a round that is late is left out."""
    began, number = time.monotonic(), 0
    while alive():
        yield number
        number = max(number + 1, int((time.monotonic() - began) * hz) + 1)
        time.sleep(max(0.0, began + number / hz - time.monotonic()))


def host_probes(pid: int) -> dict[str, Probe]:
    """Return what psutil and Linux can tell of the machine and of a process, by what a person calls it."""
    import psutil

    psutil.cpu_percent(percpu=True)  # the first answer covers no time and is always zero
    probes: dict[str, Probe] = {
        "the CPU's usage": _cpu_usage,
        "the CPU's frequency": _cpu_frequency,
        "memory": _memory,
        "the process": _ProcessFamily(pid).usage,
    }
    return probes | {f"pressure on {of}": _pressure(of) for of in ("cpu", "memory", "io")}


def _cpu_usage() -> Iterator[Sample]:
    import psutil

    cores = psutil.cpu_percent(percpu=True)
    yield Sample("host_cpu_usage", sum(cores) / len(cores), "%")
    for n, usage in enumerate(cores):
        yield Sample("core_usage", usage, "%", f"core {n}")


def _cpu_frequency() -> Iterator[Sample]:
    import psutil

    frequency = psutil.cpu_freq()
    if frequency is None:
        raise LookupError("the system does not tell it")
    yield Sample("cpu_frequency", frequency.current, "MHz")


def _memory() -> Iterator[Sample]:
    import psutil

    memory = psutil.virtual_memory()
    yield Sample("host_mem_used", memory.total - memory.available, "B")


class _ProcessFamily:
    """A process with those that it started, as the ranks of an engine: each is asked by the same object.

    What a child used stays the family's after its end: it is then told by the parent that waited for it.
    """

    def __init__(self, pid: int) -> None:
        import psutil

        self._parent = psutil.Process(pid)
        self._members = {pid: self._parent}
        self._last, self._used = time.monotonic(), self._cpu_seconds()

    def usage(self) -> Iterator[Sample]:
        """Yield the CPU time and memory of all members; nothing when none is left."""
        import psutil

        with suppress(psutil.NoSuchProcess):
            for child in self._parent.children(recursive=True):
                self._members.setdefault(child.pid, child)
        now, used, memory = time.monotonic(), self._cpu_seconds(), 0
        for member in list(self._members.values()):
            with suppress(psutil.Error):
                memory += member.memory_info().rss
        passed, spent = now - self._last, max(0.0, used - self._used)
        self._last, self._used = now, used
        if self._members and passed > 0:
            yield Sample("process_cpu_usage", 100 * spent / passed, "%")
            yield Sample("process_mem_used", memory, "B")

    def _cpu_seconds(self) -> float:
        """Return what all members used, with the children that they waited for; forget who is gone."""
        import psutil

        seconds = 0.0
        for member in list(self._members.values()):
            try:
                seconds += sum(member.cpu_times()[:4])  # user, system, and those of children that have ended
            except psutil.Error:
                del self._members[member.pid]
        return seconds


def _pressure(of: str) -> Probe:
    """Return a probe of the share of the last ten seconds in which some task waited for this resource."""

    def probe() -> Iterator[Sample]:
        some = (_PRESSURE / of).read_text().split()
        average = next(word for word in some if word.startswith("avg10="))
        yield Sample(f"{of}_pressure", float(average.removeprefix("avg10=")), "%")

    return probe


def alive(pid: int, parent: int) -> bool:
    """Return whether the sampled process runs, and the parent that this process began with too."""
    if os.getppid() != parent:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return _answers_signal(pid)
    except OSError:
        return False
    return state not in "ZX"


def _answers_signal(pid: int) -> bool:
    """Return whether a process runs, where there is no /proc."""
    if Path("/proc/self").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class GpuChild:
    """The process that reads the GPUs; when it dies it is started again, after ever longer pauses."""

    def __init__(self, command: list[str], emitter: Emitter) -> None:
        self._command, self._emitter = command, emitter
        self._wait_s, self._retry_at = FIRST_WAIT_S, 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False  # there is nothing to read

    def keep_running(self) -> None:
        """Start the process where none runs and the pause is over; write how it died where it has."""
        if self._over or time.monotonic() < self._retry_at:
            return
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            return
        code = self._process.poll()
        if code is None:
            return
        self._process = None
        if code == 0:  # it has written why there is nothing to read
            self._over = True
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._emitter.mark(f"the GPU sampler died ({how}); it is tried again in {self._wait_s:.0f} s", "log")
        self._retry_at = time.monotonic() + self._wait_s
        self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()  # it may hang in the driver, where no other signal is heard
            self._process.wait()


def main(argv: list[str] | None = None) -> int:
    """Sample until the process ends, and return exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m capture.record.counters", description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--pid", type=int, required=True, help="ends with this process")
    parser.add_argument("--hz", type=float, default=5.0)
    parser.add_argument("--no-gpu", action="store_true")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; we end with it
    parent = os.getppid()
    emitter = Emitter(args.out)
    command = [
        sys.executable,
        "-P",  # a folder here that has our name is not ours
        "-m",
        "capture.record.gpu",
        args.out,
        "--pid",
        str(args.pid),
        "--hz",
        str(args.hz),
    ]
    gpu = None if args.no_gpu else GpuChild(command, emitter)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pace = Pace(emitter, processors_of(args.pid))
    try:
        sampler = Sampler(emitter, _host_probes_or_none(args.pid, emitter))
        pace.start()
        for _ in rounds(args.hz, lambda: alive(args.pid, parent)):
            sampler.tick()
            if gpu:
                gpu.keep_running()
    finally:
        if gpu:
            gpu.stop()
        pace.stop()
        emitter.close()
    return 0


def _host_probes_or_none(pid: int, emitter: Emitter) -> dict[str, Probe]:
    try:
        return host_probes(pid)
    except Exception as e:
        emitter.mark(f"the CPU and memory cannot be measured: {e or type(e).__name__}", "log")
        return {}


if __name__ == "__main__":
    sys.exit(main())
