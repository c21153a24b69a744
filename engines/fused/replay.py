"""Decode steps that run ahead of the host: fused kernels, launched one by one or as a captured graph."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import torch

from capture.native.emit import Emitter, now
from capture.record.kernels import Duty, Profiler, Window
from capture.record.launch_order import LaunchOrder, launch_order, with_owners
from engines.decoder import Decoder
from engines.fused.step import DeviceState, FusedStep, context_class
from engines.host.device import (
    BUDGETS,
    NS_PER_MS,
    OFF,
    Numbers,
    Part,
    annotations,
    budget,
    by_layer,
    write_kernels,
)
from engines.host.trace import Ticks
from engines.plan import Row
from engines.sample import SamplingOptions

Parts = Sequence[Part]
TRIES: Final = 3  # to see every kernel of a step in a window
AT_ONCE: Final = 2  # steps under way: one runs while the borders of the other are read


class Event(Protocol):
    """A mark in a device's queue, with a time."""

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Any) -> float: ...


class Launched:
    """Runs a step kernel by kernel, with an event at every border between layers; a bare one has none."""

    def __init__(self, parts: Parts, *, external: bool = False, bare: bool = False) -> None:
        self._parts = parts
        self.borders = [_event(external=external) for _ in range(0 if bare else len(parts) + 1)]
        self._notes = annotations(scope for _, ops in parts for scope, _ in ops)

    def run(self, *, watched: bool = False) -> None:
        borders = iter(self.borders)
        _record(borders)
        for _, ops in self._parts:
            for scope, op in ops:
                if watched:
                    with self._notes[scope]:
                        op()
                else:
                    op()
            _record(borders)

    def offsets(self) -> list[int]:
        """Wait for the last border; return the nanoseconds from the first border to each."""
        if not self.borders:
            return []
        self.borders[-1].synchronize()
        return [int(self.borders[0].elapsed_time(border) * NS_PER_MS) for border in self.borders]


class Captured:
    """Runs the same step as a graph; its borders are read while the next one runs."""

    def __init__(self, parts: Parts, *, bare: bool = False) -> None:
        self._launched = Launched(parts, external=True, bare=bare)
        self._graph = capture(self._launched.run)
        self._done = _event(external=False)

    def run(self, *, watched: bool = False) -> None:
        self._graph.replay()
        self._done.record()

    def offsets(self) -> list[int]:
        """Wait for the end and return the same: a border in a graph does not tell whether it was reached."""
        self._done.synchronize()
        return self._launched.offsets()

    def close(self) -> None:
        self._graph.reset()


