"""The sampler: a process of its own that adds CPU, memory and GPU counters to a recording.

    python -m capture.record.counters OUT --pid N --hz 5

It ends with the process that it watches. GPUs are read by a child (a lost GPU may take down whoever asks).
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
    """Asks its probes at a steady rate; one that fails is named once and asked no more."""

    def __init__(self, emitter: Emitter, probes: dict[str, Probe]) -> None:
        self._emitter = emitter
        self._probes = dict(probes)

    def has_any(self) -> bool:
        """Whether a probe is left that works."""
        return bool(self._probes)

    def tick(self) -> None:
        """One round."""
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
    """Numbers at a steady rate, as long as somebody is alive; a round that is late is left out."""
    began, number = time.monotonic(), 0
    while alive():
        yield number
        number = max(number + 1, int((time.monotonic() - began) * hz) + 1)
        time.sleep(max(0.0, began + number / hz - time.monotonic()))


def host_probes(pid: int) -> dict[str, Probe]:
    """What psutil and Linux tell of the machine and of the process."""
    import psutil

    process = psutil.Process(pid)
    family = {pid: process}
    psutil.cpu_percent(percpu=True)  # the first answer covers no time and is always zero
    process.cpu_percent()

    def cpu_usage() -> Iterator[Sample]:
        cores = psutil.cpu_percent(percpu=True)
        yield Sample("host_cpu_usage", sum(cores) / len(cores), "%")
        for n, usage in enumerate(cores):
            yield Sample("core_usage", usage, "%", f"core {n}")

    def cpu_frequency() -> Iterator[Sample]:
        found = psutil.cpu_freq()
        if found is None:
            raise LookupError("the system does not tell it")
        yield Sample("cpu_frequency", found.current, "MHz")

    def memory() -> Iterator[Sample]:
        found = psutil.virtual_memory()
        yield Sample("host_mem_used", found.total - found.available, "B")

    def of_process() -> Iterator[Sample]:
        """With the processes that it started, as the ranks of an engine: each is asked by the same object."""
        cpu, memory = 0.0, 0
        with suppress(psutil.NoSuchProcess):
            for child in process.children(recursive=True):
                family.setdefault(child.pid, child)
        for each in list(family.values()):
            try:
                cpu, memory = cpu + each.cpu_percent(), memory + each.memory_info().rss
            except psutil.Error:
                del family[each.pid]
        if family:
            yield Sample("process_cpu_usage", cpu, "%")
            yield Sample("process_mem_used", memory, "B")

    probes: dict[str, Probe] = {
        "the CPU's usage": cpu_usage,
        "the CPU's frequency": cpu_frequency,
        "memory": memory,
        "the process": of_process,
    }
    return probes | {f"pressure on {of}": _pressure(of) for of in ("cpu", "memory", "io")}


def _pressure(of: str) -> Probe:
    """The share of the last ten seconds in which somebody had to wait for it."""

    def probe() -> Iterator[Sample]:
        some = (_PRESSURE / of).read_text().split()
        average = next(word for word in some if word.startswith("avg10="))
        yield Sample(f"{of}_pressure", float(average.removeprefix("avg10=")), "%")

    return probe


def alive(pid: int, parent: int) -> bool:
    """Whether the watched process and our own parent still are."""
    if os.getppid() != parent:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return _answers(pid)
    except OSError:
        return False
    return state not in "ZX"


def _answers(pid: int) -> bool:
    """The same where there is no /proc."""
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
    """The process that reads the GPUs, started again with growing patience when it dies."""

    def __init__(self, command: list[str], emitter: Emitter) -> None:
        self._command, self._emitter = command, emitter
        self._wait_s, self._retry_at = FIRST_WAIT_S, 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False

    def look_after(self) -> None:
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
        if code == 0:  # it has said why there is nothing to read
            self._over = True
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._emitter.mark(f"the GPU sampler died ({how}); it is tried again in {self._wait_s:.0f} s", "log")
        self._retry_at = time.monotonic() + self._wait_s
        self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()  # it may hang in the driver, where no other signal is heard
            self._process.wait()


def main(argv: list[str] | None = None) -> int:
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
    try:
        sampler = Sampler(emitter, _host_probes_or_none(args.pid, emitter))
        for _ in rounds(args.hz, lambda: alive(args.pid, parent)):
            sampler.tick()
            if gpu:
                gpu.look_after()
    finally:
        if gpu:
            gpu.stop()
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
