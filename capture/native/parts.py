"""Recordings in parts: a `prof.jsonl` that is large becomes `prof.1.jsonl`, and another one is begun."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import json
import os
import stat
from pathlib import Path
from typing import Final

from .schema import seal

SETTING: Final = "TRACETUI_PART_SIZE"  # names to a program the bytes of a part; none: all is one file
SMALLEST: Final = 1 << 16  # bytes; smaller parts would be more of heads than of events

_FIRST_LINE: Final = 1 << 20  # bytes of it that are read


def part_path(path: str | os.PathLike[str], number: int) -> str:
    """Return where the part of a number lies, counted from 1, once the recording has gone on in the next."""
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}.{number}{whole.suffix}"))


def first_line(path: str | os.PathLike[str]) -> bytes:
    """Return the first line of a file; nothing for one that cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.readline(_FIRST_LINE)
    except OSError:
        return b""


def parts_before(first: bytes) -> int:
    """Return how many parts came before the file with this first line."""
    if b'"part":' not in first:
        return 0
    try:
        said = json.loads(first)
    except ValueError:
        return 0
    number = said.get("part") if isinstance(said, dict) else None
    return number if type(number) is int and 0 < number < 1 << 31 else 0


def earlier_parts(path: str | os.PathLike[str], first: bytes, after: int = 0) -> list[str]:
    """Return the parts between the `after`th and the file with this first line, those that are there."""
    numbers = range(after + 1, parts_before(first) + 1)
    return [place for place in (part_path(path, n) for n in numbers) if Path(place).is_file()]


class Parts:
    """What one writer knows of the parts of its recording."""

    def __init__(self, path: str | os.PathLike[str], turns: bool) -> None:
        """`turns` is the one of all writers of a file that begins the next part."""
        size = os.environ.get(SETTING, "")
        self._path = Path(path).absolute()
        self._largest = max(SMALLEST, int(size)) if size.isdecimal() and turns else 0
        self._number = 0
        self._head: dict[str, object] = {}  # of the run line
        self._plans: list[bytes] = []

    def begin(self, head: dict[str, object]) -> bytes:
        """Return the line that begins a run; every part repeats it, and the plans that follow it."""
        self._head, self._plans = head, []
        return seal(head)

    def plan(self, line: bytes) -> bytes:
        self._plans.append(line)
        return line

    def next_file(self, fd: int) -> int:
        """Return the file to go on in: the next part where this one is full, else the one that another
        writer has begun, else the same. What cannot be moved or opened goes on as it is.
        """
        try:
            here = os.fstat(fd)
            if not stat.S_ISREG(here.st_mode):
                return fd
            if self._head and 0 < self._largest <= here.st_size:
                return self._turned()
            there = self._path.stat()
            return fd if os.path.samestat(here, there) else self._joined()
        except OSError:
            return fd

    def _turned(self) -> int:
        """Begin the next part beside this one, then move it into the place: the name always has a file.

        What fails once, as on a disk that is full or where the part lies already, is not tried again.
        """
        beside = Path(f"{self._path}.next")
        fd = os.open(beside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_whole(fd, [seal({**self._head, "part": self._number + 1}), *self._plans])
            os.link(self._path, part_path(self._path, self._number + 1))
            beside.rename(self._path)
        except OSError:
            self._largest = 0
            os.close(fd)
            beside.unlink()
            raise
        self._number += 1
        return fd

    def _joined(self) -> int:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        _write_whole(fd, ([seal(self._head)] if self._head else []) + self._plans)
        return fd


def _write_whole(fd: int, lines: list[bytes]) -> None:
    """Write lines, or raise OSError where they do not fit."""
    data = b"".join(lines)
    if os.write(fd, data) < len(data):
        raise OSError("no room")
