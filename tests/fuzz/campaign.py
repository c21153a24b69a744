"""Workers that are watched: their counts are added, their faults grouped by place, the dead ones replaced."""

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conftest import FIXTURES
from tests.fuzz.worker import CASE_FILE, PLACE_FILE

ROOT: Final = FIXTURES.parent.parent
PATH = str(ROOT)  # of modules
SILENCE: Final = 120.0  # seconds without a word after which a worker hangs, however busy the machine
CASES: Final = 20_000  # of one process; then a fresh one
SHRINK = 90.0  # seconds


@dataclass
class Fault:
    """One kind of fault, and the first case that showed it."""

    place: str
    loader: str
    case: int
    details: str
    count: int = 0


class Worker:
    """One process, and what is known of it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self.heard = time.monotonic()
        self.process: subprocess.Popen[str] | None = None

    def start(self, words: list[str], said: "queue.Queue[tuple[Worker, dict[str, Any] | None]]") -> None:
        """Start the process; each line that it prints is put into the queue, and None at its end."""
        (self.folder / PLACE_FILE).unlink(missing_ok=True)
        (self.folder / CASE_FILE).write_bytes((int(words[1])).to_bytes(8, "little"))
        command = [sys.executable, "-m", "tests.fuzz.worker", *words[:4], str(self.folder), words[4]]
        self.heard = time.monotonic()
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
        )
        threading.Thread(target=self._listen, args=(self.process, said), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]", said: "queue.Queue[Any]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.heard = time.monotonic()
            said.put((self, json.loads(line)))
        process.wait()
        said.put((self, None))

    @property
    def case(self) -> int:
        """Return the number of the case at work."""
        return int.from_bytes((self.folder / CASE_FILE).read_bytes(), "little")


def _environment() -> dict[str, str]:
    """Return an environment in which nothing of the user's is read or written."""
    nowhere = {f"XDG_{kind}_HOME": "/nonexistent" for kind in ("STATE", "CACHE", "CONFIG")}
    return {**os.environ, **nowhere, "POLARS_MAX_THREADS": "1", "PYTHONPATH": PATH}


class Campaign:
    """Cases of one seed, until a time or a number."""

    def __init__(self, seed: int, out: Path, *, samples: bool) -> None:
        self._seed, self._out, self._samples = seed, out, samples
        self._said: queue.Queue[tuple[Worker, dict[str, Any] | None]] = queue.Queue()
        self.counts: Counter[str] = Counter()
        self.faults: dict[str, Fault] = {}
        self.seconds = 0.0
        self._step, self._last = 1, 0

    def run(self, seconds: float, cases: int, workers: int, first: int = 0) -> None:
        """Work with some processes for a time or through a number of cases."""
        began = time.monotonic()
        self._step, self._last = workers, first + cases
        with tempfile.TemporaryDirectory(prefix="fuzz-work-") as folder:
            busy = [self._started(n, first + n, Path(folder)) for n in range(min(workers, cases))]
            while busy and time.monotonic() - began < seconds:
                self._listen(busy)
            for worker in busy:
                if worker.process is not None:
                    worker.process.kill()
                    worker.process.wait()
        self.seconds = time.monotonic() - began
        for number, fault in enumerate(self.faults.values()):
            self._keep(number, fault)

    def _started(self, number: int, first: int, folder: Path) -> Worker:
        own = folder / f"{number}"
        own.mkdir(exist_ok=True)
        worker = Worker(number, own)
        self._start(worker, first)
        return worker

    def _start(self, worker: Worker, first: int) -> bool:
        """Start a process for the next cases of a worker; return whether any are left."""
        left = min(CASES, -(-(self._last - first) // self._step))
        if left <= 0:
            return False
        worker.start([*map(str, (self._seed, first, self._step, left)), str(int(self._samples))], self._said)
        return True

    def _listen(self, busy: list[Worker]) -> None:
        """Take one line of a worker, or see that one has ended or hangs."""
        for worker in busy:
            if time.monotonic() - worker.heard > SILENCE and worker.process is not None:
                worker.process.kill()
        try:
            worker, said = self._said.get(timeout=0.2)
        except queue.Empty:
            return
        if said is None:
            if not self._start(worker, self._after_end(worker)):
                busy.remove(worker)
        elif "fault" in said:
            self._count(Fault(said["fault"], said["loader"], said["case"], said["details"]))
        else:
            self.counts.update(said["counts"])

    def _after_end(self, worker: Worker) -> int:
        """Return the case to go on with, after the fault of a process that was ended has been counted."""
        assert worker.process is not None
        code, case = worker.process.returncode, worker.case
        if code:
            place = (worker.folder / PLACE_FILE).read_text() if (worker.folder / PLACE_FILE).exists() else ""
            errors = (worker.folder / "stderr").read_text(errors="replace")[-3000:]
            self._count(Fault(f"{_innermost(place)} {_death(code)}", "", case, f"{place}\n{errors}"))
            self.counts["killed fault"] += 1
        return case + self._step

    def _count(self, fault: Fault) -> None:
        known = self.faults.setdefault(fault.place, fault)
        known.count += 1
        if known.count == 1:
            print(
                f"fault: {fault.place} (case {self._seed}:{fault.case} {fault.loader})",
                file=sys.stderr,
                flush=True,
            )

    def _keep(self, number: int, fault: Fault) -> None:
        """Write the smallest input found for a fault, and what is known of it, into the folder."""
        target = self._out / f"{number:02d}-{re.sub(r'[^A-Za-z0-9]+', '-', fault.place)[:80]}"
        words = [str(self._seed), str(fault.case), fault.place, str(target), str(int(self._samples))]
        command = [sys.executable, "-m", "tests.fuzz.one", *words]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, cwd=ROOT, env=_environment(), timeout=SHRINK, check=False, stderr=subprocess.DEVNULL
            )
        about = f"case {self._seed}:{fault.case}, {fault.count} times\n{fault.place}\n{fault.details}\n"
        target.with_name(f"{target.name}.txt").write_text(about)

    def table(self) -> str:
        """Return what was done: cases a second by loader, and each fault with how often it was met."""
        loaders = sorted({key.split()[0] for key in self.counts})
        lines = [f"{'loader':24}{'cases':>9}{'answered':>10}{'refused':>9}{'faults':>8}{'cases/s':>9}"]
        for loader in loaders:
            ends = [self.counts[f"{loader} {end}"] for end in ("answered", "refused", "fault")]
            each = sum(ends) / self.seconds
            lines.append(f"{loader:24}{sum(ends):9,}{ends[0]:10,}{ends[1]:9,}{ends[2]:8,}{each:9.1f}")
        total = sum(self.counts.values())
        each = total / max(self.seconds, 1e-9)
        lines.append(f"{total:,} cases in {self.seconds:.0f} s, {each:.0f} a second")
        lines.append(f"{len(self.faults)} kinds of faults")
        lines += [f"  {f.count:5} × {f.place} (case {self._seed}:{f.case})" for f in self.faults.values()]
        return "\n".join([*lines, *([f"inputs: {self._out}"] if self.faults else [])])


def _innermost(dump: str) -> str:
    """Return the innermost place of our own code in a dump of faulthandler."""
    found: list[tuple[str, str]] = re.findall(
        r'File "[^"]*/((?:capture|tracetui)/[^"]+)", line \d+ in (\S+)', dump
    )
    return ":".join(found[0]) if found else "?"


def _death(code: int) -> str:
    import signal

    if code > 0:
        return f"exit {code}"
    return {signal.SIGPROF: "took too long", signal.SIGKILL: "hung"}.get(-code, f"signal {-code}")
