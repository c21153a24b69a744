"""A watcher that a program does not feel: a fault of ours ends it with one line, never the program."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from . import account

if TYPE_CHECKING:
    from collections.abc import Callable

    from .recording import Recording


class Guarded:
    """Does what is ours as long as nothing of ours has failed."""

    def __init__(self, recording: Recording) -> None:
        self.off = False
        self.recording = recording

    def guard(self, act: Callable[[], object]) -> None:
        """Do something of ours; a fault ends the watching."""
        if not self.off:
            try:
                act()
            except Exception as e:
                self.let_go(e)

    def let_go(self, error: Exception) -> None:
        """Watch no more, and say so once."""
        if self.off:
            return
        self.off = True
        why = " ".join(f"{type(error).__name__}: {error}".split())
        account.note("fault " + why)
        with suppress(Exception):
            self._drop()
        with suppress(Exception):
            self.recording.close()
        with suppress(Exception):
            sys.stderr.write(f"tracetui: the program is watched no more: {why}\n")

    def _drop(self) -> None:
        """Leave what is begun and cannot be ended."""
