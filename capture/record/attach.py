"""Any plain PyTorch program, watched without an edit: modules as rows, the outermost module's calls as steps.

Installed by `site/sitecustomize.py` when TRACETUI_OUT is set. Every step tells the time that each module
spent by itself (what its inner modules took is theirs); in some steps a profiler window tells the ops
and kernels too, forward and backward.
"""

import atexit
import os
import re
import secrets
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ..native.emit import Emitter, emitting, now
from . import torchrun
from .kernels import MARK, Duty, Profiler, Row, tell_window
from .spans import OUT

# what a module of such a name does besides calling its projections is the attention itself
_ATTENTION: Final = re.compile(r"(?i)(^|[._])(self_?)?att(entio)?n$")
LOOKED_AT: Final = 8  # modules whose inputs are searched for the tokens of a step
RUN: Final = "TRACETUI_RUN"  # tells child processes which run they are part of


class _Call:
    """A module's call while it lasts."""

    __slots__ = ("inner", "mark", "module", "start")

    def __init__(self, module: Any, mark: Any) -> None:
        self.module, self.mark = module, mark
        self.inner = 0
        self.start = now()


class _Step:
    """One call of the root, and when it trains all that follows up to the next."""

    def __init__(self, *, training: bool) -> None:
        self.training = training
        self.length: int | None = 0 if training else None  # tokens that it takes, none if not known yet
        self.start = now()
        self._looked_at = 0

    def learn(self, inputs: Any) -> None:
        """The tokens are the first tensor of whole numbers that a module is given: the embedding's."""
        self._looked_at += 1
        tokens = next(
            (x for x in inputs if hasattr(x, "is_floating_point") and not x.is_floating_point()), None
        )
        if tokens is not None and tokens.dim() >= 1:
            self.length = int(tokens.shape[-1])
        elif self._looked_at >= LOOKED_AT:
            self.length = 0

    @property
    def phase(self) -> str:
        if not self.length:
            return "forward"
        return "decode" if self.length == 1 else "prefill"


