"""Attaches to a plain PyTorch program without an edit of it: wraps the places of torch that it goes through.

`bootstrap.py` calls `install` once torch has been imported. Every wrapper calls what it wraps with the same
arguments and passes on its result or error. torch.compile never sees them: the frames are left out of its
tracing, and in what is compiled modules are called without us. All of it can be taken back.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import atexit
import functools
import os
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..native.emit import now
from .watcher import Watcher
from .wraps import Wraps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType


def install(torch: Any, wraps: Wraps | None = None, *, late: bool = False) -> Watcher:
    """Watch all that this process does with torch, until it ends or `wraps` are taken back.

    Return the watcher. `late` when the program runs already: calls of modules that have begun are left alone.
    """
    watcher, wraps = Watcher(torch, late=late), wraps or Wraps()
    _wrap_modules(torch, watcher, wraps)
    for wrap in (_hook_training if late else _wrap_training, _wrap_data, _wrap_profilers, _wrap_captures):
        with suppress(AttributeError):  # a torch that lacks the place has nothing to be seen there
            wrap(torch, watcher, wraps)
    wrap_ends(watcher, wraps)
    return watcher


def _wrap_modules(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    kind = torch.nn.Module
    plain = kind.__call__
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or bool
    enter, leave, of_thread = watcher.enter_module, watcher.leave, watcher.of_thread

    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if watcher.off or is_compiling():
            return plain(self, *args, **kwargs)
        log = of_thread.log
        if log is not None:  # most calls, by far: they cost what these few lines cost
            log += self, now()
            try:
                return plain(self, *args, **kwargs)
            finally:
                log += self, -now()
        call = enter(self, args, kwargs)
        try:
            return plain(self, *args, **kwargs)
        finally:
            leave(call)

    _wrapped_call_impl.__qualname__ = getattr(plain, "__qualname__", "Module._wrapped_call_impl")
    _hide_from_compiler(_wrapped_call_impl)
    watcher.set_call(plain.__code__, _wrapped_call_impl.__code__)
    wraps.put(kind, "__call__", _wrapped_call_impl)


def _wrap_training(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    _wrap_backward(torch, watcher, wraps)
    optimizer = torch.optim.Optimizer
    begin = optimizer.__init__

    @functools.wraps(begin)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - the name of what it wraps
        watcher.shared.has_optimizer = watcher.shared.trains = True
        begin(self, *args, **kwargs)

    wraps.put(optimizer, "__init__", __init__)
    wraps.put(
        optimizer, "profile_hook_step", staticmethod(_hooked_step(optimizer.profile_hook_step, watcher))
    )


def _hook_training(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    """Watch optimizers that were made before: their steps are wrapped already, hooks reach them."""
    _wrap_backward(torch, watcher, wraps)
    optim = sys.modules[torch.optim.Optimizer.__module__]
    waiting = list(optim.Optimizer.__subclasses__())
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if getattr(vars(kind).get("step"), "hooked", False):  # one of this class has been made
            watcher.shared.has_optimizer = watcher.shared.trains = True
    calls: dict[int, Any] = {}  # of optimizers that are at work

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not watcher.off:
            calls[id(optimizer)] = watcher.enter_part("optimizer")

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        watcher.leave(calls.pop(id(optimizer), None), "optimizer")

    wraps.later(optim.register_optimizer_step_pre_hook(before).remove)
    wraps.later(optim.register_optimizer_step_post_hook(after).remove)


def _wrap_backward(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    for name in ("backward", "grad"):
        wraps.put(torch.autograd, name, _as_part("backward", getattr(torch.autograd, name), watcher))


def _hooked_step(plain: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    """Return what torch wraps the `step` of every class of optimizers with, with our part around it."""

    @functools.wraps(plain)
    def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
        return _as_part("optimizer", plain(step), watcher)

    return profile_hook_step


def _wrap_data(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    wraps.put(loader, "__next__", _as_part("data", loader.__next__, watcher))


def _as_part(part: str, plain: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    """Return a function with its time noted as this part of the program."""
    torch = watcher.shared.torch
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or bool

    @functools.wraps(plain)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if watcher.off or is_compiling():
            return plain(*args, **kwargs)
        call = watcher.enter_part(part)
        try:
            return plain(*args, **kwargs)
        finally:
            watcher.leave(call, part)

    _hide_from_compiler(noted)
    return noted


def _wrap_profilers(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    """Have windows make room for any profiler of the program's own, as soon as there is one."""
    profiler = torch.autograd.profiler
    for kind, method in ((profiler.profile, "__init__"), (profiler.emit_nvtx, "__enter__")):
        wraps.put(kind, method, _after(watcher.shared.windows.block, getattr(kind, method), watcher))


