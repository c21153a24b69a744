"""Decode steps that run ahead of the host, in fused kernels, launched one by one or as a captured graph.

The next step is queued before the last one is read, so the device never waits for the host between tokens.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch

from capture.native.emit import Emitter, now
from capture.record.launch_order import LaunchOrder, assign_replay_owners, build_launch_order
from capture.record.profiler_windows import ProfilerWindow
from engines.decoder import Decoder
from engines.fused.fused_step import DeviceState, FusedStep, find_context_class
from engines.host.op_runners import (
    AssignIds,
    LaunchedStep,
    OpTimestamps,
    StepPart,
    StepWindows,
    capture_graph,
    group_by_layer,
    write_kernels,
    write_spans,
)
from engines.plan import Plan, PlannedOp
from engines.token_sampling import SamplingOptions

PROFILE_ATTEMPTS: Final = 3  # to see every kernel of a step in a window
STEPS_IN_FLIGHT: Final = 2  # steps under way: one runs while the token and the borders of the other are read


class CapturedStep(LaunchedStep):
    """Runs the same step as a graph.

    An event within a graph does not show whether it was reached, so readers wait for an event behind it.
    """

    def __init__(self, parts: list[StepPart], *, is_bare: bool) -> None:
        super().__init__(parts, lambda: create_event(is_captured=True), is_bare=is_bare)
        self._graph = capture_graph(super().run)

    def run(self, *, is_profiled: bool = False) -> None:
        self._graph.replay()

    def close(self) -> None:
        self._graph.reset()


def create_event(*, is_captured: bool) -> torch.cuda.Event:
    """Create a timed event; `is_captured` lets it be recorded within a graph."""
    return torch.cuda.Event(enable_timing=True, external=is_captured)


class TokenSlot(NamedTuple):
    """Host buffer for the token of a step, and the event behind the copy."""

    token: torch.Tensor
    done: torch.cuda.Event


class StepInFlight(NamedTuple):
    """A step in flight, its launch time, and the slot of its token."""

    step: LaunchedStep
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
        self._steps: dict[tuple[int, bool], tuple[LaunchedStep, ...]] = {}
        self._orders: dict[int, LaunchOrder] = {}  # by context class
        self._ops_by_scope: dict[str, PlannedOp] = {}
        self._layer_spans: Plan = ()
        self._windows = StepWindows(gpu=decoder.state.ids.is_cuda)
        token = self._device_state.token
        buffers = (
            torch.empty_like(token, device="cpu", pin_memory=token.is_cuda) for _ in range(STEPS_IN_FLIGHT)
        )
        self._slots = [TokenSlot(buffer, create_event(is_captured=False)) for buffer in buffers]
        self._in_flight: list[StepInFlight] = []
        self._last_end = 0  # when the last timed step did
        self._timed_steps: list[tuple[int, list[int]]] = []  # start and offsets of the borders
        self._context_before = 0  # the context before the first of them
        self._window: tuple[int, ProfilerWindow] | None = None  # and the steps in it
        self.set_mode(mode)

    def set_mode(self, name: str) -> str:
        return self._windows.set_mode(name)

    def warm_up(self, position: int) -> None:
        """Compile the first step, and learn which kernel belongs to which op."""
        self._device_state.set_input(torch.zeros_like(self._device_state.token), position)
        self._ensure_steps(position)

    def prepare(self, position: int, count: int) -> bool:
        """Compile what the next `count` steps need; return whether anything was missing.

        A step of a longer context is compiled here, between two steps, and not within one.
        """
        built = {context for context, is_bare in self._steps if is_bare == self._windows.is_bare}
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
        is_profiled = not self._in_flight and self._windows.open_if_due(start)
        ahead = queue_next and not is_profiled and not self._windows.budget.is_due(start)
        positions = range(position + len(self._in_flight), position + count + ahead)
        tokens = self._launch_steps(positions, is_profiled=is_profiled)
        timestamps.mark()
        tokens += [self._finish_oldest_step() for _ in range(count - len(tokens))]
        timestamps.mark()
        if window := self._windows.close(timestamps.end - start):
            orders = list(self._orders.values())
            self._window = count, (assign_replay_owners(window, orders) if self._uses_graph else window)
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
        for at, (start, offsets) in enumerate(steps, self._context_before + 1):
            write_spans(emitter, spans, start, offsets, context=at, **facts)
        if self._window:
            emitter.cost_ns += self._windows.profiler.overhead_ns
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
            start = max(launched, self._last_end)
            self._last_end = start + offsets[-1]
            self._timed_steps.append((start, offsets))
        return int(slot.token[0])

    def _ensure_steps(self, position: int) -> tuple[LaunchedStep, ...]:
        """Return the steps for the context class of a position, one per step in flight."""
        context = find_context_class(position)
        kind = context, self._windows.is_bare
        if kind not in self._steps:
            with self._device_state.rehearse() as restore:
                self._steps[kind] = self._build_steps(context, restore)
        return self._steps[kind]

    def _build_steps(self, context: int, restore: Callable[[], None]) -> tuple[LaunchedStep, ...]:
        fused = FusedStep(self._decoder, self._device_state, self._sampling, context)
        parts = group_by_layer(fused.ops, fused.plan)
        self._ops_by_scope = {row.scope: row for row in fused.plan}
        self._layer_spans = tuple(part for part, _ in parts)
        is_bare = self._windows.is_bare or not self._times_layers

        def launch() -> LaunchedStep:
            return LaunchedStep(parts, lambda: create_event(is_captured=False), is_bare=is_bare)

        step = launch()
        step.run()  # compiles
        if not self._uses_graph:
            return step, *(launch() for _ in range(STEPS_IN_FLIGHT - 1))
        if not self._windows.is_bare:
            self._orders[context] = self._learn_launch_order(step, restore)
        return tuple(CapturedStep(parts, is_bare=is_bare) for _ in range(STEPS_IN_FLIGHT))

    def _learn_launch_order(self, step: LaunchedStep, restore: Callable[[], None]) -> LaunchOrder:
        """Profile a step for the order of its kernels.

        If all attempts miss some, the order is empty, which fits no replay.
        """
        profiler = self._windows.profiler
        for _ in range(PROFILE_ATTEMPTS):
            restore()
            profiler.start()
            step.run(is_profiled=True)
            torch.accelerator.synchronize()
            order = build_launch_order(profiler.stop())
            restore()
            if order is not None:
                return order
        return LaunchOrder(())
