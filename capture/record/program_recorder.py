"""Record a PyTorch program: its threads, the steps that they make, and its end.

An error in here ends the recording with one line, never the program.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import sys
import threading
import time
import weakref
from _thread import _count as _count_threads
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import WRITE_INTERVAL_NS, now
from . import process_notes
from .call_stack import SKIP, ModuleCall
from .fault_guard import FaultGuard
from .patches import run_before
from .process_state import ProcessState
from .step_module import find_called_module
from .thread_recorder import ThreadRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

# modules whose threads call no modules of torch
_HARMLESS_THREADS: Final = ("tqdm.", "multiprocessing.queues", "ipykernel.", "wandb.")
SETTLE_S: Final = 0.02  # in which threads leave our wrappers


class _Token:
    """An object that lives as long as its thread."""

    __slots__ = ("__weakref__",)


class _ThreadLocals(threading.local):
    """Recorder of the thread, and the log for calls within another module, if one is open."""

    recorder: ThreadRecorder | None = None
    token: _Token | None = None
    log: list[Any] | None = None
    is_in_compiled = False  # whether in a compiled function that is noted as a call of its model


class CallCode:
    """The code of `nn.Module.__call__`, which is a shorter one while no more is needed.

    What our own code touches between the kernels of a model is out of the caches each time. So it gives way
    to torch's within a call whose inner calls have no rows. That is possible only while no other thread
    can call modules: a thread that a module starts is not recorded until the call that started it ends.
    """

    def __init__(self, thread_locals: _ThreadLocals) -> None:
        self._locals = thread_locals
        self._function: Any = None  # None where torch's own wrapper is not the one that is replaced
        self._inner: CodeType | None = None  # within the call in progress
        self._thread_count, self._known_until = -1, 0  # since it was last found out who may call modules
        self._is_alone = False

    def set_function(self, function: Any, torchs: CodeType, logged: CodeType, layer: CodeType) -> None:
        """Set the function whose code changes, and the shorter ones."""
        if getattr(sys, "_is_gil_enabled", bool)() or not hasattr(sys, "_is_gil_enabled"):
            self._function, self._general = function, function.__code__
            self._torchs = torchs
            self._watching = logged if function.__globals__["layers"] is None else layer

    def shorten(self, recorder: ThreadRecorder, log: list[Any] | None, *, is_alone: bool) -> None:
        """Note calls within the one that was entered in this log, by the shortest code that does."""
        if _count_threads() != self._thread_count or now() >= self._known_until:
            self._find_alone(recorder)
        if is_alone and log is not None and self._is_alone:
            self._inner = self._function.__code__ = self._torchs if log is SKIP else self._watching
        else:
            self.restore()
            self._locals.log = log

    def begin_layer(self) -> None:
        """Note no calls within a layer."""
        if self._inner is not None:
            self._function.__code__ = self._torchs

    def end_layer(self) -> None:
        """Note calls again after a layer."""
        if self._inner is not None:
            self._function.__code__ = self._inner

    def restore(self) -> bool:
        """End the use of shorter code; return whether it was in use."""
        if self._inner is None:
            return False
        self._inner, self._function.__code__ = None, self._general
        return True

    def look_again(self) -> None:
        """Find out anew who may call modules, with the next call."""
        self._thread_count = -1

    def _find_alone(self, recorder: ThreadRecorder) -> None:
        """Find out whether no other thread can call modules."""
        self._thread_count, self._known_until = _count_threads(), now() + WRITE_INTERVAL_NS
        if self._function is not None:
            others = sys._current_frames().keys() - {threading.get_ident()}
            self._is_alone = all(_find_module_name(each).startswith(_HARMLESS_THREADS) for each in others)
            self._function.__globals__["log"] = recorder.stack.log


def _find_module_name(ident: int) -> str:
    """Return the module of what a thread runs; none of one that C++ has started. No lock is taken."""
    thread = getattr(threading, "_active", {}).get(ident)
    target = getattr(thread, "_target", None)
    return "" if thread is None else str(getattr(target or type(thread), "__module__", ""))


class RecordedThreads(FaultGuard):
    """The recorders of the threads of a process, each made with the first call on its thread."""

    def __init__(self, torch: Any, *, late: bool = False) -> None:
        self.shared = ProcessState(torch, threading.main_thread().ident if late else None)
        super().__init__(self.shared.recording)
        self._is_late = late  # whether modules may have been called before
        self._call_codes: tuple[CodeType | None, CodeType | None] = None, None
        self._wrapper_codes: set[CodeType] = set()  # of what notes the begin and the end of a call
        self.thread_locals = _ThreadLocals()
        self.call_code = CallCode(self.thread_locals)
        self._lock = threading.RLock()
        self._threads: list[ThreadRecorder] = []
        self._tokens: dict[int, tuple[weakref.ref[_Token], ThreadRecorder]] = {}
        self._free: list[ThreadRecorder] = []  # recorders of ended threads

    def set_call_codes(self, torch_code: CodeType, wrapper_code: CodeType) -> None:
        """Set the code objects of a module call: torch's own, and our wrapper."""
        self._call_codes = torch_code, wrapper_code
        self._wrapper_codes.add(wrapper_code)

    def _begin_thread(self, module: Any) -> ThreadRecorder | None:
        """Return the recorder of this thread, or None until a module with parameters is called."""
        if self._is_late and self._is_inside_call():
            return None
        if self.shared.recording.emitter is None:
            if not self.shared.names.measure_size(module):
                return None
            if not self.shared.recording.open(module):
                self.is_off = True
                return None
            self._watch_results()
        token = _Token()
        with self._lock:
            self._reclaim_thread_recorders()
            recorder = self._free.pop() if self._free else self._create_thread_recorder()
            self._tokens[id(token)] = weakref.ref(token), recorder
        self.thread_locals.token, self.thread_locals.recorder = token, recorder
        return recorder

    def _is_inside_call(self) -> bool:
        """Return whether this thread is inside a module call that began before we attached."""
        torch_code, wrapper_code = self._call_codes
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            caller = frame.f_back
            if frame.f_code is torch_code and (caller is None or caller.f_code is not wrapper_code):
                return True
            frame = caller
        return False

    def _create_thread_recorder(self) -> ThreadRecorder:
        track = f"thread {len(self._threads) + 1}" if self._threads else None
        self._threads.append(ThreadRecorder(self.shared, track))
        return self._threads[-1]

    def _reclaim_thread_recorders(self) -> None:
        """Reclaim the recorders of ended threads, for reuse by new threads."""
        for key, (token, recorder) in list(self._tokens.items()):
            if token() is None:
                del self._tokens[key]
                recorder.close(None)
                self._free.append(recorder)

    def _watch_results(self) -> None:
        """In a worker of a pool, write all steps before each result: the pool ends it by SIGTERM.

        A handler of that signal would not do: Python may run it only after a wait that never ends.
        """
        process, connection = map(sys.modules.get, ("multiprocessing.process", "multiprocessing.connection"))
        if process is None or connection is None or "PoolWorker" not in process.current_process().name:
            return
        kind = connection.Connection
        kind.send_bytes = run_before(self._end_task, kind.send_bytes, self)

    def _end_task(self) -> None:
        recorder = self.thread_locals.recorder
        if recorder is not None:
            recorder.close(None)
            self.shared.recording.report_so_far()