def capture(run: Callable[[], None]) -> Any:
    """Return a graph of what `run` launches."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def _record(borders: Iterator[Event]) -> None:
    """Record the next border, where there is one."""
    for border in borders:
        border.record()
        return


def _event(*, external: bool) -> Event:
    event: Event = torch.cuda.Event(enable_timing=True, external=external)
    return event


@dataclass(frozen=True)
class Timed:
    """When a step began on the device, and its borders from there, in nanoseconds."""

    start: int
    offsets: list[int]

    @property
    def end(self) -> int:
        return self.start + self.offsets[-1]


class Replay:
    """Runs several steps in a row: the host queues them, and reads of one while the next is under way."""

    def __init__(self, decoder: Decoder, sampling: SamplingOptions, mode: str, *, graph: bool) -> None:
        self._decoder, self._sampling, self._graph = decoder, sampling, graph
        self._device_state = DeviceState(decoder)
        self._steps: dict[tuple[int, bool], tuple[Launched | Captured, ...]] = {}
        self._orders: dict[int, LaunchOrder] = {}  # by context class
        self._bare = False
        self._planned: dict[str, Row] = {}
        self._spans: tuple[Row, ...] = ()
        self._profiler = Profiler(gpu=decoder.state.ids.is_cuda)
        self._timed: list[Timed] = []
        self._before = 0  # the context before the first of them
        self._window: Window | None = None
        self._duty = Duty(0.0)
        self.mode(mode)

    def mode(self, name: str) -> str:
        """Choose when the profiler watches (spans: never; windows: within a budget; continuous: always); off
        times no layers, either, and puts no event into a graph. Return a sentence on it.
        """
        self._duty, answer = budget(name, self._duty)
        self._bare = name == OFF if name in BUDGETS else self._bare
        return answer

    def warm_up(self, at: int) -> None:
        """Compile what the first step needs, and learn which kernel belongs to which row."""
        self._device_state.place(torch.zeros_like(self._device_state.token), at)
        self._ready(at)

    def prepare(self, at: int, count: int) -> bool:
        """Prepare what so many steps from a position on need; return whether anything was lacking.

        A step of a longer context is compiled here, between two steps, and not within one.
        """
        lacking = {context_class(at + i) for i in range(count)} - {kept for kept, _ in self._ready_classes()}
        for context in lacking:
            self._ready(context - 1)
        return bool(lacking)

    def place(self, token: torch.Tensor, at: int) -> None:
        """Let the next steps go on from this token of each sequence, at a position."""
        self._device_state.place(token, at)

    def run(self, ticks: Ticks, at: int, count: int) -> list[int]:
        """Run so many steps from a position on; return the tokens of the first sequence."""
        self._before = at
        steps = [self._ready(at + i)[i % AT_ONCE] for i in range(count)]
        begun = now()
        watched = self._duty.due(begun)
        if watched:
            self._profiler.start()
            torch.accelerator.synchronize()
        tokens, running = self._queue(steps, watched)
        ticks.mark()
        torch.accelerator.synchronize()
        for step, anchor in running:
            self._time(step, anchor)
        ticks.mark()
        took = ticks.end - begun
        if watched:
            window = self._profiler.stop()
            orders = list(self._orders.values())
            self._window = with_owners(window, orders) if self._graph else window
            self._duty.add_window(now(), self._profiler.overhead_ns, took)
        else:
            self._duty.add_plain_step(took)
        return [int(token) for token in tokens[:, 0]]

    def write(self, emitter: Emitter, numbers: Numbers, *, context: int, **facts: Any) -> None:
        """Write what the device says of the steps up to a context; later ones are dropped."""
        spans = numbers(self._spans)
        for at, timed in enumerate(self._timed[: context - self._before], self._before + 1):
            starts = [timed.start + offset for offset in timed.offsets[:-1]]
            durations = [b - a for a, b in pairwise(timed.offsets)]
            emitter.columns(spans, starts, durations, context=at, **facts)
        if self._window:
            emitter.cost_ns += self._profiler.overhead_ns
            write_kernels(emitter, numbers, self._window, self._planned, context=context, **facts)
        self.forget()

    def forget(self) -> None:
        """Drop what the device said of the last steps."""
        self._timed, self._window = [], None

    def close(self) -> None:
        """Wait for what is under way, and free the graphs before the device goes."""
        torch.accelerator.synchronize()
        for step in (step for pair in self._steps.values() for step in pair):
            if isinstance(step, Captured):
                step.close()
        self._steps = {}

    def _queue(
        self, steps: Sequence[Launched | Captured], watched: bool
    ) -> tuple[torch.Tensor, list[tuple[Launched | Captured, int]]]:
        """Launch the steps; return their tokens, and the steps whose borders are still to be read.

        Each token is on its way to the host before the next step overwrites it.
        """
        token = self._device_state.token
        tokens = torch.empty(len(steps), len(token), dtype=torch.long, pin_memory=token.is_cuda)
        running: list[tuple[Launched | Captured, int]] = []
        for step, place in zip(steps, tokens, strict=True):
            if len(running) == AT_ONCE:
                self._time(*running.pop(0))
            running.append((step, now()))
            step.run(watched=watched)
            place.copy_(token, non_blocking=True)
        return tokens, running

    def _time(self, step: Launched | Captured, anchor: int) -> None:
        """Note when a step began: when it was launched, or when the one before it ended."""
        if offsets := step.offsets():
            previous_end = self._timed[-1].end if self._timed else anchor
            self._timed.append(Timed(max(anchor, previous_end), offsets))

    def _ready(self, position: int) -> tuple[Launched | Captured, ...]:
        """Return the step for the class of contexts of a position, as often as steps run at once."""
        context = context_class(position)
        kind = context, self._bare
        if kind not in self._steps:
            with self._device_state.rehearsal() as restore:
                self._steps[kind] = self._prepared(context, restore)
        return self._steps[kind]

    def _ready_classes(self) -> list[tuple[int, bool]]:
        return [kind for kind in self._steps if kind[1] == self._bare]

    def _prepared(self, context: int, restore: Callable[[], None]) -> tuple[Launched | Captured, ...]:
        fused = FusedStep(self._decoder, self._device_state, self._sampling, context)
        parts = by_layer(fused.ops, fused.rows)
        self._planned = {row.scope: row for row in fused.rows}
        self._spans = tuple(part for part, _ in parts)
        launched = Launched(parts, bare=self._bare)
        launched.run()  # compiles
        if not self._graph:
            return launched, *(Launched(parts, bare=self._bare) for _ in range(AT_ONCE - 1))
        if not self._bare:
            self._orders[context] = self._learned(launched, restore)
        return tuple(Captured(parts, bare=self._bare) for _ in range(AT_ONCE))

    def _learned(self, launched: Launched, restore: Callable[[], None]) -> LaunchOrder:
        """Return the order of the kernels of a step; an empty one, which fits no replay, where a window shows
        all of them in none of a few tries.
        """
        for _ in range(TRIES):
            restore()
            self._profiler.start()
            launched.run(watched=True)
            torch.accelerator.synchronize()
            order = launch_order(self._profiler.stop())
            restore()
            if order is not None:
                return order
        return LaunchOrder(())
