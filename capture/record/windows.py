"""When a profiler window may be open in a program that knows nothing of it, and that may profile itself."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import os
import threading
from contextlib import suppress
from typing import Any, Final

from ..native.emit import now
from .kernels import Duty, Profiler, Window

TOGETHER: Final = 0.02  # of a program's time, for what is done in every step and for windows
LEAST: Final = 0.002  # for windows, where steps are so short that all of it goes into these
STEP_NS: Final = 25_000  # that a step costs without a window, as measured on a busy machine
CALL_NS: Final = 1_700  # that each call of a module in it adds


class Windows:
    """Opens one window at a time, in the thread that imported torch: in others the profiler cannot begin.

    None is open while the program captures a CUDA graph: to begin or end one waits for the device, which a
    capture does not survive. None is opened once the program has a profiler of its own. Windows have what
    the steps themselves leave of a budget: of steps that are short they are rare.
    """

    def __init__(self, torch: Any, thread: int | None = None) -> None:
        self._torch = torch
        self._duty = Duty(TOGETHER)
        self._plain = 0  # what the last step without a window took
        self._profiler: Profiler | None = None
        self.owner: object = None  # whose step the window is open in
        self._captures = 0
        self._opening = False
        self._ends = False  # whether nobody will read the window that is open
        self._thread = threading.get_ident() if thread is None else thread
        has_profiler = hasattr(getattr(torch, "_C", None), "_autograd")
        self._blocked = "KINETO_USE_DAEMON" in os.environ or not has_profiler

    def block(self) -> None:
        """Open no window any more: the program has a profiler of its own, and only one can be at work."""
        if not self._opening:
            self._blocked = True
            self.drop()

    def open_no_more(self) -> None:
        """Open no window any more; the one that is open is dropped by its own thread, at its next call."""
        self._blocked = self._ends = True

    def is_open(self, owner: object) -> bool:
        """Return whether a window is open in a step of this owner, who asks at each call in it."""
        if self.owner is not owner:
            return False
        if self._ends:
            self.drop()
        return self.owner is owner

    def begin_capture(self) -> None:
        """Drop the window and open none until the capture of a graph is over."""
        self._captures += 1
        self.drop()

    def end_capture(self) -> None:
        """Note that the capture of a graph is over."""
        self._captures = max(0, self._captures - 1)

    def open(self, owner: object, *, gpu: bool) -> bool:
        """Open a window where one is due and may be; return whether it is open now."""
        if self._blocked or self.owner is not None or not self._duty.due(now()) or self._is_untimely():
            return False
        self._opening = True
        try:
            self._profiler = self._profiler or Profiler(gpu=gpu)
            self._profiler.start()
            self.owner = owner
        finally:
            self._opening = False
        return True

    def close(self, took: int, calls: int) -> Window | None:
        """Close the window of a step that took so long and had so many calls; return None where its rows
        cannot be had.
        """
        if self._profiler is None or self._captures > 0 or self._is_capturing():
            self._forget()
            return None
        self.owner = None
        window = self._profiler.stop()
        self._duty.budget = max(LEAST, TOGETHER - (STEP_NS + CALL_NS * calls) / (self._plain or took or 1))
        self._duty.add_window(now(), self._profiler.overhead_ns, took)
        return window

    @property
    def overhead_ns(self) -> int:
        """What the handling of the last window took."""
        return self._profiler.overhead_ns if self._profiler else 0

    def add_plain_step(self, took: int) -> None:
        """Take the duration of a step without a window: what a step takes by itself."""
        self._plain = took
        self._duty.add_plain_step(took)

    def drop(self) -> None:
        """End the window that is open, if there is one; nobody will read it."""
        if self.owner is not None and self._profiler is not None:
            if self._is_elsewhere() or self._is_capturing():
                self._forget()
            else:
                self.owner = None
                self._profiler.abandon()

    def forget_after_fork(self) -> None:
        """Let go of what belongs to the parent process; its profiler does not begin anew in a child."""
        self._captures, self.owner, self._profiler, self._blocked = 0, None, None, True

    def _forget(self) -> None:
        """Leave a window as it is and open no other: to end it now would harm the program."""
        if self.owner is not None:
            self.owner, self._profiler, self._blocked = None, None, True

    def _is_untimely(self) -> bool:
        enabled = getattr(self._torch._C._autograd, "_profiler_enabled", None)
        is_busy = self._captures > 0 or self._is_capturing() or bool(enabled and enabled())
        return is_busy or self._is_elsewhere()

    def _is_elsewhere(self) -> bool:
        return threading.get_ident() != self._thread

    def _is_capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        with suppress(AttributeError):
            cuda = self._torch.cuda
            return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
        return False
