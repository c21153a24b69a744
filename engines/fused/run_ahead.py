"""Decode steps that run ahead of the host, in fused kernels, launched one by one or as a captured graph.

The next step is queued before the last one is read, so the device never waits for the host between tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, Final, NamedTuple

import torch

from capture.native.emit import Emitter, now
from capture.record.launch_order import LaunchOrder, assign_replay_owners, build_launch_order
from capture.record.profiler_windows import ProfilerWindow, WindowBudget, WindowProfiler
from engines.decoder import Decoder
from engines.fused.fused_step import DeviceState, FusedStep, find_context_class
from engines.host.op_runners import (
    NS_PER_MS,
    OFF,
    WINDOW_BUDGETS,
    AssignIds,
    OpTimestamps,
    StepPart,
    group_by_layer,
    make_annotations,
    run_part,
    select_window_budget,
    write_kernels,
)
from engines.plan import PlannedOp
from engines.token_sampling import SamplingOptions


class LaunchedStep:
    """Runs a step kernel by kernel, with an event at each border between layers; a bare one has none."""

    def __init__(self, parts: list[StepPart], *, is_captured: bool = False, is_bare: bool = False) -> None:
        self._parts = parts
        self.borders = [
            create_event(is_captured=is_captured) for _ in range(0 if is_bare else len(parts) + 1)
        ]
        self._notes = make_annotations(scope for _, ops in parts for scope, _ in ops)

    def run(self, *, is_profiled: bool = False) -> None:
        if self.borders:
            self.borders[0].record()
        for (_, ops), border in zip_longest(self._parts, self.borders[1:]):
            run_part(ops, self._notes if is_profiled else None)
            if border:
                border.record()

    def read_offsets(self) -> list[int]:
        """Return the nanoseconds from the first border to each, once the step is done; empty if bare."""
        return [int(self.borders[0].elapsed_time(border) * NS_PER_MS) for border in self.borders]


class CapturedStep:
    """Runs the same step as a graph.

    An event within a graph does not show whether it was reached, so readers wait for an event behind it.
    """

    def __init__(self, parts: list[StepPart], *, is_bare: bool = False) -> None:
        self._launched = LaunchedStep(parts, is_captured=True, is_bare=is_bare)
        self._graph = capture_graph(self._launched.run)

    def run(self, *, is_profiled: bool = False) -> None:
        self._graph.replay()

    def read_offsets(self) -> list[int]:
        """Return the same, once the graph is done."""
        return self._launched.read_offsets()

    def close(self) -> None:
        self._graph.reset()


def capture_graph(run: Callable[[], None]) -> Any:
    """Capture what `run` launches as a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def create_event(*, is_captured: bool) -> torch.cuda.Event:
    """Create a timed event; `is_captured` lets it be recorded within a graph."""
    return torch.cuda.Event(enable_timing=True, external=is_captured)


PROFILE_ATTEMPTS: Final = 3  # to see every kernel of a step in a window
STEPS_IN_FLIGHT: Final = 2  # steps under way: one runs while the token and the borders of the other are read


@dataclass(frozen=True)
class TimedStep:
    """Start of a step on the device, and its borders relative to that, in nanoseconds."""

    start: int
    offsets: list[int]

    @property
    def end(self) -> int:
        return self.start + self.offsets[-1]


class TokenSlot:
    """Host buffer for the token of a step, and the event behind the copy."""

    def __init__(self, token: torch.Tensor) -> None:
        self.token = torch.empty(token.shape, dtype=token.dtype, pin_memory=token.is_cuda)
        self.done = create_event(is_captured=False)


class StepInFlight(NamedTuple):
    """A step in flight, its launch time, and the slot of its token."""

    step: LaunchedStep | CapturedStep
    launched: int
    slot: TokenSlot


