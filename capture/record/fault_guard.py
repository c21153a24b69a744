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
            except BaseException as e:
                self.stop_recording(e)

    def stop_recording(self, error: BaseException) -> None:
        """Stop recording after an error of ours, and report it once; raise one of the program's again."""
        if _is_of_program(error):
            with suppress(Exception):
                self._forget_open_calls()
            raise error
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

    def _forget_open_calls(self) -> None:
        """Forget the calls in progress, which an error of the program's ends."""

    def _drop_open_work(self) -> None:
        """Discard work that was started and cannot be finished."""


def hide_frame(error: BaseException, *, is_ours: bool = True) -> None:
    """Take the caller's own frame off an error that it raises again; before Python 3.11 the frame stays."""
    if is_ours and error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def _is_of_program(error: BaseException) -> bool:
    """Return whether an error is to end the program, or is of its handler of a signal, run anywhere."""
    if not isinstance(error, Exception):
        return True
    import signal

    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG)]
    calls = [part for each in handlers for part in (each, getattr(each, "func", None), type(each).__call__)]
    codes = {getattr(call, "__code__", None) for call in calls} - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None
