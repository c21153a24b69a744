"""Watches the modules of a PyTorch program: each module's own time as a row, the root's calls as steps.

In some steps a profiler window adds the ops and kernels, forward and backward.
"""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from ..native.emit import Emitter, now
from .kernels import MARK, Duty, Profiler, Row, emit_window
from .op_numbers import OpNumbers

LOOKED_AT: Final = 8  # modules whose inputs are searched for the tokens of a step


class _Call:
    """A module's call while it lasts."""

    __slots__ = ("inner", "mark", "module", "start")

    def __init__(self, module: Any, mark: Any) -> None:
        self.module, self.mark = module, mark
        self.inner = 0  # ns within the modules that it called
        self.start = now()


class _Step:
    """One call of the root, and when it trains all that follows up to the next."""

    def __init__(self, *, training: bool) -> None:
        self.training = training
        self.length: int | None = 0 if training else None  # tokens that it takes; None while not known
        self.start = now()
        self._looked_at = 0

    def find_length(self, inputs: Any) -> None:
        """Take the length of the first tensor of whole numbers among a module's inputs: the embedding's."""
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

    def __init__(self, torch: Any, open_recording: Callable[[Any], Emitter | None]) -> None:
        """`open_recording` is asked once, with the first module; None from it ends the watching."""
        from torch._C._profiler import _RecordFunctionFast

        self._torch, self._open_recording, self._annotate = torch, open_recording, _RecordFunctionFast
        self._emitter: Emitter | None = None
        self._thread = 0
        self._root: Any = None
        self._root_size = -1
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._calls: list[_Call] = []
        self._rows: list[tuple[int, int, int]] = []  # op, start, duration
        self._ops = OpNumbers()
        self._duty = Duty()
        self._profiler: Profiler | None = None
        self._in_window = False
        self._step: _Step | None = None
        self._steps = self._context = 0
        self.off = False

    def before(self, module: Any, inputs: Any) -> None:
        """Note that a module is about to be called."""
        if self.off or not self._is_on_watched_thread(module):
            return
        if not self._calls and self._is_root(module):
            self._begin_step(module)
        if self._step is not None and self._step.length is None:
            self._step.find_length(inputs)
        mark = None
        if self._in_window:
            mark = self._annotate(MARK + self._name(module))
            mark.__enter__()
        self._calls.append(_Call(module, mark))

    def after(self, module: Any, *_: Any) -> None:
        """Note that a module's call is over, or has failed."""
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
        op = self._ops.of_module(module, self._name(module), has_inner=call.inner > 0)
        self._rows.append((op, call.start, took - call.inner))
        if not self._calls and self._step is not None and not self._step.training:
            self._end_step(end)

    def close(self) -> None:
        """End the recording with the program."""
        if self._step is not None:
            self._end_step(now())
        if self._profiler:
            self._profiler.abandon()
        if self._emitter:
            self._emitter.end()
            if why := self._emitter.unwritten:
                sys.stderr.write(f"tracetui: the recording has gaps: {why}\n")

    def _is_on_watched_thread(self, module: Any) -> bool:
        """Return whether the call is on the watched thread: that of the first module with parameters."""
        if self._emitter is not None:
            return threading.get_ident() == self._thread
        if next(module.parameters(), None) is None:
            return False
        self._emitter = self._open_recording(module)
        if self._emitter is None:
            self.off = True
            return False
        self._thread = threading.get_ident()
        return True

    def _is_root(self, module: Any) -> bool:
        """Return whether a module is the largest that is called from outside of any: its calls are steps."""
        if module is self._root:
            return True
        if module not in self._names:
            for name, part in module.named_modules():
                self._names.setdefault(part, name or type(module).__name__)
            size = sum(p.numel() for p in module.parameters())
            if size > self._root_size:
                self._root, self._root_size = module, size
                self._ops.forget_modules()
                self._ops.lens = "wall" if device_of(module) == "cpu" else "host"
        return module is self._root

    @property
    def _on_gpu(self) -> bool:
        return self._ops.lens == "host"

    def _name(self, module: Any) -> str:
        return self._names.get(module) or type(module).__name__

    def _begin_step(self, module: Any) -> None:
        if self._step is not None:
            self._end_step(now())
        self._emit(self._take_rows(), None, None)
        self._step = _Step(training=self._torch.is_grad_enabled() and module.training)
        if self._duty.due(now()):
            self._profiler = self._profiler or Profiler(gpu=self._on_gpu)
            self._profiler.start()
            self._in_window = True
        self._step.start = now()

    def _end_step(self, end: int) -> None:
        step, self._step = self._step, None
        assert step is not None and self._emitter is not None  # noqa: S101
        took = end - step.start
        number = self._count_step(step)
        phase = None if step.training else step.phase
        self._emit(self._take_rows(), number, step.phase)
        if self._in_window:
            self._in_window = False
            rows = self._close_window(took, number)
            lens = "gpu" if self._on_gpu else "host"  # what is not written in every step
            emit_window(self._emitter, lens, step=number, phase=phase)
            self._emit([(self._ops.of_row(r, step.phase), r.start, r.duration) for r in rows], number, None)
        else:
            self._duty.add_plain_step(took)
        self._emitter.event(
            "step",
            step.phase if step.phase in ("prefill", "decode") else "step",
            t=step.start,
            dur=took,
            tokens=None if step.training else 1,
            step=number,
            phase=phase,
            context=self._context or None,
        )

    def _count_step(self, step: _Step) -> int:
        """Return the step's number: 0 for a first prefill; the context grows by what each step takes."""
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
        if new := self._ops.take_new():
            self._emitter.plan(new)
        ops, starts, durations = zip(*rows, strict=True)
        self._emitter.columns(ops, starts, durations, step=step, phase=phase)

    def _close_window(self, took: int, number: int) -> list[Row]:
        assert self._profiler is not None and self._emitter is not None  # noqa: S101
        window = self._profiler.stop()
        self._duty.add_window(now(), self._profiler.overhead_ns, took)
        self._emitter.cost_ns += self._profiler.overhead_ns
        for what, count in window.problems.items():
            self._emitter.mark(f"window of step {number}: {count} {what}", "log")
        return window.rows


def device_of(module: Any) -> str:
    """Return the type of device that a module's first parameter is on; cpu where it has none."""
    first = next(module.parameters(), None)
    return "cpu" if first is None else str(first.device.type)
