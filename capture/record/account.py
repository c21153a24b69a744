"""What a watched process tells its recorder beside the recording: notes in a file of its own, steps numbered.

The recorder names the folder in TRACETUI_ACCOUNT. Where there is none, nothing is told and steps are counted
by each process for itself. No fault in here is ever one of the program.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import os
from contextlib import suppress
from typing import Final

OUT: Final = "TRACETUI_OUT"  # names to a program the file that it is recorded into
ACCOUNT: Final = "TRACETUI_ACCOUNT"


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
        path = _path("steps") if shared else None
        if path:
            with suppress(OSError):
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> int:
        """Return the next number: that of the byte which is added to the end of the shared file."""
        self._count += 1
        if self._fd < 0:
            return self._count
        try:
            os.write(self._fd, b".")
            return os.lseek(self._fd, 0, os.SEEK_CUR)
        except OSError:
            return self._count


def _path(name: str) -> str | None:
    folder = os.environ.get(ACCOUNT)
    return folder + os.sep + name if folder else None
