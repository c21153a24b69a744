"""Decide when a profiler window may open in a program that is unaware of it and may profile itself."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import os
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from ..native.emit import now
from .call_stack import ROW_COST_NS
from .profiler_windows import ProfilerWindow, WindowBudget, WindowProfiler

MAX_TOTAL_SHARE: Final = 0.02  # of the wall time, for the cost per step and for windows
MIN_WINDOW_SHARE: Final = 0.002  # for windows, if short steps use up everything else
STEP_COST_NS: Final = 25_000  # per step without a window, measured on a busy machine


def skip_exit_handlers() -> None:
    """End this forked child without the handlers of its parent for the end of a C program.

    One of them destroys what a thread of the profiler waits for, and waits for that thread for ever: only the
    parent has it. Handlers of the child itself run before, and what C buffered is written. glibc only.
    """
    with suppress(AttributeError, OSError, ImportError):
        import ctypes

        libc = ctypes.CDLL(None)
        for register in (libc.on_exit, libc["__cxa_atexit"]):
            register.argtypes = (ctypes.c_void_p,) * 3
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None, None)
        libc["__cxa_atexit"](ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


class WindowGate:
    """Opens one window at a time, on the thread that imported torch: the profiler cannot start on others.

    No window is open during a CUDA-graph capture, because opening or closing one synchronises the device,
    which would break the capture. None opens after the program created a profiler of its own. Windows use
    what the cost per step leaves of a budget, so they are rare if steps are short.
    """

    def __init__(self, torch: Any, thread: int | None = None) -> None:
        self._torch = torch
        self._budget = WindowBudget(MAX_TOTAL_SHARE)
        self._plain_step_ns = 0  # duration of the last step without a window
        self._profiler: WindowProfiler | None = None
        self.owner: object = None  # in whose step the window is open
        self._captures = 0
        self.is_opening = False  # whether the profiler that is being started is one of ours
        self._must_drop = False  # whether the open window is to be dropped
        self._thread = threading.get_ident() if thread is None else thread
        has_profiler = hasattr(getattr(torch, "_C", None), "_autograd")
        self._is_blocked = "KINETO_USE_DAEMON" in os.environ or not has_profiler

    def block_windows(self) -> None:
        """Open no more windows: the program has its own profiler, and only one can run."""
        if not self.is_opening:
            self._is_blocked = True
            self.drop_window()

    def stop_opening(self) -> None:
        """Open no more windows; the thread of an open one drops it with its next call."""
        self._is_blocked = self._must_drop = True

    def is_open(self, owner: object) -> bool:
        """Return whether a window is open in a step of this owner; asked at each call in it."""
        if self.owner is not owner:
            return False
        if self._must_drop:
            self.drop_window()
        return self.owner is owner

    def find_next_time(self, owner: object) -> int:
        """Return the time until which no window opens or is open in a step of this owner."""
        return 0 if self.owner is owner else sys.maxsize if self._is_blocked else self._budget.next_at

    def begin_capture(self) -> None:
        """Drop the open window, and open none until the graph capture is over."""
        self._captures += 1
        self.drop_window()

    def end_capture(self) -> None:
        """Note that the graph capture is over."""
        self._captures = max(0, self._captures - 1)

    def open_window(self, owner: object, *, gpu: bool) -> bool:
        """Open a window if one is due and allowed; return whether it is open."""
        if self._is_blocked or self.owner is not None:
            return False
        if not self._budget.is_due(now()) or self._is_untimely():
            return False
        self.is_opening = True
        try:
            self._profiler = self._profiler or WindowProfiler(gpu=gpu)
            self._profiler.start()
            self.owner = owner
        finally:
            self.is_opening = False
        return True

    def close_window(self, duration: int, calls: int) -> ProfilerWindow | None:
        """Close the window of a step with this duration and number of calls.

        Returns None if its rows are not available.
        """
        if self._profiler is None or self._captures > 0 or self._is_capturing():
            self._leave_open()
            return None
        self.owner = None
        window = self._profiler.stop()
        step_share = (STEP_COST_NS + ROW_COST_NS * calls) / (self._plain_step_ns or duration or 1)
        self._budget.budget = max(MIN_WINDOW_SHARE, MAX_TOTAL_SHARE - step_share)
        self._budget.add_window(now(), self._profiler.overhead_ns, duration)
        return window

    @property
    def overhead_ns(self) -> int:
        """Time taken by the handling of the last window."""
        return self._profiler.overhead_ns if self._profiler else 0

    def add_plain_step(self, duration: int) -> None:
        """Add the duration of a step without a window."""
        self._plain_step_ns = duration
        self._budget.add_plain_step(duration)

    def drop_window(self) -> None:
        """Close the open window, if any, without reading it."""
        if self.owner is not None and self._profiler is not None:
            if self._is_other_thread() or self._is_capturing():
                self._leave_open()
            else:
                self.owner = None
                self._profiler.discard()

    def forget_after_fork(self) -> None:
        """Forget the parent's profiler in a forked child, where it cannot be restarted."""
        if self._budget.windows or self.owner is not None:
            skip_exit_handlers()
        self._captures, self.owner, self._profiler, self._is_blocked = 0, None, None, True

    def _leave_open(self) -> None:
        """Leave a window open and open no other: closing it now would harm the program."""
        if self.owner is not None:
            self.owner, self._profiler, self._is_blocked = None, None, True

    def _is_untimely(self) -> bool:
        enabled = getattr(self._torch._C._autograd, "_profiler_enabled", None)
        is_busy = self._captures > 0 or self._is_capturing() or bool(enabled and enabled())
        return is_busy or self._is_other_thread()

    def _is_other_thread(self) -> bool:
        return threading.get_ident() != self._thread

    def _is_capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        with suppress(AttributeError):
            cuda = self._torch.cuda
            return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
        return False
