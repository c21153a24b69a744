"""Run the ops of a step and time them: events between layers, profiler windows for kernels.

On the CPU an op is done when its call returns, so the clock between calls is exact: an op ends where the next
begins, and the rows of a step add up to it. On an accelerator calls only queue work: a step there is host
rows, a span per layer, and kernels if a profiler window was open.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import groupby, zip_longest
from operator import attrgetter, sub
from typing import Any, Final

import torch

from capture.native.emit import Emitter, now
from capture.record.profiler_windows import (
    ANNOTATION_PREFIX,
    LeafWork,
    ProfilerWindow,
    WindowBudget,
    WindowProfiler,
    emit_window,
)
from engines.plan import TOKEN_WAIT, Plan, PlannedOp, plan_host_op

Op = Callable[[], None]
AssignIds = Callable[[Plan], list[int]]
StepPart = tuple[PlannedOp, list[tuple[str, Op]]]  # a span, and its ops by scope

NS_PER_MS: Final = 1e6
NO_WORK: Final = (0.0, 0.0)
OFF: Final = "off"  # nothing is timed but the steps themselves: the bare measure
WINDOW_BUDGETS: Final[Mapping[str, Callable[[], WindowBudget]]] = {
    OFF: lambda: WindowBudget(0.0),
    "spans": lambda: WindowBudget(0.0),
    "windows": WindowBudget,
    "continuous": lambda: WindowBudget(1.0),
}


class PlanWriter:
    """Assigns ids to ops and writes the plan that describes them, once per distinct step."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._ids: dict[Plan, list[int]] = {}
        self._next_id = 0

    def assign_ids(self, ops: Plan) -> list[int]:
        """Return the op ids of a step; an unknown step is written to the plan first."""
        if ops not in self._ids:
            start, self._next_id = self._next_id, self._next_id + len(ops)
            self._ids[ops] = list(range(start, self._next_id))
            self._emitter.plan(r.build_plan_entry(i) for i, r in zip(self._ids[ops], ops, strict=True))
        return self._ids[ops]


class OpTimestamps:
    """Clock readings of one step: its start, then the end of every op."""

    __slots__ = ("times",)

    def __init__(self, start: int) -> None:
        self.times: list[int] = [start]

    def mark(self) -> None:
        """Record that the current op ends now."""
        self.times.append(now())

    def run_ops(self, ops: Sequence[Op]) -> None:
        """Run every op, and read the clock after each."""
        add = self.times.append
        for op in ops:
            op()
            add(now())

    @property
    def end(self) -> int:
        return self.times[-1]

    @property
    def durations(self) -> list[int]:
        return list(map(sub, self.times[1:], self.times))

    def write(self, emitter: Emitter, ids: Sequence[int], **facts: Any) -> None:
        """Write a `columns` line: a row for every reading but the first."""
        emitter.columns(ids, self.times[:-1], self.durations, **facts)


class HostRunner:
    """Runs ops that are done when their call returns: each op is a row, or all of them one if bare."""

    def __init__(self, ops: Sequence[Op], mode: str = "") -> None:
        self._ops, self._is_bare = ops, mode == OFF

    def select_timed_ops(self, planned: Plan) -> Plan:
        return (plan_host_op("ops"),) if self._is_bare else planned

    def run(self, timestamps: OpTimestamps) -> None:
        if not self._is_bare:
            timestamps.run_ops(self._ops)
            return
        for op in self._ops:
            op()
        timestamps.mark()

    def write(self, emitter: Emitter, assign_ids: AssignIds, **facts: Any) -> None:
        pass

    def set_mode(self, name: str) -> str:
        if self._is_bare or name == OFF:
            return "--capture off must be set at the start on this device"
        return f"every op is already recorded on this device; {name} changes nothing"


