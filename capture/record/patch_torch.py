"""Patch torch in place, so that an unmodified PyTorch program is recorded.

`bootstrap` calls `install` after torch is imported. Every wrapper passes the arguments, result and error of
the original through. torch.compile never traces the wrappers: their frames are skipped, and inside compiled
code modules are called directly. All patches can be undone.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import builtins
import functools
import sys
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..native.emit import now
from .call_stack import SKIP
from .fault_guard import hide_frame
from .patches import Patches, close_at_exit, run_before, show_as
from .program_recorder import ProgramRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType


def install(torch: Any, patches: Patches | None = None, *, late: bool = False) -> ProgramRecorder:
    """Record everything that this process does with torch, until it ends or the patches are undone.

    `late` is set if the program runs already: module calls in progress are left alone. Returns the recorder.
    """
    recorder, patches = ProgramRecorder(torch, late=late), patches or Patches()
    _wrap_modules(torch, recorder, patches)
    training = _hook_training if late else _wrap_training
    for wrap in (training, _wrap_data, _wrap_profilers, _wrap_captures, _wrap_replays, _wrap_compiled):
        with suppress(AttributeError):  # a torch without this feature has nothing to patch
            wrap(torch, recorder, patches)
    close_at_exit(recorder, patches)
    return recorder


def _wrap_modules(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    kind, original = torch.nn.Module, torch.nn.Module.__call__
    is_traced = getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", None)
    # what torch's own wrapper does is done here, so that a call has no frame more than without us
    is_torchs = original is vars(kind).get("_wrapped_call_impl") and hasattr(kind, "_compiled_call_impl")
    names = {
        "__builtins__": builtins, "SKIP": SKIP, "now": now, "hide_frame": hide_frame, "recorder": recorder,
        "of_thread": recorder.thread_locals, "is_traced": is_traced or recorder.shared.is_compiling,
        "original": original, "is_torchs": is_torchs, "log": [], "code": recorder.call_code,
        "layers": recorder.shared.names.layers if recorder.shared.detail == "layers" else None,
        "numbered": recorder.shared.names.numbered_layers,
    }  # fmt: skip
    wrapper, *others = (FunctionType(each.__code__, names) for each in (_call, _call_logged, _call_layer))
    functools.update_wrapper(wrapper, original)  # the same signature
    wrapper.__qualname__ = kind.__qualname__ + ".__call__"  # by which pickle finds it; its name is torch's
    vars(wrapper).pop("__wrapped__")
    for each in (wrapper, *others):
        if is_torchs:
            show_as(each, original.__code__)
        _hide_from_compiler(each)
    recorder.set_call_codes(original.__code__, wrapper.__code__)
    if is_torchs and "torch._dynamo" not in sys.modules:  # else it may trace a shorter code
        recorder.call_code.set_function(wrapper, original.__code__, *(each.__code__ for each in others))
    patches.replace(kind, "__call__", wrapper)


# globals of the three functions below, whose code runs with the `names` above
_SET_THERE: Any = None
of_thread = is_traced = original = recorder = log = code = layers = numbered = is_torchs = _SET_THERE


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a module. No closure: while no call is to be noted, the code of torch takes the place of this."""
    call, is_plain = None, is_torchs and self._compiled_call_impl is None
    own_log: Any = SKIP if recorder.is_off or is_traced() else of_thread.log
    try:
        if own_log is None:
            own_log, call = SKIP, recorder.enter_module(self, args, kwargs)
        elif layers is not None and id(self) not in layers:
            own_log = SKIP
        if own_log is not SKIP:
            own_log += self, now()
        result = self._call_impl(*args, **kwargs) if is_plain else original(self, *args, **kwargs)
        if own_log is not SKIP:
            own_log += self, -now()
        elif call is not None:
            recorder.leave(call)
        return result
    except BaseException as error:
        hide_frame(error, is_ours=not is_plain)  # else it stands for torch's
        recorder.leave_by_error(call, self, own_log)
        raise


