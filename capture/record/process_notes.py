"""Notes and shared step numbers from a recorded process to its recorder, next to the recording.

The recorder names the folder in TRACETUI_ACCOUNT; without it nothing is noted, and each process counts its
own steps. No error in here ever reaches the program. A process that was attached to gets its settings from
the recorder instead, because its environment stays the program's.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OUT_VARIABLE: Final = "TRACETUI_OUT"  # file that the program is recorded into
NOTES_VARIABLE: Final = "TRACETUI_ACCOUNT"  # folder of the notes
RUN_VARIABLE: Final = "TRACETUI_RUN"  # id of the run that child processes join
DETAIL_VARIABLE: Final = "TRACETUI_DETAIL"  # layers or steps: what is timed, if not every module

_overrides: dict[str, str] = {}
_at_start: dict[str, str] = {}


def override_settings(settings: Mapping[str, str]) -> None:
    """Use these settings instead of the environment; an empty mapping restores the environment."""
    _overrides.clear()
    _overrides.update(settings)


def read_setting(name: str) -> str | None:
    """Return a setting, as overridden or from the environment, or None."""
    return _overrides.get(name) or os.environ.get(name) or _at_start.get(name)


def remember_environment() -> None:
    """Remember the settings of the environment, which the program may clear before its first call."""
    _at_start.update((k, v) for k, v in os.environ.items() if k.startswith("TRACETUI_"))


def append_note(text: str) -> None:
    """Append a line to the notes of this process."""
    path = _build_path("process-%d" % os.getpid())
    if path:
        try:
            _write_note(path, (" ".join(text.split()) + "\n").encode("utf-8", "replace"))
        except OSError as e:
            with suppress(OSError):  # an empty file needs no room
                _write_note("%s-%d-%d" % (_build_path("refused"), os.getpid(), e.errno or 0), b"")


def _write_note(path: str, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def claim_first() -> bool:
    """Return True in the first process that calls this: only that one writes without a writer id."""
    path = _build_path("first")
    if path is None:
        return False
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


class StepCounter:
    """Numbers steps from 1, over all processes that share a folder."""

    def __init__(self, *, shared: bool) -> None:
        self._count, self._fd = 0, -1
        self._next_number, self._last_number = 1, 0  # the range of numbers claimed but not used yet
        path = _build_path("steps") if shared else None
        if path:
            with suppress(OSError):
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def claim_number(self) -> int:
        """Return the next number: the position of a byte appended to the shared file."""
        self._count += 1
        if self._next_number > self._last_number:
            self.reserve(1)
        if self._next_number > self._last_number:
            return self._count
        number = self._next_number
        self._next_number += 1
        return number

    def reserve(self, count: int) -> None:
        """Claim this many numbers at once; numbers claimed before must be used up."""
        if self._fd < 0 or count < 1:
            return
        with suppress(OSError):
            written = os.write(self._fd, b"." * count)
            self._last_number = os.lseek(self._fd, 0, os.SEEK_CUR)
            self._next_number = self._last_number - written + 1

    def close(self) -> None:
        """Close the shared file; this process then counts its own steps."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


def _build_path(name: str) -> str | None:
    folder = read_setting(NOTES_VARIABLE)
    return folder + os.sep + name if folder else None