class ProgramRecorder(RecordedThreads):
    """Receives the calls of all threads of a process and records them."""

    def add_wrapper(self, wrapper: Any) -> None:
        """Add a function that notes the begin and the end of the calls of another."""
        self._wrapper_codes.add(wrapper.__code__)

    def enter_module(self, module: Any, args: Any, kwargs: Any) -> ModuleCall | None:
        """Note the call of a module; pass the result to `leave` when it is over."""
        try:
            recorder = self.thread_locals.recorder
            if recorder is not None:
                call = recorder.enter_again(module, args, kwargs)
                if call is not None:
                    self.call_code.shorten(recorder, recorder.log_again, is_alone=len(self._threads) == 1)
                    return call
                recorder.catch_up()
            if self.shared.is_compiling():
                return None
            if recorder is not None and recorder.stack.module_count:
                call = recorder.enter_inner(module, args, kwargs)
            elif self.shared.is_traced() or self._is_compiled_part(module):
                return None
            else:
                begun = 0
                if recorder is None:
                    begun = now()  # a program's own clock has the time that we take to begin
                    with self.shared.bypass_torch_functions():
                        recorder = self._begin_thread(module)
                if recorder is None:
                    return None
                call = recorder.enter_outermost(module, args, kwargs, begun)
            self.call_code.shorten(recorder, recorder.open_log(), is_alone=len(self._threads) == 1)
            return call
        except BaseException as e:
            self.stop_recording(e)
        return None

    def _is_compiled_part(self, module: Any) -> bool:
        """Return whether a module is a graph that compiled code calls: some backends make one of it."""
        if not self.thread_locals.is_in_compiled:
            return False
        with self.shared.bypass_torch_functions():
            return not self.shared.names.measure_size(module)

    def enter_compiled(self, fn: Any, args: Any, kwargs: Any) -> Callable[[], None] | None:
        """Note the call of a compiled function that calls a model; return what notes its end, or None.

        The function is the call of the model, if no other is seen in it: compiled code makes none.
        """
        leave: list[Callable[[], None]] = []
        self.guard(lambda: leave.extend(self._begin_compiled(fn, args, kwargs)))
        return leave[0] if leave else None

    def _begin_compiled(self, fn: Any, args: Any, kwargs: Any) -> Iterator[Callable[[], None]]:
        recorder = self.thread_locals.recorder
        is_inner = recorder is not None and recorder.is_in_call
        module = None if is_inner else find_called_module(fn, args, kwargs, self.shared.names.measure_size)
        if module is None:
            return
        if recorder is not None:
            recorder.forget_form()  # what runs in it is counted at once
        windows, forwards, error = self.shared.windows, self.shared.recording.forwards, sys.exc_info()[1]
        windows.begin_capture()  # what is in a window would be of the step before
        self.thread_locals.is_in_compiled = True
        start = now()

        def leave() -> None:
            self.thread_locals.is_in_compiled = False
            if self.shared.recording.forwards == forwards and sys.exc_info()[1] is error:
                self._add_call(module, args, kwargs, start)
            windows.end_capture()

        yield lambda: self.guard(leave)

    def _add_call(self, module: Any, args: Any, kwargs: Any, start: int) -> None:
        """Add a top-level call of a module that began at `start` and ends now."""
        with self.shared.bypass_torch_functions():
            recorder = self.thread_locals.recorder or self._begin_thread(module)
        if recorder is not None:
            call = recorder.enter_outermost(module, args, kwargs, start, is_compiled=True)
            call.start = start
            recorder.leave(call)

    def enter_replay(self, graph: Any) -> ModuleCall | None:
        """Note the replay of a graph; pass the result to `leave` when it is over."""
        try:
            recorder = self.thread_locals.recorder
            record = self.shared.graphs.find_record(graph)
            step_module = None if record is None else record.root()
            if recorder is None and step_module is not None:
                with self.shared.bypass_torch_functions():
                    recorder = self._begin_thread(step_module)
            return None if recorder is None else recorder.enter_replay(step_module, record)
        except BaseException as e:
            self.stop_recording(e)
        return None

    def enter_part(self, part: str) -> ModuleCall | None:
        """Note that a thread which called modules runs backward, the optimizer or data loading."""
        try:
            recorder = self.thread_locals.recorder
            self.shared.is_training = self.shared.is_training or part in ("backward", "optimizer")
            return None if recorder is None or self.is_off else recorder.enter_part(part)
        except BaseException as e:
            self.stop_recording(e)
        return None

    def leave(self, call: ModuleCall | None, part: str = "") -> None:
        """Note the end of a call; a part may have begun before any module was called."""
        if self.is_off:
            self.call_code.restore()
            return
        try:
            if call is not None:
                if not call.recorder.leave_again(call):
                    call.recorder.leave(call)
                if not (call.recorder.stack.module_count or self.call_code.restore()):
                    self.thread_locals.log = None
            elif part and (recorder := self.thread_locals.recorder) is not None:
                recorder.note_part(part)
        except BaseException as e:
            self.stop_recording(e)

    def leave_by_error(
        self, call: ModuleCall | None, module: Any = None, log: list[Any] | None = None
    ) -> None:
        """Note that an error ends a call, which may be in a log, and forget calls whose end was not noted.

        The handler of a signal may raise an error anywhere, also between a call and the note of its end.
        Without a wrapper of ours on the stack of the thread no call is open.
        """
        if log:
            log += module, -now()
        recorder = self.thread_locals.recorder
        if recorder is not None and not self.is_off:
            self.guard(recorder.catch_up)
        if call is not None:
            call.has_failed = True
            self.leave(call)
        if recorder is None or not recorder.stack.calls:
            return
        frame: FrameType | None = sys._getframe(1).f_back
        while frame is not None and frame.f_code not in self._wrapper_codes:
            frame = frame.f_back
        if frame is None:
            self._forget_open_calls()

    def close(self) -> None:
        """End the recording with the process."""
        if self.is_off:
            return
        with suppress(Exception):
            self.shared.windows.drop_window()
        for recorder in list(self._threads):
            with suppress(Exception):
                recorder.close(now())
        self.is_off = True
        with suppress(Exception):
            self.shared.recording.close()

    def stop(self) -> None:
        """Stop recording, from a thread of our own; steps in progress are dropped.

        An open profiler window can only be closed by its own thread, so this waits for the next call of that.
        """
        windows = self.shared.windows
        windows.stop_opening()
        time.sleep(SETTLE_S)
        while windows.owner is not None and not self.is_off:
            time.sleep(SETTLE_S / 4)
        self.is_off = True
        time.sleep(SETTLE_S)
        for recorder in list(self._threads):
            with suppress(Exception):
                recorder.flush()
        self.shared.recording.close()

    def forget_after_fork(self) -> None:
        """Reset in a forked child."""
        self.call_code.restore()
        self.call_code.look_again()
        self.thread_locals.recorder = self.thread_locals.token = self.thread_locals.log = None
        self._lock = threading.RLock()
        self._threads, self._free, self._tokens = [], [], {}
        self.shared.recording.forget_after_fork()
        self.shared.windows.forget_after_fork()
        self.shared.graphs.forget_after_fork()
        if not self.is_off:
            process_notes.append_note(f"torch {self.shared.torch.__version__} forked")

    def report_each_call(self) -> None:
        """Have each call within the one in progress on this thread reported at once."""
        self.call_code.restore()
        self.thread_locals.log = None
        if self.thread_locals.recorder is not None:
            self.guard(self.thread_locals.recorder.catch_up)

    def _forget_open_calls(self) -> None:
        self.call_code.restore()
        recorder, self.thread_locals.log = self.thread_locals.recorder, None
        if recorder is not None:
            recorder.catch_up()
            recorder.stack.clear()
            recorder.drop_failed_step()

    def _drop_open_work(self) -> None:
        self.shared.windows.drop_window()