class RunAhead:
    """Runs several steps in a row: the host queues them, and reads one while the next is in flight."""

    def __init__(
        self,
        decoder: Decoder,
        sampling: SamplingOptions,
        mode: str,
        *,
        uses_graph: bool,
        can_time_graphs: bool = True,
    ) -> None:
        """`can_time_graphs`: the device can time borders between layers within a graph."""
        self._decoder, self._sampling, self._uses_graph = decoder, sampling, uses_graph
        self._times_layers = can_time_graphs or not uses_graph
        self._device_state = DeviceState(decoder)
        self._steps: dict[tuple[int, bool], tuple[LaunchedStep | CapturedStep, ...]] = {}
        self._orders: dict[int, LaunchOrder] = {}  # by context class
        self._is_bare = False
        self._ops_by_scope: dict[str, PlannedOp] = {}
        self._layer_spans: tuple[PlannedOp, ...] = ()
        self._profiler = WindowProfiler(gpu=decoder.state.ids.is_cuda)
        self._slots = [TokenSlot(self._device_state.token) for _ in range(STEPS_IN_FLIGHT)]
        self._in_flight: list[StepInFlight] = []
        self._last_end = 0  # when the last timed step did
        self._timed_steps: list[TimedStep] = []
        self._context_before = 0  # the context before the first of them
        self._window: tuple[int, ProfilerWindow] | None = None  # and the steps in it
        self._budget = WindowBudget(0.0)
        self.set_mode(mode)

    def set_mode(self, name: str) -> str:
        """Set the capture mode; return a message about it.

        spans: never profile; windows: within a budget; continuous: always; off: also time no layers.
        """
        self._budget, answer = select_window_budget(name, self._budget)
        self._is_bare = name == OFF if name in WINDOW_BUDGETS else self._is_bare
        return answer

    def warm_up(self, position: int) -> None:
        """Compile the first step, and learn which kernel belongs to which op."""
        self._device_state.set_input(torch.zeros_like(self._device_state.token), position)
        self._ensure_steps(position)

    def prepare(self, position: int, count: int) -> bool:
        """Compile what the next `count` steps need; return whether anything was missing.

        A step of a longer context is compiled here, between two steps, and not within one.
        """
        built = {context for context, is_bare in self._steps if is_bare == self._is_bare}
        missing = {find_context_class(position + i) for i in range(count)} - built
        for context in missing:
            self._ensure_steps(context - 1)
        return bool(missing)

    def set_input(self, token: torch.Tensor, position: int) -> None:
        """Set the token of each sequence from which the next steps continue, and its position."""
        self._device_state.set_input(token, position)

    def run(
        self, timestamps: OpTimestamps, position: int, count: int, *, queue_next: bool = False
    ) -> list[int]:
        """Run `count` steps from a position on; return the tokens of the first sequence.

        With `queue_next` one more step is queued before the last token is awaited, unless a profiler window
        is due: a window covers the steps of one call only.
        """
        self._context_before = position
        start = now()
        is_profiled = not self._in_flight and self._budget.is_due(start)
        if is_profiled:
            self._profiler.start()
            torch.accelerator.synchronize()
        ahead = queue_next and not is_profiled and not self._budget.is_due(start)
        tokens = self._launch_steps(
            range(position + len(self._in_flight), position + count + ahead), is_profiled=is_profiled
        )
        timestamps.mark()
        tokens += [self._finish_oldest_step() for _ in range(count - len(tokens))]
        timestamps.mark()
        self._close_window(timestamps.end - start, is_profiled=is_profiled, steps=count)
        return tokens

    def drop_queued_steps(self) -> None:
        """Wait for steps queued ahead and undo them: their tokens are not needed."""
        torch.accelerator.synchronize()
        self._device_state.undo_draws(len(self._in_flight))
        self._in_flight = []

    def write(self, emitter: Emitter, assign_ids: AssignIds, *, context: int, **facts: Any) -> None:
        """Write the device times of the steps up to a context; later steps are dropped."""
        spans = assign_ids(self._layer_spans)
        steps = self._timed_steps[: context - self._context_before]
        for at, timed in enumerate(steps, self._context_before + 1):
            starts = [timed.start + offset for offset in timed.offsets[:-1]]
            durations = [b - a for a, b in pairwise(timed.offsets)]
            emitter.columns(spans, starts, durations, context=at, **facts)
        if self._window:
            emitter.cost_ns += self._profiler.overhead_ns
            count, window = self._window
            facts |= {"steps": count, "context": context}
            write_kernels(emitter, assign_ids, window, self._ops_by_scope, **facts)
        self.forget_times()

    def forget_times(self) -> None:
        """Drop the device times of the last steps."""
        self._timed_steps, self._window = [], None

    def close(self) -> None:
        """Wait for steps in flight, and free the graphs while the device still exists."""
        torch.accelerator.synchronize()
        for step in (step for pair in self._steps.values() for step in pair):
            if isinstance(step, CapturedStep):
                step.close()
        self._steps, self._in_flight = {}, []

    def _launch_steps(self, positions: range, *, is_profiled: bool) -> list[int]:
        """Launch the steps of these positions; return the tokens of steps that had to finish first."""
        tokens = []
        for position in positions:
            if len(self._in_flight) == STEPS_IN_FLIGHT:
                tokens.append(self._finish_oldest_step())
            slot = position % STEPS_IN_FLIGHT
            step = StepInFlight(self._ensure_steps(position)[slot], now(), self._slots[slot])
            step.step.run(is_profiled=is_profiled)
            # the token is on its way to the host before the next step overwrites it
            step.slot.token.copy_(self._device_state.token, non_blocking=True)
            step.slot.done.record()
            self._in_flight.append(step)
        return tokens

    def _finish_oldest_step(self) -> int:
        """Wait for the oldest step in flight, store its times, and return its token."""
        step, launched, slot = self._in_flight.pop(0)
        slot.done.synchronize()
        if offsets := step.read_offsets():
            # it began when it was launched, or when the one before it ended
            timed = TimedStep(max(launched, self._last_end), offsets)
            self._last_end = timed.end
            self._timed_steps.append(timed)
        return int(slot.token[0])

    def _close_window(self, duration: int, *, is_profiled: bool, steps: int) -> None:
        if not is_profiled:
            self._budget.add_plain_step(duration)
            return
        window = self._profiler.stop()
        orders = list(self._orders.values())
        self._window = steps, (assign_replay_owners(window, orders) if self._uses_graph else window)
        self._budget.add_window(now(), self._profiler.overhead_ns, duration)

    def _ensure_steps(self, position: int) -> tuple[LaunchedStep | CapturedStep, ...]:
        """Return the steps for the context class of a position, one per step in flight."""
        context = find_context_class(position)
        kind = context, self._is_bare
        if kind not in self._steps:
            with self._device_state.rehearse() as restore:
                self._steps[kind] = self._build_steps(context, restore)
        return self._steps[kind]

    def _build_steps(
        self, context: int, restore: Callable[[], None]
    ) -> tuple[LaunchedStep | CapturedStep, ...]:
        fused = FusedStep(self._decoder, self._device_state, self._sampling, context)
        parts = group_by_layer(fused.ops, fused.plan)
        self._ops_by_scope = {row.scope: row for row in fused.plan}
        self._layer_spans = tuple(part for part, _ in parts)
        is_bare = self._is_bare or not self._times_layers
        step = LaunchedStep(parts, is_bare=is_bare)
        step.run()  # compiles
        if not self._uses_graph:
            return step, *(LaunchedStep(parts, is_bare=is_bare) for _ in range(STEPS_IN_FLIGHT - 1))
        if not self._is_bare:
            self._orders[context] = self._learn_launch_order(step, restore)
        return tuple(CapturedStep(parts, is_bare=is_bare) for _ in range(STEPS_IN_FLIGHT))

    def _learn_launch_order(self, step: LaunchedStep, restore: Callable[[], None]) -> LaunchOrder:
        """Profile a step for the order of its kernels; an empty order, which fits no replay, if all attempts
        miss some.
        """
        for _ in range(PROFILE_ATTEMPTS):
            restore()
            self._profiler.start()
            step.run(is_profiled=True)
            torch.accelerator.synchronize()
            order = build_launch_order(self._profiler.stop())
            restore()
            if order is not None:
                return order
        return LaunchOrder(())
