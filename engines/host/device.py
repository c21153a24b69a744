"""How a device's own time is read: events between layers in every step, kernels in short windows.

On the processor an op is done when its call returns, so that the clock between calls is the truth. On an
accelerator calls only queue work: a step there is host rows, a span for every layer, and kernels where a
window of the profiler was open.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, Final, Protocol

import torch

from capture.native.emit import Emitter, now
from capture.record.kernels import MARK, Duty, Profiler, Window, emit_window
from capture.record.kernels import Row as Kernel
from engines.host.trace import Op, Ticks
from engines.plan import WAIT, Row, host_row

CONTINUOUS: Final = 1.0  # a budget that lets every step be watched
NS_PER_MS: Final = 1e6
NO_WORK: Final = (0.0, 0.0)

Numbers = Callable[[tuple[Row, ...]], list[int]]
Part = tuple[Row, list[tuple[str, Op]]]


class Runner(Protocol):
    """Runs the ops of a step; `rows` says what its clock readings are."""

    def rows(self, planned: tuple[Row, ...]) -> tuple[Row, ...]: ...

    def run(self, ticks: Ticks) -> None: ...

    def write(self, emitter: Emitter, numbers: Numbers, **facts: Any) -> None:
        """What the device itself says of the last step, after it is done."""

    def mode(self, name: str) -> str:
        """Changes what is captured; gives a word on it."""


class OnHost:
    """Every op is a row, and nothing is left to be said afterwards."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops

    def rows(self, planned: tuple[Row, ...]) -> tuple[Row, ...]:
        return planned

    def run(self, ticks: Ticks) -> None:
        ticks.run(self._ops)

    def write(self, emitter: Emitter, numbers: Numbers, **facts: Any) -> None:
        pass

    def mode(self, name: str) -> str:
        return f"every op is a row on this device already; {name} changes nothing"


class OnDevice:
    """Launches the ops, waits, and reads the device's clock at the borders of the layers."""

    def __init__(self, ops: Sequence[Op], planned: tuple[Row, ...], device: torch.device, mode: str) -> None:
        self._parts = by_layer(ops, planned)
        self._notes = annotations(row.scope for row in planned)
        self._planned = {row.scope: row for row in planned}
        self._borders = [torch.Event(device.type, enable_timing=True) for _ in range(len(self._parts) + 1)]
        self._profiler = Profiler(gpu=device.type == "cuda")
        self._span_numbers: list[int] = []
        self._anchor = 0
        self._window: Window | None = None
        self._duty = Duty(0.0)
        self._unseen = unseen(device)
        self.mode(mode)

    def rows(self, planned: tuple[Row, ...]) -> tuple[Row, ...]:
        return host_row("launch"), WAIT

    def mode(self, name: str) -> str:
        """spans: never a window; windows: within the budget; continuous: always."""
        if self._unseen:
            return self._unseen
        self._duty, told = budget(name, self._duty)
        return told

    def run(self, ticks: Ticks) -> None:
        begun = now()
        watched = self._duty.due(begun)
        if watched:
            self._profiler.start()
            torch.accelerator.synchronize()
        self._launch(watched)
        ticks.mark()
        torch.accelerator.synchronize()
        ticks.mark()
        self._window = self._profiler.stop() if watched else None
        took = ticks.end - begun
        if watched:
            self._duty.add_window(now(), self._profiler.overhead_ns, took)
        else:
            self._duty.add_plain_step(took)

    def write(self, emitter: Emitter, numbers: Numbers, **facts: Any) -> None:
        if not self._span_numbers:
            self._span_numbers = numbers(tuple(part for part, _ in self._parts))
        offsets = [int(self._borders[0].elapsed_time(b) * NS_PER_MS) for b in self._borders]
        durations = [b - a for a, b in pairwise(offsets)]
        emitter.columns(self._span_numbers, [self._anchor + o for o in offsets[:-1]], durations, **facts)
        if self._window:
            emitter.cost_ns += self._profiler.overhead_ns
            write_kernels(emitter, numbers, self._window, self._planned, **facts)

    def _launch(self, watched: bool) -> None:
        self._anchor = now()
        self._borders[0].record()
        for (_, ops), border in zip(self._parts, self._borders[1:], strict=True):
            if watched:
                for scope, op in ops:
                    with self._notes[scope]:
                        op()
            else:
                for _, op in ops:
                    op()
            border.record()