def _wrap_captures(torch: Any, watcher: Watcher, wraps: Wraps) -> None:
    """Have windows make room for captures of CUDA graphs, and replays noted as calls of what was captured."""
    graph, shared = torch.cuda.CUDAGraph, watcher.shared
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        watcher.guard(shared.windows.begin_capture)
        result = begin(self, *args, **kwargs)
        watcher.guard(lambda: shared.graphs.begin(self))
        watcher.of_thread.log = None
        return result

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        watcher.guard(shared.windows.end_capture)
        watcher.guard(lambda: shared.graphs.end(self))
        return end(self, *args, **kwargs)

    @functools.wraps(replay)
    def replayed(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = None if watcher.off else watcher.enter_replay(self)
        try:
            return replay(self, *args, **kwargs)
        finally:
            watcher.leave(call)

    for name, wrapper in (
        ("capture_begin", capture_begin),
        ("capture_end", capture_end),
        ("replay", replayed),
    ):
        wraps.put(graph, name, wrapper)


def _after(act: Callable[[], None], plain: Callable[..., Any], watcher: Any) -> Callable[..., Any]:
    """Return a function that does something of ours first."""

    @functools.wraps(plain)
    def acting(*args: Any, **kwargs: Any) -> Any:
        watcher.guard(act)
        return plain(*args, **kwargs)

    return acting


def wrap_ends(watcher: Any, wraps: Wraps) -> None:
    """Have the recording ended with the process, also by those ends that skip what is to be done at exit."""
    atexit.register(watcher.close)
    wraps.later(lambda: atexit.unregister(watcher.close))
    for name in ("_exit", "execv", "execve"):
        wraps.put(os, name, _after(watcher.close, getattr(os, name), watcher))
    _WATCHERS.add(watcher)


def _forget_after_fork() -> None:
    for watcher in list(_WATCHERS):
        watcher.guard(watcher.forget_after_fork)


_WATCHERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):  # once: it cannot be taken back
    os.register_at_fork(after_in_child=_forget_after_fork)


def _hide_from_compiler(wrapper: Any) -> None:
    """Have torch.compile run the frames of a wrapper as they are, and look at what they call.

    What our own modules run is left out as a whole. A torch without a compiler has nothing to be told.
    """
    with suppress(AttributeError, ImportError):
        from torch._C import _dynamo

        eval_frame: Any = _dynamo.eval_frame
        if hasattr(eval_frame, "set_code_exec_strategy"):
            action, strategy = eval_frame._FrameAction, eval_frame._FrameExecStrategy
            eval_frame.set_code_exec_strategy(wrapper.__code__, strategy(action.SKIP, action.DEFAULT))
            for code in _own_codes():
                eval_frame.set_code_exec_strategy(code, strategy(action.SKIP, action.SKIP))
        else:
            for code in (wrapper.__code__, *_own_codes()):
                eval_frame.skip_code(code)


@functools.lru_cache(maxsize=None)
def _own_codes() -> tuple[CodeType, ...]:
    """Return the code of every function of our modules that are loaded, but for the wrappers in this one."""
    package = __name__.partition(".")[0] + "."
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(package) and name != __name__]
    return tuple(code for module in modules for value in vars(module).values() for code in _codes(value))


def _codes(value: Any) -> Iterator[CodeType]:
    if isinstance(value, type):
        for inner in vars(value).values():
            yield from _codes(getattr(inner, "fget", None) or getattr(inner, "__func__", None) or inner)
    elif hasattr(value, "__code__"):
        yield value.__code__
