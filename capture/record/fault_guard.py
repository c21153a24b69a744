"""Fault isolation: an error of ours ends the recording with one line, never the program."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from . import process_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from .process_recording import ProcessRecording


class FaultGuard:
    """Runs actions of the recorder until the first one fails."""

    def __init__(self, recording: ProcessRecording) -> None:
        self.is_off = False
        self.recording = recording

    def guard(self, action: Callable[[], object]) -> None:
        """Run an action; an error stops the recording."""
        if not self.is_off:
            try:
                action()
            except Exception as e:
                self.stop_recording(e)

    def stop_recording(self, error: Exception) -> None:
        """Stop recording after an error, and report it once."""
        if self.is_off:
            return
        self.is_off = True
        why = " ".join(f"{type(error).__name__}: {error}".split())
        process_notes.append_note("fault " + why)
        with suppress(Exception):
            self._drop_open_work()
        with suppress(Exception):
            self.recording.close()
        with suppress(Exception):
            sys.stderr.write(f"tracetui: recording stopped: {why}\n")

    def _drop_open_work(self) -> None:
        """Discard work that was started and cannot be finished."""


def hide_frame(error: BaseException) -> None:
    """Take the caller's own frame off an error that it raises again; before Python 3.11 the frame stays."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
