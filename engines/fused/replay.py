"""Decode steps that run ahead of the host: fused kernels, launched one by one or as a captured graph.

The next step is queued before the last one is read: the device never waits for the host between two tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import torch

from capture.native.emit import Emitter, now
from capture.record.kernels import Duty, Profiler, Window
from capture.record.launch_order import LaunchOrder, launch_order, with_owners
from engines.decoder import Decoder
from engines.fused.launched import Captured, Event, Launched, new_event
from engines.fused.step import DeviceState, FusedStep, context_class
from engines.host.device import BUDGETS, OFF, Numbers, budget, by_layer, write_kernels
from engines.host.trace import Ticks
from engines.plan import Row
from engines.sample import SamplingOptions

TRIES: Final = 3  # to see every kernel of a step in a window
AT_ONCE: Final = 2  # steps under way: one runs while the token and the borders of the other are read


@dataclass(frozen=True)
class Timed:
    """When a step began on the device, and its borders from there, in nanoseconds."""

    start: int
    offsets: list[int]

    @property
    def end(self) -> int:
        return self.start + self.offsets[-1]


class Slot:
    """Where the token of a step arrives on the host, and the event behind it."""

    def __init__(self, token: torch.Tensor) -> None:
        self.token = torch.empty(token.shape, dtype=token.dtype, pin_memory=token.is_cuda)
        self.done: Event = new_event(external=False)


class Flight(NamedTuple):
    """A step under way, when it was launched, and where its token arrives."""

    step: Launched | Captured
    launched: int
    slot: Slot


class Replay:
    """Runs several steps in a row: the host queues them, and reads of one while the next is under way."""

    def __init__(
        self,
        decoder: Decoder,
        sampling: SamplingOptions,
        mode: str,
        *,
        graph: bool,
        borders: bool = True,
    ) -> None:
        """Build a replay; `borders` says whether the device times borders between layers within a graph."""
        self._decoder, self._sampling, self._graph = decoder, sampling, graph
        self._borders = borders or not graph
        self._device_state = DeviceState(decoder)
        self._steps: dict[tuple[int, bool], tuple[Launched | Captured, ...]] = {}
        self._orders: dict[int, LaunchOrder] = {}  # by context class
        self._bare = False
        self._planned: dict[str, Row] = {}
        self._spans: tuple[Row, ...] = ()
        self._profiler = Profiler(gpu=decoder.state.ids.is_cuda)
        self._slots = [Slot(self._device_state.token) for _ in range(AT_ONCE)]
        self._flying: list[Flight] = []
        self._ended = 0  # when the last timed step did
        self._timed: list[Timed] = []
        self._before = 0  # the context before the first of them
        self._window: tuple[int, Window] | None = None  # and the steps in it
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

    def run(self, ticks: Ticks, at: int, count: int, *, further: bool = False) -> list[int]:
        """Run so many steps from a position on; return the tokens of the first sequence.

        With `further` one more step is queued before the last token is waited for, unless a window of the
        profiler is to open: that holds nothing but the steps of a call.
        """
        self._before = at
        begun = now()
        watched = not self._flying and self._duty.due(begun)
        if watched:
            self._profiler.start()
            torch.accelerator.synchronize()
        ahead = further and not watched and not self._duty.due(begun)
        tokens = self._launch(range(at + len(self._flying), at + count + ahead), watched=watched)
        ticks.mark()
        tokens += [self._land() for _ in range(count - len(tokens))]
        ticks.mark()
        self._end_window(ticks.end - begun, watched=watched, steps=count)
        return tokens

    def settle(self) -> None:
        """Wait for what was queued ahead, and take it back: nobody wants its token."""
        torch.accelerator.synchronize()
        self._device_state.undo(len(self._flying))
        self._flying = []

    def write(self, emitter: Emitter, numbers: Numbers, *, context: int, **facts: Any) -> None:
        """Write what the device says of the steps up to a context; later ones are dropped."""
        spans = numbers(self._spans)
        for at, timed in enumerate(self._timed[: context - self._before], self._before + 1):
            starts = [timed.start + offset for offset in timed.offsets[:-1]]
            durations = [b - a for a, b in pairwise(timed.offsets)]
            emitter.columns(spans, starts, durations, context=at, **facts)
        if self._window:
            emitter.cost_ns += self._profiler.overhead_ns
            steps, window = self._window
            write_kernels(emitter, numbers, window, self._planned, steps=steps, context=context, **facts)
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
        self._steps, self._flying = {}, []

    def _launch(self, positions: range, *, watched: bool) -> list[int]:
        """Launch the steps of these positions; return the tokens of those that had to be done for that."""
        tokens = []
        for position in positions:
            if len(self._flying) == AT_ONCE:
                tokens.append(self._land())
            place = position % AT_ONCE
            flight = Flight(self._ready(position)[place], now(), self._slots[place])
            flight.step.run(watched=watched)
            # the token is on its way to the host before the next step overwrites it
            flight.slot.token.copy_(self._device_state.token, non_blocking=True)
            flight.slot.done.record()
            self._flying.append(flight)
        return tokens

    def _land(self) -> int:
        """Wait for the step that was launched first, note when it ran, and return its token."""
        step, launched, slot = self._flying.pop(0)
        slot.done.synchronize()
        if offsets := step.offsets():
            # it began when it was launched, or when the one before it ended
            timed = Timed(max(launched, self._ended), offsets)
            self._ended = timed.end
            self._timed.append(timed)
        return int(slot.token[0])

    def _end_window(self, took: int, *, watched: bool, steps: int) -> None:
        if not watched:
            self._duty.add_plain_step(took)
            return
        window = self._profiler.stop()
        orders = list(self._orders.values())
        self._window = steps, (with_owners(window, orders) if self._graph else window)
        self._duty.add_window(now(), self._profiler.overhead_ns, took)

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
        bare = self._bare or not self._borders
        launched = Launched(parts, bare=bare)
        launched.run()  # compiles
        if not self._graph:
            return launched, *(Launched(parts, bare=bare) for _ in range(AT_ONCE - 1))
        if not self._bare:
            self._orders[context] = self._learned(launched, restore)
        return tuple(Captured(parts, bare=bare) for _ in range(AT_ONCE))

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
