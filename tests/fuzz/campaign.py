"""Workers that are watched: their counts are added, their faults grouped by place, the dead ones replaced."""

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tests.conftest import FIXTURES
from tests.fuzz.tally import Fault, Tally
from tests.fuzz.worker import INPUT_FILE, PLACE_FILE

ROOT: Final = FIXTURES.parent.parent
PATH = str(ROOT)  # of modules
SILENCE: Final = 120.0  # seconds without a word after which a worker hangs, however busy the machine
INPUTS: Final = 5_000  # of one process; then a fresh one
SAVE_EVERY: Final = 5.0  # seconds
SHRINK = 90.0  # seconds


class Worker:
    """One process, and what is known of it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        self.slow: int | None = None  # the input that took too long, and is tried once more
        self.heard = time.monotonic()
        self.process: subprocess.Popen[str] | None = None

    def start(self, words: list[str], said: "queue.Queue[tuple[Worker, dict[str, Any] | None]]") -> None:
        """Start the process; each line that it prints is put into the queue, and None at its end."""
        (self.folder / PLACE_FILE).unlink(missing_ok=True)
        (self.folder / INPUT_FILE).write_bytes((int(words[1])).to_bytes(8, "little"))
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
    def at(self) -> int:
        """Return the number of the input at work."""
        return int.from_bytes((self.folder / INPUT_FILE).read_bytes(), "little")


def _environment() -> dict[str, str]:
    """Return an environment in which nothing of the user's is read or written."""
    nowhere = {f"XDG_{kind}_HOME": "/dev/null" for kind in ("STATE", "CACHE", "CONFIG")}
    return {**os.environ, **nowhere, "POLARS_MAX_THREADS": "1", "PYTHONPATH": PATH}


class Campaign:
    """Inputs of one seed, until a time or a number; the account may go on from one of before."""

    def __init__(self, tally: Tally, out: Path, *, samples: bool, kept: Path | None = None) -> None:
        self.tally = tally
        self._out, self._samples, self._kept = out, samples, kept
        self._said: queue.Queue[tuple[Worker, dict[str, Any] | None]] = queue.Queue()
        self._step, self._last = 1, 0
        self._new: list[Fault] = []

    def run(self, seconds: float, inputs: int, workers: int) -> None:
        """Work with some processes for a time, through a number of inputs, or until Ctrl+C."""
        began = time.monotonic()
        before, first = self.tally.seconds, self.tally.first
        self._step, self._last = workers, first + inputs
        with tempfile.TemporaryDirectory(prefix="fuzz-work-") as folder:
            busy = [self._started(n, first + n, Path(folder)) for n in range(min(workers, inputs))]
            saved = began
            with contextlib.suppress(KeyboardInterrupt):
                while busy and time.monotonic() - began < seconds:
                    self._listen(busy)
                    self.tally.seconds = before + time.monotonic() - began
                    if time.monotonic() - saved > SAVE_EVERY:
                        saved = time.monotonic()
                        self._save(busy)
            for worker in busy:
                if worker.process is not None:
                    worker.process.kill()
                    worker.process.wait()
            self._save(busy)
        for number, fault in enumerate(self._new):
            self._keep(number, fault)

    def _save(self, busy: list[Worker]) -> None:
        """Keep the account, with the first input that no process has begun."""
        self.tally.first = max((worker.at + 1 for worker in busy), default=self._last)
        if self._kept is not None:
            self.tally.save(self._kept)

    def _started(self, number: int, first: int, folder: Path) -> Worker:
        own = folder / f"{number}"
        own.mkdir(exist_ok=True)
        worker = Worker(number, own)
        self._start(worker, first)
        return worker

    def _start(self, worker: Worker, first: int) -> bool:
        """Start a process for the next inputs of a worker; return whether any are left."""
        left = min(INPUTS, -(-(self._last - first) // self._step))
        if left <= 0:
            return False
        numbers = map(str, (self.tally.seed, first, self._step, left))
        worker.start([*numbers, str(int(self._samples))], self._said)
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
            self._count(Fault(said["fault"], said["loader"], said["input"], said["details"]))
        else:
            self.tally.counts.update(said["counts"])
            self.tally.inputs += sum(n for key, n in said["counts"].items() if key.split()[1] == "load")

    def _after_end(self, worker: Worker) -> int:
        """Return the input to go on with, after the fault of a process that was ended has been counted.

        What took too long is tried once more: a busy machine makes the time of a processor longer, too.
        """
        assert worker.process is not None
        code, number = worker.process.returncode, worker.at
        if code == -signal.SIGPROF and worker.slow != number:
            worker.slow = number
            self.tally.slow += 1
            return number
        if code:
            place = (worker.folder / PLACE_FILE).read_text() if (worker.folder / PLACE_FILE).exists() else ""
            errors = (worker.folder / "stderr").read_text(errors="replace")[-3000:]
            self._count(Fault(f"{_innermost(place)} {_death(code)}", "", number, f"{place}\n{errors}"))
            self.tally.counts["killed ? ? fault"] += 1
        return number + self._step

    def _count(self, fault: Fault) -> None:
        if self.tally.count(fault):
            self._new.append(fault)
            name = f"{self.tally.seed}:{fault.input}"
            print(f"fault: {fault.place} (input {name} {fault.loader})", file=sys.stderr, flush=True)

    def _keep(self, number: int, fault: Fault) -> None:
        """Write the smallest input found for a fault, and what is known of it, into the folder."""
        target = self._out / f"{number:02d}-{re.sub(r'[^A-Za-z0-9]+', '-', fault.place)[:80]}"
        words = [str(self.tally.seed), str(fault.input), fault.place, str(target), str(int(self._samples))]
        command = [sys.executable, "-m", "tests.fuzz.one", *words]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, cwd=ROOT, env=_environment(), timeout=SHRINK, check=False, stderr=subprocess.DEVNULL
            )
        about = (
            f"input {self.tally.seed}:{fault.input}, {fault.count} times\n{fault.place}\n{fault.details}\n"
        )
        target.with_name(f"{target.name}.txt").write_text(about)


def _innermost(dump: str) -> str:
    """Return the innermost place of our own code in a dump of faulthandler."""
    found: list[tuple[str, str]] = re.findall(
        r'File "[^"]*/((?:capture|tracetui)/[^"]+)", line \d+ in (\S+)', dump
    )
    return ":".join(found[0]) if found else "?"


def _death(code: int) -> str:
    if code > 0:
        return f"exit {code}"
    return {signal.SIGPROF: "took too long", signal.SIGKILL: "hung"}.get(-code, f"signal {-code}")