def _call_logged(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a module within another on the only thread, noted in its log."""
    try:
        log.append(self)
        log.append(now())
        result = (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
        log.append(self)
        log.append(-now())
        return result
    except BaseException:
        recorder.leave_by_error(None, self, log)
        raise


def _call_layer(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Likewise, but only of a layer or of what is in none."""
    is_layer, is_last = id(self) in layers, id(self) in numbered
    try:
        if is_layer:
            if is_last:
                code.begin_layer()
            log.append(self)
            log.append(now())
        result = (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
        if is_layer:
            log.append(self)
            log.append(-now())
            if is_last:
                code.end_layer()
        return result
    except BaseException:
        if is_layer:
            if is_last:
                code.end_layer()
            recorder.leave_by_error(None, self, log)
        raise


def _wrap_training(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    _wrap_backward(torch, recorder, patches)
    optimizer = torch.optim.Optimizer

    def note_optimizer() -> None:
        recorder.shared.has_optimizer = recorder.shared.is_training = True

    patches.replace(optimizer, "__init__", run_before(note_optimizer, optimizer.__init__, recorder))
    step_hook = _wrap_step_hook(optimizer.profile_hook_step, recorder)
    patches.replace(optimizer, "profile_hook_step", staticmethod(step_hook))


def _hook_training(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    """Record optimizers that exist already: their `step` is wrapped by torch, so hooks are used."""
    _wrap_backward(torch, recorder, patches)
    optim = sys.modules[torch.optim.Optimizer.__module__]
    waiting = list(optim.Optimizer.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if getattr(vars(kind).get("step"), "hooked", False):  # torch hooks the class with its first instance
            recorder.shared.has_optimizer = recorder.shared.is_training = True
    calls: dict[int, Any] = {}  # of optimizers in progress, by id

    def start_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not recorder.is_off:
            calls[id(optimizer)] = recorder.enter_part("optimizer")

    def end_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        recorder.leave(calls.pop(id(optimizer), None), "optimizer")

    patches.add_undo(optim.register_optimizer_step_pre_hook(start_step).remove)
    patches.add_undo(optim.register_optimizer_step_post_hook(end_step).remove)


def _wrap_backward(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    for name in ("backward", "grad"):
        wrapper = _wrap_as_part("backward", getattr(torch.autograd, name), recorder)
        patches.replace(torch.autograd, name, wrapper)


def _wrap_step_hook(original: Callable[..., Any], recorder: ProgramRecorder) -> Callable[..., Any]:
    """Return torch's wrapper for the `step` of optimizer classes, with our timing around it."""

    @functools.wraps(original)
    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        return _wrap_as_part("optimizer", original(step), recorder)

    return profile_hook_step


def _wrap_data(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    patches.replace(loader, "__next__", _wrap_as_part("data", loader.__next__, recorder))


def _wrap_as_part(part: str, original: Callable[..., Any], recorder: ProgramRecorder) -> Callable[..., Any]:
    """Return a function whose calls are recorded as this part of the program."""
    is_compiling = recorder.shared.is_compiling

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        call, is_recorded = None, not (recorder.is_off or is_compiling())
        try:
            call = recorder.enter_part(part) if is_recorded else None
            result = original(*args, **kwargs)
            if is_recorded:
                recorder.leave(call, part)
            return result
        except BaseException as error:
            hide_frame(error)
            if is_recorded:
                recorder.leave_by_error(call)
            raise

    recorder.add_wrapper(timed)
    _hide_from_compiler(timed)
    return timed


def _wrap_profilers(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    """Open no more profiler windows once the program creates a profiler, and note when that one is on."""
    profiler, block = torch.autograd.profiler, recorder.shared.windows.block_windows
    for kind, method in ((profiler.profile, "__init__"), (profiler.emit_nvtx, "__enter__")):
        patches.replace(kind, method, run_before(block, getattr(kind, method), recorder))
    for name, is_begin in (("_enable_profiler", True), ("_disable_profiler", False)):
        patches.replace(profiler, name, _wrap_switch(getattr(profiler, name), recorder, is_begin=is_begin))


def _wrap_switch(original: Callable[..., Any], recorder: ProgramRecorder, *, is_begin: bool) -> Any:
    """Return a function that starts or stops the profiler of torch, and notes it unless it is one of ours."""
    windows, recording = recorder.shared.windows, recorder.shared.recording

    @functools.wraps(original)
    def switch(*args: Any, **kwargs: Any) -> Any:
        at = now()
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        if not windows.is_opening:
            recorder.guard(lambda: recording.note_profile(at, is_begin=is_begin))
        return result

    return switch


def _wrap_captures(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    """Close profiler windows during CUDA-graph captures."""
    graph, shared = torch.cuda.CUDAGraph, recorder.shared
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.guard(shared.windows.begin_capture)
        try:
            result = begin(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        recorder.guard(lambda: shared.graphs.begin_capture(self))
        recorder.report_each_call()
        return result

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.guard(shared.windows.end_capture)
        recorder.guard(lambda: shared.graphs.end_capture(self))
        try:
            return end(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    patches.replace(graph, "capture_begin", capture_begin)
    patches.replace(graph, "capture_end", capture_end)


def _wrap_replays(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    """Record replays of CUDA graphs as calls of the captured module."""
    graph = torch.cuda.CUDAGraph
    replay = graph.replay

    @functools.wraps(replay)
    def replay_graph(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = None
        try:
            call = None if recorder.is_off else recorder.enter_replay(self)
            result = replay(self, *args, **kwargs)
            recorder.leave(call)
            return result
        except BaseException as error:
            hide_frame(error)
            recorder.leave_by_error(call)
            raise

    recorder.add_wrapper(replay_graph)
    patches.replace(graph, "replay", replay_graph)


def _wrap_compiled(torch: Any, recorder: ProgramRecorder, patches: Patches) -> None:
    """Record calls of compiled functions that call a model, by the hooks that torch runs around them."""
    wrapped: list[Any] = []

    def note_call() -> Callable[[], None]:
        frame: Any = sys._getframe(1)
        while frame is not None and "kwargs" not in frame.f_code.co_varnames:  # of a comprehension
            frame = frame.f_back
        names = {} if frame is None else frame.f_locals
        leave: Callable[[], None] | None = None
        with suppress(KeyError):  # another version of torch
            leave = recorder.enter_compiled(names["fn"], names["args"], names["kwargs"])
        return leave or _do_nothing

    def wrap_contexts() -> None:
        from torch._dynamo.eval_frame import _TorchDynamoContext as Context

        if wrapped:
            return
        wrapped.append(Context)
        begin = Context.__init__

        @functools.wraps(begin)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            begin(self, *args, **kwargs)
            self.enter_exit_hooks.append(note_call)

        patches.replace(Context, "__init__", __init__)

    patches.replace(torch, "compile", run_before(wrap_contexts, torch.compile, recorder))


def _do_nothing() -> None:
    """End the call of a compiled function that is not recorded."""


def _hide_from_compiler(wrapper: Any) -> None:
    """Make torch.compile skip the frame of a wrapper, but not the functions that it calls.

    Functions of our own modules are skipped entirely. A torch without a compiler needs nothing.
    """
    with suppress(AttributeError, ImportError):
        from torch._C import _dynamo

        eval_frame: Any = _dynamo.eval_frame
        if hasattr(eval_frame, "set_code_exec_strategy"):
            action, strategy = eval_frame._FrameAction, eval_frame._FrameExecStrategy
            eval_frame.set_code_exec_strategy(wrapper.__code__, strategy(action.SKIP, action.DEFAULT))
            for code in _list_own_codes():
                eval_frame.set_code_exec_strategy(code, strategy(action.SKIP, action.SKIP))
        else:
            for code in (wrapper.__code__, *_list_own_codes()):
                eval_frame.skip_code(code)


@functools.lru_cache(maxsize=None)
def _list_own_codes() -> tuple[CodeType, ...]:
    """Return the code of all functions of our loaded modules, except the wrappers in this one."""
    package = __name__.partition(".")[0] + "."
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(package) and name != __name__]
    return tuple(code for module in modules for value in vars(module).values() for code in _iter_codes(value))


def _iter_codes(value: Any) -> Iterator[CodeType]:
    if isinstance(value, type):
        for inner in vars(value).values():
            yield from _iter_codes(getattr(inner, "fget", None) or getattr(inner, "__func__", None) or inner)
    elif hasattr(value, "__code__"):
        yield value.__code__