class Watcher:
    """Sees every call of every module on one thread, and writes a step for each call of the root."""

    def __init__(self, torch: Any, open_emitter: Callable[[Any], Emitter | None]) -> None:
        from torch._C._profiler import _RecordFunctionFast

        self._torch, self._open_emitter, self._annotate = torch, open_emitter, _RecordFunctionFast
        self._emitter: Emitter | None = None
        self._thread = 0
        self._root: Any = None
        self._root_size = -1
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._calls: list[_Call] = []
        self._rows: list[tuple[int, int, int]] = []
        self._ops: dict[tuple[Any, ...], int] = {}
        self._own: dict[tuple[int, bool], tuple[weakref.ref[Any], int]] = {}
        self._new_ops: list[dict[str, Any]] = []
        self._lens = "wall"
        self._duty = Duty()
        self._profiler: Profiler | None = None
        self._watching = False
        self._step: _Step | None = None
        self._steps = self._context = 0
        self.off = False

    def before(self, module: Any, inputs: Any) -> None:
        """A module is about to be called."""
        if self.off or not self._ours(module):
            return
        if not self._calls and self._is_root(module):
            self._begin_step(module)
        if self._step is not None and self._step.length is None:
            self._step.learn(inputs)
        mark = None
        if self._watching:
            mark = self._annotate(MARK + self._name(module))
            mark.__enter__()
        self._calls.append(_Call(module, mark))

    def after(self, module: Any, *_: Any) -> None:
        """A module's call is over, or has failed."""
        end = now()
        if self.off or threading.get_ident() != self._thread or not self._calls:
            return
        if self._calls[-1].module is not module:
            self._calls.clear()  # a call whose start was not seen
            return
        call = self._calls.pop()
        if call.mark is not None:
            call.mark.__exit__(None, None, None)
        took = end - call.start
        if self._calls:
            self._calls[-1].inner += took
        self._rows.append((self._op_of(call), call.start, took - call.inner))
        if not self._calls and self._step is not None and not self._step.training:
            self._end_step(end)

    def close(self) -> None:
        """The program is over."""
        if self._step is not None:
            self._end_step(now())
        if self._profiler:
            self._profiler.abandon()
        if self._emitter:
            self._emitter.end()
            if why := self._emitter.unwritten:
                sys.stderr.write(f"tracetui: the recording has gaps: {why}\n")

    def _ours(self, module: Any) -> bool:
        """Whether the call is on the thread that is watched: that of the first module with parameters."""
        if self._emitter is not None:
            return threading.get_ident() == self._thread
        if next(module.parameters(), None) is None:
            return False
        self._emitter = self._open_emitter(module)
        if self._emitter is None:
            self.off = True
            return False
        self._thread = threading.get_ident()
        return True

    def _is_root(self, module: Any) -> bool:
        """The largest module that is called from outside of any: its calls are the steps."""
        if module is self._root:
            return True
        if module not in self._names:
            for name, part in module.named_modules():
                self._names.setdefault(part, name or type(module).__name__)
            size = sum(p.numel() for p in module.parameters())
            if size > self._root_size:
                self._root, self._root_size = module, size
                self._own.clear()  # its parts have other names now
                self._lens = "wall" if _device(module) == "cpu" else "host"
        return module is self._root

    def _name(self, module: Any) -> str:
        return self._names.get(module) or type(module).__name__

    def _begin_step(self, module: Any) -> None:
        if self._step is not None:
            self._end_step(now())
        self._emit(self._take_rows(), None, None)
        self._step = _Step(training=self._torch.is_grad_enabled() and module.training)
        if self._duty.due(now()):
            self._profiler = self._profiler or Profiler(gpu=self._lens == "host")
            self._profiler.start()
            self._watching = True
        self._step.start = now()

    def _end_step(self, end: int) -> None:
        step, self._step = self._step, None
        assert step is not None and self._emitter is not None  # noqa: S101
        took = end - step.start
        number = self._number(step)
        facts = {"step": number, "phase": step.phase, "context": self._context or None}
        tokens = None if step.training else 1
        name = step.phase if step.phase in ("prefill", "decode") else "step"
        self._emit(self._take_rows(), number, step.phase)
        if self._watching:
            self._watching = False
            window = self._close_window(took, number)
            seen = "gpu" if self._lens == "host" else "host"  # what is not told of every step
            tell_window(self._emitter, seen, step=number, phase=None if step.training else step.phase)
            self._emit([(self._op_of_row(r, step), r.start, r.duration) for r in window], number, None)
        else:
            self._duty.plain_step(took)
        about = facts | ({"phase": None} if step.training else {})
        self._emitter.event("step", name, t=step.start, dur=took, tokens=tokens, **about)

    def _number(self, step: "_Step") -> int:
        """A first prefill is step 0, all others count on; the context grows by what each step takes."""
        first = step.phase == "prefill" and self._steps == 0
        self._steps += not first
        self._context = (0 if step.phase == "prefill" else self._context) + (step.length or 0)
        return 0 if first else self._steps

    def _take_rows(self) -> list[tuple[int, int, int]]:
        rows, self._rows = self._rows, []
        return rows

    def _emit(self, rows: list[tuple[int, int, int]], step: int | None, phase: str | None) -> None:
        if not rows or self._emitter is None:
            return
        if self._new_ops:
            self._emitter.plan(self._new_ops)
            self._new_ops = []
        ops, starts, durations = zip(*rows, strict=True)
        self._emitter.columns(ops, starts, durations, step=step, phase=phase)

    def _close_window(self, took: int, number: int) -> list[Row]:
        assert self._profiler is not None and self._emitter is not None  # noqa: S101
        window = self._profiler.stop()
        self._duty.window_closed(now(), self._profiler.overhead_ns, took)
        self._emitter.cost_ns += self._profiler.overhead_ns
        for what, count in window.problems.items():
            self._emitter.mark(f"window of step {number}: {count} {what}", "log")
        return window.rows

    def _op_of(self, call: _Call) -> int:
        """The number of a module's own work; an id may come again once its module is gone."""
        known = self._own.get((id(call.module), call.inner > 0))
        if known is not None and known[0]() is call.module:
            return known[1]
        number = self._new_op_of(call)
        self._own[id(call.module), call.inner > 0] = weakref.ref(call.module), number
        return number

    def _new_op_of(self, call: _Call) -> int:
        name = self._name(call.module)
        local = _local(name)
        own = f"{local} (own work)" if call.inner else local
        core = bool(call.inner) and _ATTENTION.search(local) is not None
        about = {"name": own, "layer": _layer(name), "lens": self._lens, "path": name.replace(".", " / "),
                 "op": "attn.core" if core else None, "category": "attention" if core else None}  # fmt: skip
        return self._numbered(about)

    def _op_of_row(self, row: Row, step: "_Step") -> int:
        owner = row.owner or ""
        phase = row.phase or step.phase
        lens = "host" if row.lens == "wall" else row.lens  # the modules' wall time holds these already
        path = " / ".join([*owner.split("."), row.name]) if owner else row.name
        about = {"layer": _layer(owner), "lens": lens, "path": path, "phase": phase, "track": row.track}
        return self._numbered({"name": row.name, **about})

    def _numbered(self, about: dict[str, Any]) -> int:
        key = tuple(about.values())
        number = self._ops.get(key)
        if number is None:
            number = self._ops[key] = len(self._ops)
            told = {name: value for name, value in about.items() if value is not None}
            self._new_ops.append({"id": number, "kind": "kernel", **told})
        return number


def _device(module: Any) -> str:
    found = next(module.parameters(), None)
    return "cpu" if found is None else str(found.device.type)


def _layer(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def _local(name: str) -> str:
    """The name within its layer: the same for all layers."""
    parts = name.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
    return ".".join(parts[numbers[0] + 1 :]) or "layer" if numbers else name


def _open(module: Any) -> Emitter | None:
    """The recording, unless the program writes one by itself."""
    if emitting():
        return None
    import torch

    known, team = os.environ.get(RUN), torchrun.of_environment(os.environ)
    rank = os.environ.get("RANK") or (str(os.getpid()) if known else None)
    emitter = Emitter(os.environ[OUT], rank=int(rank) if rank and rank.isdecimal() else None)
    os.environ[RUN] = known or (torchrun.run_id(os.environ, team) if team else secrets.token_hex(8))
    about = {"model": type(module).__name__, "driver": "PyTorch, attached", "torch": torch.__version__,
             "device": _device(module), "argv": sys.argv, "pid": os.getpid()}  # fmt: skip
    emitter.run(type(module).__name__, about, id=os.environ[RUN])
    return emitter


def install() -> None:
    """Hooks into every module of the process. A fault in here ends the watching, never the program."""
    import torch
    from torch.nn.modules import module as modules

    watcher = Watcher(torch, _open)

    def guarded(hook: Callable[..., None]) -> Callable[..., None]:
        def safe(*args: Any) -> None:
            try:
                hook(*args)
            except Exception as e:
                watcher.off = True
                sys.stderr.write(f"tracetui: the program is watched no more: {type(e).__name__}: {e}\n")

        return safe

    modules.register_module_forward_pre_hook(guarded(watcher.before))
    modules.register_module_forward_hook(guarded(watcher.after), always_call=True)

    @atexit.register
    def finish() -> None:
        with suppress(Exception):
            watcher.close()
