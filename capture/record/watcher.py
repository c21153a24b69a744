"""Watches a PyTorch program: what its threads do, the steps this makes, and its own end.

A fault in here ends the watching with one line, never the program.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import now
from . import account
from .calls import Call
from .guard import Guarded
from .shared import Shared
from .thread import ThreadWatch

if TYPE_CHECKING:
    from types import CodeType, FrameType

SETTLE_S: Final = 0.02  # in which a thread leaves what it has entered of ours


class _Token:
    """Lives as long as its thread."""

    __slots__ = ("__weakref__",)


class _OfThread(threading.local):
    """What belongs to a thread. Calls of modules within another one go into the log, where there is one."""

    watch: ThreadWatch | None = None
    token: _Token | None = None
    log: list[Any] | None = None


class Watcher(Guarded):
    """Is told what a process does, thread by thread, and has it written."""

    def __init__(self, torch: Any, *, late: bool = False) -> None:
        self.shared = Shared(torch, threading.main_thread().ident if late else None)
        super().__init__(self.shared.recording)
        self._late = late  # whether modules were called before it was there
        self._call: tuple[CodeType | None, CodeType | None] = None, None
        self.of_thread = _OfThread()
        self._lock = threading.RLock()
        self._threads: list[ThreadWatch] = []
        self._tokens: dict[int, tuple[weakref.ref[_Token], ThreadWatch]] = {}
        self._free: list[ThreadWatch] = []  # of threads that have ended

    def set_call(self, plain: CodeType, ours: CodeType) -> None:
        """Take the code that calls a module, without us and with us around it."""
        self._call = plain, ours

    def enter_module(self, module: Any, args: Any, kwargs: Any) -> Call | None:
        """Note that a module is called; the call goes to `leave` when it is over."""
        try:
            watch = self.of_thread.watch
            if watch is not None and watch.stack.modules:
                call = watch.enter_inner(module, args, kwargs)
            elif self.shared.is_traced():
                return None
            else:
                if watch is None:
                    with self.shared.unseen():
                        watch = self._begin_thread(module)
                if watch is None:
                    return None
                call = watch.enter_outermost(module, args, kwargs)
            self.of_thread.log = watch.open_log()
            return call
        except Exception as e:
            self.let_go(e)
        return None

    def enter_replay(self, graph: Any) -> Call | None:
        """Note that a graph is replayed; the call goes to `leave` when it is over."""
        try:
            watch = self.of_thread.watch
            known = self.shared.graphs.of(graph)
            root = None if known is None else known.root()
            if watch is None and root is not None:
                with self.shared.unseen():
                    watch = self._begin_thread(root)
            return None if watch is None else watch.enter_replay(root, known)
        except Exception as e:
            self.let_go(e)
        return None

    def enter_part(self, part: str) -> Call | None:
        """Note that a thread which called modules goes backward, or into the optimizer or its data."""
        try:
            watch = self.of_thread.watch
            self.shared.trains = self.shared.trains or part in ("backward", "optimizer")
            return None if watch is None or self.off else watch.enter_part(part)
        except Exception as e:
            self.let_go(e)
        return None

    def leave(self, call: Call | None, part: str = "") -> None:
        """Note that a call is over; that of a part may have begun before any module was called."""
        if self.off:
            return
        try:
            if call is not None:
                call.watch.leave(call)
                if not call.watch.stack.modules:
                    self.of_thread.log = None
            elif part and (watch := self.of_thread.watch) is not None:
                watch.note_part(part)
        except Exception as e:
            self.let_go(e)

    def close(self) -> None:
        """End the recording with the process; nothing is watched afterwards."""
        if self.off:
            return
        with suppress(Exception):
            self.shared.windows.drop()
        for watch in list(self._threads):
            with suppress(Exception):
                watch.close(now())
        self.off = True
        with suppress(Exception):
            self.shared.recording.close()

    def stop(self) -> None:
        """Watch no more, from a thread of our own; steps that have not ended are left out.

        A profiler window can be ended only by the thread that began it: this waits for its next call.
        """
        windows = self.shared.windows
        windows.open_no_more()
        time.sleep(SETTLE_S)
        while windows.owner is not None and not self.off:
            time.sleep(SETTLE_S / 4)
        self.off = True
        time.sleep(SETTLE_S)
        for watch in list(self._threads):
            with suppress(Exception):
                watch.settle()
        self.shared.recording.close()

    def forget_after_fork(self) -> None:
        """Begin anew in a forked child."""
        self.of_thread.watch = self.of_thread.token = self.of_thread.log = None
        self._lock = threading.RLock()
        self._threads, self._free, self._tokens = [], [], {}
        self.shared.recording.forget_after_fork()
        self.shared.windows.forget_after_fork()
        self.shared.graphs.forget_after_fork()
        if not self.off:
            account.note(f"torch {self.shared.torch.__version__} forked")

    def _drop(self) -> None:
        self.shared.windows.drop()

    def _begin_thread(self, module: Any) -> ThreadWatch | None:
        """Return the watch of this thread; None for as long as no module with parameters was called."""
        if self._late and self._is_within_a_call():
            return None
        if self.shared.recording.emitter is None:
            if not self.shared.names.size(module):
                return None
            if not self.shared.recording.open(module):
                self.off = True
                return None
        token = _Token()
        with self._lock:
            self._take_back()
            watch = self._free.pop() if self._free else self._new_thread()
            self._tokens[id(token)] = weakref.ref(token), watch
        self.of_thread.token, self.of_thread.watch = token, watch
        return watch

    def _is_within_a_call(self) -> bool:
        """Return whether this thread is within a call of a module that began before we were there."""
        plain, ours = self._call
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            around = frame.f_back
            if frame.f_code is plain and (around is None or around.f_code is not ours):
                return True
            frame = around
        return False

    def _new_thread(self) -> ThreadWatch:
        number = len(self._threads) + 1
        watch = ThreadWatch(self.shared, None if number == 1 else f"thread {number}")
        self._threads.append(watch)
        return watch

    def _take_back(self) -> None:
        """Take back the watches of threads that have ended: the next thread goes on with one of them."""
        for key, (token, watch) in list(self._tokens.items()):
            if token() is None:
                del self._tokens[key]
                watch.close(None)
                self._free.append(watch)
