"""Read a device's own time: events between layers in every step, kernels in short windows of the profiler.

On the processor an op is done when its call returns, so that the clock between calls is the truth. On an
accelerator calls only queue work: a step there is host rows, a span for every layer, and kernels where a
window of the profiler was open.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby, pairwise
from operator import attrgetter
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
OFF: Final = "off"  # nothing is timed but the steps themselves: the bare measure
BUDGETS: Final[Mapping[str, Callable[[], Duty]]] = {
    OFF: lambda: Duty(0.0),
    "spans": lambda: Duty(0.0),
    "windows": Duty,
    "continuous": lambda: Duty(CONTINUOUS),
}

Numbers = Callable[[tuple[Row, ...]], list[int]]
Part = tuple[Row, list[tuple[str, Op]]]


class Runner(Protocol):
    """Runs the ops of a step; `rows` says what its clock readings are."""

    def rows(self, planned: tuple[Row, ...]) -> tuple[Row, ...]: ...

    def run(self, ticks: Ticks) -> None: ...

    def write(self, emitter: Emitter, numbers: Numbers, **facts: Any) -> None:
        """Write what the device itself says of the last step, after it is done."""

    def mode(self, name: str) -> str:
        """Change what is captured; return a sentence on it."""


class OnHost:
    """Runs ops whose call returns when they are done: every op is a row, or a bare run of all of them one."""

    def __init__(self, ops: Sequence[Op], mode: str = "") -> None:
        self._ops, self._bare = ops, mode == OFF

    def rows(self, planned: tuple[Row, ...]) -> tuple[Row, ...]:
        return (host_row("ops"),) if self._bare else planned

    def run(self, ticks: Ticks) -> None:
        if not self._bare:
            ticks.run(self._ops)
            return
        for op in self._ops:
            op()
        ticks.mark()

    def write(self, emitter: Emitter, numbers: Numbers, **facts: Any) -> None:
        pass

    def mode(self, name: str) -> str:
        if self._bare or name == OFF:
            return "a run on this device is bare from its start, or not at all: start with --capture off"
        return f"every op is a row on this device already; {name} changes nothing"


class OnDevice:
    """Launches the ops, waits, and reads the device's clock at the borders of the layers."""

    def __init__(self, ops: Sequence[Op], planned: tuple[Row, ...], device: torch.device, mode: str) -> None:
        self._ops, self._parts = ops, by_layer(ops, planned)
        self._notes = annotations(row.scope for row in planned)
        self._planned = {row.scope: row for row in planned}
        self._borders = [torch.Event(device.type, enable_timing=True) for _ in range(len(self._parts) + 1)]
        self._profiler = Profiler(gpu=device.type == "cuda")
        self._span_numbers: list[int] = []
        self._anchor = 0
        self._window: Window | None = None
        self._duty, self._bare = Duty(0.0), False
        self._unwatched_why = why_unwatched(device)
        self.mode(mode)

    def rows(self, planned: tuple[Row, ...]) -> tuple[Row, ...]:
        return host_row("launch"), WAIT

    def mode(self, name: str) -> str:
        """Choose when the profiler watches: never (spans), within a budget (windows), always (continuous).

        With `off` no layers are timed, either.
        """
        self._bare = name == OFF if name in BUDGETS else self._bare
        if self._unwatched_why and name != OFF:
            return self._unwatched_why
        self._duty, answer = budget(name, self._duty)
        return answer

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
        if self._bare:
            return
        if not self._span_numbers:
            self._span_numbers = numbers(tuple(part for part, _ in self._parts))
        offsets = [int(self._borders[0].elapsed_time(b) * NS_PER_MS) for b in self._borders]
        durations = [b - a for a, b in pairwise(offsets)]
        emitter.columns(self._span_numbers, [self._anchor + o for o in offsets[:-1]], durations, **facts)
        if self._window:
            emitter.cost_ns += self._profiler.overhead_ns
            write_kernels(emitter, numbers, self._window, self._planned, **facts)

    def _launch(self, watched: bool) -> None:
        if self._bare:
            for op in self._ops:
                op()
            return
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
    emitter: Emitter,
    numbers: Numbers,
    window: Window,
    planned: Mapping[str, Row],
    *,
    steps: int = 1,
    **facts: Any,
) -> None:
    """Write the kernels of so many steps under the names that the profiler saw, each with its row."""
    kernels = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("start"))
    alone = steps if facts.get("phase") == "decode" else 0
    rows = _kernel_rows(kernels, planned, alone)
    ops = [numbers((row,))[0] for row in rows]
    write_problems(emitter, window)
    if kernels:
        emit_window(emitter, "gpu", **facts)
        emitter.columns(ops, [k.start for k in kernels], [k.duration for k in kernels], **facts)