def write_kernels(
    emitter: Emitter, numbers: Numbers, window: Window, planned: Mapping[str, Row], **facts: Any
) -> None:
    """Kernels under the names that the profiler saw, each with the row that launched it.

    A decode row's work is that of its kernel where it launched one alone; how several share it, nobody told.
    """
    seen = sorted((k for k in window.rows if k.lens == "gpu"), key=lambda k: k.start)
    launched = Counter(k.owner for k in seen)
    alone = {owner for owner, n in launched.items() if n == 1 and facts.get("phase") == "decode"}
    rows = [kernel_row(k, planned.get(k.owner or ""), whole=k.owner in alone) for k in seen]
    ops = [numbers((row,))[0] for row in rows]
    tell_problems(emitter, window)
    if seen:
        emit_window(emitter, "gpu", **facts)
        emitter.columns(ops, [k.start for k in seen], [k.duration for k in seen], **facts)


def tell_problems(emitter: Emitter, window: Window) -> None:
    """What speaks against a window of a device."""
    for problem, count in window.problems.items():
        emitter.mark(f"a window of the profiler is incomplete: {count} {problem}", "log")
    if not any(row.lens == "gpu" for row in window.rows):
        emitter.mark("a window of the profiler shows no kernel of the device", "log")


def kernel_row(kernel: Kernel, planned: Row | None, *, whole: bool) -> Row:
    """The row of one kernel; one that does the whole of what was planned has its flops and bytes too."""
    if planned is None:
        return Row(kernel.name, "", "other", lens="gpu")
    own = replace(planned, name=kernel.name, lens="gpu", kind="kernel")
    return own if whole else replace(own, flops=NO_WORK, bytes=NO_WORK, window=None)


def unseen(device: torch.device) -> str:
    """Why a window of the profiler would be in vain; nothing where it shows what a device does."""
    if device.type in ("cpu", "cuda"):
        return ""
    return f"the profiler shows no kernels of {device.type}: larger parts alone are timed"


def budget(name: str, now: Duty) -> tuple[Duty, str]:
    """How much of the time a mode may watch, and a word on it; another name changes nothing."""
    budgets = {"spans": Duty(0.0), "windows": Duty(), "continuous": Duty(CONTINUOUS)}
    if name not in budgets:
        return now, f"there is no mode {name}; there are {', '.join(budgets)}"
    return budgets[name], f"capture mode {name}"


def runner(ops: Sequence[Op], planned: tuple[Row, ...], device: torch.device, mode: str) -> Runner:
    """Of the processor, of an accelerator, or of one without timed events: there every op is waited for."""
    if device.type == "cpu":
        return OnHost(ops)
    try:
        return OnDevice(ops, planned, device, mode)
    except (RuntimeError, NotImplementedError):
        return OnHost([_awaited(op) for op in ops])


def _awaited(op: Op) -> Op:
    def awaited() -> None:
        op()
        torch.accelerator.synchronize()

    return awaited


def by_layer(ops: Sequence[Op], planned: tuple[Row, ...]) -> list[Part]:
    """The ops of each layer under one span, and those before and after the layers."""
    parts: list[Part] = []
    pairs = list(zip(planned, ops, strict=True))
    for layer, group in groupby(pairs, key=lambda pair: pair[0].layer):
        name = "layer" if layer is not None else "head" if parts else "embed"
        span = Row(name, name, "other", layer, lens="gpu", kind="span")
        parts.append((span, [(row.scope, op) for (row, op) in group]))
    return parts


def annotations(scopes: Iterable[str]) -> dict[str, AbstractContextManager[Any]]:
    """Each costs 0.2 µs without a profiler, where record_function costs 6."""
    return {scope: torch._C._profiler._RecordFunctionFast(f"{MARK}{scope}") for scope in scopes}