class StepWindows:
    """Opens windows of the profiler around steps, within the budget of a capture mode."""

    def __init__(self, *, gpu: bool) -> None:
        self.profiler = WindowProfiler(gpu=gpu)
        self.budget = WindowBudget(0.0)
        self.is_bare = False  # not even layers are timed
        self._is_open = False

    def set_mode(self, name: str) -> str:
        """Set the capture mode; return a message about it.

        spans: never profile; windows: within a budget; continuous: always; off: also time no layers.
        """
        if name not in WINDOW_BUDGETS:
            return f"unknown capture mode {name}; modes: {', '.join(WINDOW_BUDGETS)}"
        self.budget, self.is_bare = WINDOW_BUDGETS[name](), name == OFF
        return f"capture mode {name}"

    def open_if_due(self, at: int) -> bool:
        """Open a window if one is due, once the device is done; return whether it is open."""
        self._is_open = self.budget.is_due(at)
        if self._is_open:
            self.profiler.start()
            torch.accelerator.synchronize()
        return self._is_open

    def close(self, duration: int) -> ProfilerWindow | None:
        """Close the window around steps of this duration; None if there is none."""
        if not self._is_open:
            self.budget.add_plain_step(duration)
            return None
        self._is_open = False
        window = self.profiler.stop()
        self.budget.add_window(now(), self.profiler.overhead_ns, duration)
        return window


class LaunchedStep:
    """Runs a step op by op, with an event at each border between layers; a bare one has none."""

    def __init__(self, parts: list[StepPart], create_event: Callable[[], Any], *, is_bare: bool) -> None:
        self._parts = parts
        self._borders = [] if is_bare else [create_event() for _ in range(len(parts) + 1)]
        self._annotations = make_annotations(scope for _, ops in parts for scope, _ in ops)

    def run(self, *, is_profiled: bool = False) -> None:
        if self._borders:
            self._borders[0].record()
        for (_, ops), border in zip_longest(self._parts, self._borders[1:]):
            for scope, op in ops:
                if is_profiled:
                    with self._annotations[scope]:
                        op()
                else:
                    op()
            if border:
                border.record()

    def read_offsets(self) -> list[int]:
        """Return the nanoseconds from the first border to each, once the step is done; empty if bare."""
        return [int(self._borders[0].elapsed_time(border) * NS_PER_MS) for border in self._borders]


class DeviceRunner:
    """Launches the ops, waits, and reads the device's clock at the borders of the layers."""

    def __init__(self, ops: Sequence[Op], planned: Plan, device: torch.device, mode: str) -> None:
        self._ops, parts = ops, group_by_layer(ops, planned)
        self._ops_by_scope = {row.scope: row for row in planned}
        self._spans = tuple(part for part, _ in parts)
        self._span_ids: list[int] = []
        self._step = LaunchedStep(parts, lambda: torch.Event(device.type, enable_timing=True), is_bare=False)
        self._windows = StepWindows(gpu=device.type == "cuda")
        self._launched = 0
        self._window: ProfilerWindow | None = None
        self._no_kernels_reason = explain_no_kernels(device)
        self.set_mode(mode)

    def select_timed_ops(self, planned: Plan) -> Plan:
        return plan_host_op("launch"), TOKEN_WAIT

    def set_mode(self, name: str) -> str:
        answer = self._windows.set_mode(name)
        if self._no_kernels_reason and name != OFF:
            self._windows.budget = WindowBudget(0.0)
            return self._no_kernels_reason
        return answer

    def run(self, timestamps: OpTimestamps) -> None:
        start = now()
        is_profiled = self._windows.open_if_due(start)
        if self._windows.is_bare:
            for op in self._ops:
                op()
        else:
            self._launched = now()
            self._step.run(is_profiled=is_profiled)
        timestamps.mark()
        torch.accelerator.synchronize()
        timestamps.mark()
        self._window = self._windows.close(timestamps.end - start)

    def write(self, emitter: Emitter, assign_ids: AssignIds, **facts: Any) -> None:
        """Write the device's own times of the last step."""
        if self._windows.is_bare:
            return
        self._span_ids = self._span_ids or assign_ids(self._spans)
        write_spans(emitter, self._span_ids, self._launched, self._step.read_offsets(), **facts)
        if self._window:
            emitter.cost_ns += self._windows.profiler.overhead_ns
            write_kernels(emitter, assign_ids, self._window, self._ops_by_scope, **facts)


