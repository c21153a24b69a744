"""What the processes of a recorded program tell of themselves, and those that tell nothing."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from capture.errors import CaptureError
from capture.text import clean

FOLDER: Final = "TRACETUI_ACCOUNT"  # as in capture/record/account.py
RUN: Final = "TRACETUI_RUN"  # as there
_NAMED: Final = 3  # processes that are named one by one
_LIBRARY: Final = b"libtorch"


class Told(Struct):
    """What one process told: its Python, torch, llama.cpp, whether they worked, what it saw, its faults."""

    python: str = ""
    torch: str = ""
    llama: bool = False  # whether llama_cpp was imported
    watched: bool = False
    seen: tuple[int, int, int] = (0, 0, 0)  # steps, forwards, threads
    ended: bool = False
    faults: list[str] = field(default_factory=list)
    gaps: str = ""

    def take(self, line: str) -> None:
        """Take one line of what the process told."""
        what, _, rest = line.partition(" ")
        if what == "python":
            self.python = rest
        elif what == "torch":
            self.torch = rest
        elif what == "llama_cpp":
            self.llama = True
        elif what == "watched":
            self.watched = True
        elif what == "fault":
            self.faults.append(rest)
        elif what == "gaps":
            self.gaps = rest
        elif what == "seen":
            numbers = [int(word) for word in rest.split() if word.isdecimal()]
            if len(numbers) == 3:
                steps, forwards, threads = map(sum, zip(self.seen, numbers, strict=True))
                self.seen, self.ended = (steps, forwards, threads), True


class Account:
    """A folder into which the processes of one program write; it is removed in the end."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="tracetui-"))
        except OSError as e:
            raise CaptureError("there is no temporary folder", why=os.strerror(e.errno or 0)) from None
        self._silent: dict[int, str] = {}  # processes with torch that told nothing, by their command
        self._looked_at: dict[int, int] = {}

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program finds in its environment to take part."""
        return {FOLDER: str(self._folder), RUN: self._run_id}

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def told(self) -> dict[int, Told]:
        """Return what each process told so far."""
        processes = {}
        for path in sorted(self._folder.glob("process-*")):
            told = processes[int(path.name.removeprefix("process-"))] = Told()
            for line in path.read_text("utf-8", "replace").splitlines():
                told.take(clean(line, 1000))
        return processes

    def look_for_silent(self, pid: int) -> None:
        """Look for processes below this one that have torch loaded and told nothing, each ever less often."""
        for child in family(pid):
            count = self._looked_at[child] = self._looked_at.get(child, 0) + 1
            if count & (count - 1) or child in self._silent or self._has_told(child):
                continue
            if _has_torch(child):
                self._silent[child] = _command(child)

    def silent(self) -> list[str]:
        """Return the processes that had torch loaded and told nothing, in words."""
        return [
            f"process {pid} ({command})" for pid, command in self._silent.items() if not self._has_told(pid)
        ]

    def _has_told(self, pid: int) -> bool:
        return (self._folder / f"process-{pid}").exists()

    def nothing_reason(self) -> str:
        """Return why nothing was watched."""
        told = self.told()
        faults = [fault for process in told.values() for fault in process.faults]
        if faults:
            return f"the recorder let go: {faults[0]}"
        if any(process.watched for process in told.values()):
            return "it was ended, by a signal or otherwise at once, before its first lines were written"
        if idle := _idle_reason(told):
            return idle
        if silent := self.silent():
            return f"{silent[0]} runs without the recorder, as with python -I, -E or -S"
        if told:
            return "no process of it imported torch or llama_cpp"
        return (
            "no Python of it took the recorder along: it runs none, or one with -I, -E, -S or older than 3.8"
        )

    def sentences(self, steps: int) -> list[str]:
        """Return what was seen, and what was not, of a program with so many recorded steps."""
        told = self.told()
        watched = {pid: process for pid, process in told.items() if process.watched}
        forwards, threads = (sum(process.seen[i] for process in watched.values()) for i in (1, 2))
        lines = []
        if watched:
            parts = (_count(steps, "step"), _count(forwards, "forward"))
            where = (_count(len(watched), "process", "processes"), _count(threads, "thread"))
            lines.append(f"watched {', '.join(parts)} in {', '.join(where)}")
        return [*lines, *self._shortcomings(told)]

    def _shortcomings(self, told: Mapping[int, Told]) -> list[str]:
        """Return what was seen in part, or not at all."""
        lines = []
        cut = [pid for pid, process in told.items() if process.watched and not process.ended]
        if cut:
            lines.append(
                f"{_processes(cut)} ended at once: forwards and threads, and its last steps, are not told"
            )
        for pid, process in told.items():
            lines += [f"process {pid} was not watched to its end: {fault}" for fault in process.faults]
        if silent := self.silent():
            more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
            lines.append(f"not watched: {', '.join(silent[:_NAMED])}{more}")
        return lines

    def gaps(self) -> str:
        """Return what a recorder of ours could not write; empty where it wrote all."""
        return next((process.gaps for process in self.told().values() if process.gaps), "")


def family(pid: int) -> list[int]:
    """Return a process and those below it that run, where the system tells."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def members(run_id: str) -> list[int]:
    """Return the processes that were started as part of a run, whoever is their parent now."""
    mark = f"{RUN}={run_id}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def _has_torch(pid: int) -> bool:
    try:
        return _LIBRARY in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return "?"
    return clean(words.decode("utf-8", "replace").strip(), 60)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _idle_reason(told: Mapping[int, Told]) -> str:
    """Return what was imported that could have been watched, and did nothing; empty where nothing was."""
    torch = [process.torch for process in told.values() if process.torch]
    if torch:
        return (
            f"torch {torch[0].removesuffix(' forked')} was imported, but no module with parameters was "
            "called from outside of compiled code"
        )
    if any(process.llama for process in told.values()):
        return "llama_cpp was imported, but no context of its own decoded anything"
    return ""


def _processes(pids: list[int]) -> str:
    return f"process {pids[0]}" if len(pids) == 1 else f"{len(pids)} processes"
