"""Rotate a recording into parts: a full `prof.jsonl` becomes `prof.1.jsonl`, and a new file starts."""

from __future__ import annotations  # imported by users' programs, from Python 3.8 on

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from .schema import seal_record

SIZE_VARIABLE: Final = "TRACETUI_PART_SIZE"  # bytes of a part; not set: a single file
MIN_PART_BYTES: Final = 1 << 16  # smaller parts would be mostly headers
_HIGH_NUMBERS: Final = (900, 200, 40)  # of a file, below the usual limits of 1,024, 256 and 64

_MAX_FIRST_LINE_BYTES: Final = 1 << 20


def build_part_path(path: str | os.PathLike[str], number: int) -> str:
    """Return the path that part `number` (from 1) has after rotation."""
    recording = Path(path)
    return str(recording.with_name(f"{recording.stem}.{number}{recording.suffix}"))


def read_first_line(path: str | os.PathLike[str]) -> bytes:
    """Return the first line of a file, or nothing if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.readline(_MAX_FIRST_LINE_BYTES)
    except OSError:
        return b""


def parse_part_count(line: bytes) -> int:
    """Return the number of parts before the file with this first line."""
    if b'"part":' not in line:
        return 0
    try:
        fields = json.loads(line)
    except ValueError:
        return 0
    number = fields.get("part") if isinstance(fields, dict) else None
    return number if type(number) is int and 0 < number < 1 << 31 else 0


def list_earlier_parts(path: str | os.PathLike[str], first_line: bytes, after: int = 0) -> list[str]:
    """Return the existing parts before the file with this first line, from number `after` + 1 on."""
    numbers = range(after + 1, parse_part_count(first_line) + 1)
    return [part for part in (build_part_path(path, n) for n in numbers) if Path(part).is_file()]


class PartRotation:
    """Rotation of one recording, as one of its writers sees it."""

    def __init__(self, path: str | os.PathLike[str], rotates: bool) -> None:
        """`rotates` is set for the one writer that starts new parts."""
        size = os.environ.get(SIZE_VARIABLE, "")
        self._path = Path(path).absolute()
        self._max_bytes = max(MIN_PART_BYTES, int(size)) if size.isdecimal() and rotates else 0
        self._number = 0
        self._head: dict[str, object] = {}  # fields of the run line
        self._plans: list[bytes] = []
        self._run_id = ""
        self._status: os.stat_result | None = None  # of the file that is open

    def open_file(self, flags: int) -> int:
        """Open the recording and return its number; raise OSError if that fails."""
        fd = open_apart(self._path, flags)
        self._status = os.fstat(fd)
        return fd

    def is_own(self, fd: int) -> bool:
        """Return whether this number is still the recording: a program may have opened another file by it."""
        with suppress(OSError):
            return self._status is not None and os.path.samestat(os.fstat(fd), self._status)
        return False

    def regain_file(self, fd: int) -> int:
        """Return the number of the recording, opened again if the program closed it; -1 if it is gone."""
        before = self._status
        if before is None or self.is_own(fd):
            return fd
        with suppress(OSError):
            fd = self.open_file(os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
            if os.path.samestat(os.fstat(fd), before):
                return fd
            os.close(fd)
            return self._open_current_part(-1)
        return -1

    def remember_run(self, fields: dict[str, object]) -> bytes:
        """Return the line that starts a run; every part repeats it."""
        self._head, self._plans, self._run_id = fields, [], str(fields.get("id", ""))
        return seal_record(fields)

    def remember_plan(self, line: bytes) -> bytes:
        """Return a plan line; every part repeats it."""
        self._plans.append(line)
        return line

    def choose_file(self, fd: int) -> int:
        """Return the file to write to: a new part if this one is full, or another writer's new part.

        Errors, and a file at the path that does not belong to the run, leave the file as it is.
        """
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return fd
            if not os.path.samestat(status, self._path.lstat()):
                return self._open_current_part(fd)
            if not self._run_id:
                self._run_id = str(self._head.get("id") or _parse_id(read_first_line(self._path)))
            return self._rotate() if self._head and 0 < self._max_bytes <= status.st_size else fd
        except OSError:
            return fd

    def _rotate(self) -> int:
        """Create the next part, then rename it into place, so that the path always has a file.

        After a failure (disk full, part exists) rotation is turned off.
        """
        draft = Path(f"{self._path}.next")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = open_apart(draft, flags)
        try:
            _write_all(fd, [seal_record({**self._head, "part": self._number + 1}), *self._plans])
            os.link(self._path, build_part_path(self._path, self._number + 1))
            draft.rename(self._path)
        except OSError:
            self._max_bytes = 0
            os.close(fd)
            draft.unlink()
            raise
        self._number += 1
        self._status = os.fstat(fd)
        return fd

    def _open_current_part(self, current: int) -> int:
        """Open the file at the path if it is a part of this run; else return the current file.

        Whatever the user put there meanwhile, a trace or a link, is not ours to write to.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = open_apart(self._path, flags)
        try:
            first_line = os.pread(fd, _MAX_FIRST_LINE_BYTES, 0).partition(b"\n")[0]
            is_ours = parse_part_count(first_line) > 0 and _parse_id(first_line) == self._run_id
            if is_ours:
                _write_all(fd, ([seal_record(self._head)] if self._head else []) + self._plans)
        except OSError:
            os.close(fd)
            raise
        if is_ours:
            self._status = os.fstat(fd)
            return fd
        os.close(fd)
        return current


def open_apart(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file under a high number, so that a program's own files have those that they have without us.

    Most loops that close what was inherited do not reach it. The number is low if high ones are not allowed.
    """
    fd = os.open(path, flags, 0o600)
    with suppress(ImportError):
        import fcntl

        for number in _HIGH_NUMBERS:
            with suppress(OSError):
                high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
                os.close(fd)
                return high
    return fd


def _parse_id(line: bytes) -> str:
    """Return the run id in the first line of a recording; empty if it is none."""
    try:
        fields = json.loads(line)
    except ValueError:
        return ""
    is_run = isinstance(fields, dict) and fields.get("kind") == "run"
    return str(fields.get("id") or "") if is_run else ""


def _write_all(fd: int, lines: list[bytes]) -> None:
    """Write lines; raise OSError if they do not fit."""
    data = b"".join(lines)
    if os.write(fd, data) < len(data):
        raise OSError("no room")