OpRunner = HostRunner | DeviceRunner


def capture_graph(run: Callable[[], object]) -> Any:
    """Capture what `run` launches as a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def write_spans(emitter: Emitter, ids: list[int], start: int, offsets: list[int], **facts: Any) -> None:
    """Write spans between borders, which come `offsets` nanoseconds after a start."""
    starts = [start + offset for offset in offsets[:-1]]
    emitter.columns(ids, starts, list(map(sub, offsets[1:], offsets)), **facts)


def write_kernels(
    emitter: Emitter,
    assign_ids: AssignIds,
    window: ProfilerWindow,
    ops_by_scope: Mapping[str, PlannedOp],
    *,
    steps: int = 1,
    **facts: Any,
) -> None:
    """Write the kernels of some steps under the names that the profiler saw, each with its planned op."""
    kernels = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("start"))
    # a kernel has the work of its op if the op launched one per step; how several share it is unknown
    launches = Counter(k.owner for k in kernels)
    launches_per_op = steps if facts.get("phase") == "decode" else 0
    ops = []
    for k in kernels:
        planned = ops_by_scope.get(k.owner or "")
        row = build_kernel_row(k, planned, has_all_work=launches[k.owner] == launches_per_op)
        ops += assign_ids((row,))
    note_window_problems(emitter, window)
    if kernels:
        emit_window(emitter, "gpu", **facts)
        emitter.columns(ops, [k.start for k in kernels], [k.duration for k in kernels], **facts)


def note_window_problems(emitter: Emitter, window: ProfilerWindow) -> None:
    """Write the problems of a profiler window as marks."""
    for problem, count in window.problems.items():
        emitter.mark(f"incomplete profiler window: {count} {problem}", "log")
    if not any(row.lens == "gpu" for row in window.rows):
        emitter.mark("a profiler window has no kernels of the device", "log")


def build_kernel_row(kernel: LeafWork, planned: PlannedOp | None, *, has_all_work: bool) -> PlannedOp:
    """Build the row of one kernel; it has FLOPs and bytes if it does all work of its op."""
    if planned is None:
        return PlannedOp(kernel.name, "", "other", lens="gpu")
    row = replace(planned, name=kernel.name, lens="gpu", kind="kernel")
    return row if has_all_work else replace(row, flops=NO_WORK, bytes=NO_WORK, window=None)


def explain_no_kernels(device: torch.device) -> str:
    """Return why a profiler window would show nothing on a device; empty if it works."""
    if device.type in ("cpu", "cuda"):
        return ""
    return f"the profiler shows no kernels of {device.type}: only layers or phases are timed"


def make_runner(ops: Sequence[Op], planned: Plan, device: torch.device, mode: str) -> OpRunner:
    """Make the runner of a device; an accelerator without timed events waits for every op."""
    if device.type == "cpu":
        return HostRunner(ops, mode)
    try:
        return DeviceRunner(ops, planned, device, mode)
    except (RuntimeError, NotImplementedError):
        return HostRunner([_wait_after(op) for op in ops], mode)


def _wait_after(op: Op) -> Op:
    def run_and_wait() -> None:
        op()
        torch.accelerator.synchronize()

    return run_and_wait


def group_by_layer(ops: Sequence[Op], planned: Plan) -> list[StepPart]:
    """Group ops under one span per layer, and those before and after the layers."""
    parts: list[StepPart] = []
    for layer, group in groupby(zip(planned, ops, strict=True), key=lambda pair: pair[0].layer):
        name = "layer" if layer is not None else "head" if parts else "embed"
        span = PlannedOp(name, name, "other", layer, lens="gpu", kind="span")
        parts.append((span, [(row.scope, op) for row, op in group]))
    return parts


def make_annotations(scopes: Iterable[str]) -> dict[str, AbstractContextManager[Any]]:
    """Make a profiler annotation per scope; one costs 0.2 µs, where record_function costs 6."""
    return {scope: torch._C._profiler._RecordFunctionFast(f"{ANNOTATION_PREFIX}{scope}") for scope in scopes}