def _kernel_rows(kernels: Sequence[Kernel], planned: Mapping[str, Row], alone: int) -> list[Row]:
    """Return the row of each kernel.

    The work of a row goes to its kernel where the row launched `alone` of them, one in every step; how
    several share it is unknown.
    """
    launched = Counter(kernel.owner for kernel in kernels)
    return [kernel_row(k, planned.get(k.owner or ""), whole=launched[k.owner] == alone) for k in kernels]


def write_problems(emitter: Emitter, window: Window) -> None:
    """Write as marks what speaks against a window of the profiler."""
    for problem, count in window.problems.items():
        emitter.mark(f"a window of the profiler is incomplete: {count} {problem}", "log")
    if not any(row.lens == "gpu" for row in window.rows):
        emitter.mark("a window of the profiler shows no kernel of the device", "log")


def kernel_row(kernel: Kernel, planned: Row | None, *, whole: bool) -> Row:
    """Return the row of one kernel; it has flops and bytes if it does the whole of what was planned."""
    if planned is None:
        return Row(kernel.name, "", "other", lens="gpu")
    own = replace(planned, name=kernel.name, lens="gpu", kind="kernel")
    return own if whole else replace(own, flops=NO_WORK, bytes=NO_WORK, window=None)


def why_unwatched(device: torch.device) -> str:
    """Return why a window of the profiler would show nothing on a device; empty where it shows something."""
    if device.type in ("cpu", "cuda"):
        return ""
    return f"the profiler shows no kernels of {device.type}: larger parts alone are timed"


def budget(name: str, now: Duty) -> tuple[Duty, str]:
    """Return the budget of a capture mode and a sentence on it; an unknown mode keeps the current one."""
    if name not in BUDGETS:
        return now, f"there is no mode {name}; there are {', '.join(BUDGETS)}"
    return BUDGETS[name](), f"capture mode {name}"


def runner(ops: Sequence[Op], planned: tuple[Row, ...], device: torch.device, mode: str) -> Runner:
    """Return a runner for the device; an accelerator without timed events waits for every op."""
    if device.type == "cpu":
        return OnHost(ops, mode)
    try:
        return OnDevice(ops, planned, device, mode)
    except (RuntimeError, NotImplementedError):
        return OnHost([_awaited(op) for op in ops], mode)


def _awaited(op: Op) -> Op:
    def awaited() -> None:
        op()
        torch.accelerator.synchronize()

    return awaited


def by_layer(ops: Sequence[Op], planned: tuple[Row, ...]) -> list[Part]:
    """Return the ops of each layer under one span, and those before and after the layers."""
    parts: list[Part] = []
    pairs = list(zip(planned, ops, strict=True))
    for layer, group in groupby(pairs, key=lambda pair: pair[0].layer):
        name = "layer" if layer is not None else "head" if parts else "embed"
        span = Row(name, name, "other", layer, lens="gpu", kind="span")
        parts.append((span, [(row.scope, op) for (row, op) in group]))
    return parts


def annotations(scopes: Iterable[str]) -> dict[str, AbstractContextManager[Any]]:
    """Return a profiler annotation for each scope; one costs 0.2 µs, where record_function costs 6."""
    return {scope: torch._C._profiler._RecordFunctionFast(f"{MARK}{scope}") for scope in scopes}
