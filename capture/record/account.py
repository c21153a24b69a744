"""What a watched process tells its recorder beside the recording: notes in a file of its own, steps numbered.

The recorder names the folder in TRACETUI_ACCOUNT. Where there is none, nothing is told and steps are counted
by each process for itself. No fault in here is ever one of the program. Into a process that runs already the
recorder brings its settings along: the environment stays the program's.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OUT: Final = "TRACETUI_OUT"  # names to a program the file that it is recorded into
ACCOUNT: Final = "TRACETUI_ACCOUNT"
RUN: Final = "TRACETUI_RUN"  # names to child processes the run that they are part of

_stated: dict[str, str] = {}


def state(settings: Mapping[str, str]) -> None:
    """Take settings in place of those of the environment; none gives the environment back its word."""
    _stated.clear()
    _stated.update(settings)


def setting(name: str) -> str | None:
    """Return a setting: as it was stated, else that of the environment; None where there is none."""
    return _stated.get(name) or os.environ.get(name)


def note(text: str) -> None:
    """Add a line to what this process has told."""
    path = _path("process-%d" % os.getpid())
    if path:
        with suppress(OSError):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, (" ".join(text.split()) + "\n").encode("utf-8", "replace"))
            finally:
                os.close(fd)


def is_first() -> bool:
    """Return whether no other process has asked this before: the first writes without a name of its own."""
    path = _path("first")
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
        self._taken, self._last = 1, 0  # numbers from the one to the other are this process's already
        path = _path("steps") if shared else None
        if path:
            with suppress(OSError):
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> int:
        """Return the next number: that of a byte which was added to the end of the shared file."""
        self._count += 1
        if self._taken > self._last:
            self.reserve(1)
        if self._taken > self._last:
            return self._count
        number = self._taken
        self._taken += 1
        return number

    def reserve(self, count: int) -> None:
        """Take so many numbers at once for the steps that come; those taken before must be used up."""
        if self._fd < 0 or count < 1:
            return
        with suppress(OSError):
            done = os.write(self._fd, b"." * count)
            self._last = os.lseek(self._fd, 0, os.SEEK_CUR)
            self._taken = self._last - done + 1

    def close(self) -> None:
        """Let go of the shared file; steps are numbered on by this process for itself."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)


def _path(name: str) -> str | None:
    folder = setting(ACCOUNT)
    return folder + os.sep + name if folder else None
