"""Decode steps that run ahead of the host: fused kernels, launched one by one or as a captured graph.

A captured step tells no annotations when it is replayed. What its kernels are is known from one launched
step that was watched: the i-th kernel of a replay is the i-th of that step, if its name says so too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, Final, Protocol

import torch

from capture.native.emit import Emitter, now
from capture.record.kernels import Duty, Profiler, Window
from capture.record.kernels import Row as Kernel
from engines.decoder import Decoder
from engines.fused import Carried, FusedStep, context_class
from engines.host.device import NS_PER_MS, Numbers, Part, annotations, budget, by_layer, write_kernels
from engines.host.trace import Ticks
from engines.plan import Row
from engines.sample import Taste

Parts = Sequence[Part]
AT_ONCE: Final = 2  # steps under way: one runs while the borders of the other are read


class Event(Protocol):
    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Any) -> float: ...


@dataclass(frozen=True)
class Score:
    """The kernels of a step in their order: name, and the scope of the row that launched it."""

    kernels: tuple[tuple[str, str | None], ...]

    def attribute(self, replayed: Sequence[Kernel]) -> list[Kernel] | None:
        """The kernels of one replay with their owners; nothing where they are not those of the score.

        What a runtime puts before the first kernel of a graph belongs to nobody.
        """
        extra = len(replayed) - len(self.kernels)
        if extra < 0 or any(
            k.name != name for k, (name, _) in zip(replayed[extra:], self.kernels, strict=True)
        ):
            return None
        owners = [None] * extra + [scope for _, scope in self.kernels]
        return [kernel._replace(owner=owner) for kernel, owner in zip(replayed, owners, strict=True)]


def score(window: Window) -> Score:
    """Of a step that was launched kernel by kernel, and watched."""
    seen = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("start"))
    return Score(tuple((k.name, k.owner) for k in seen))


def attributed(window: Window, known: Score) -> Window:
    """The window with the owners of the kernels of every replay in it."""
    rows: list[Kernel] = []
    strange = 0
    on_gpu = sorted((k for k in window.rows if k.lens == "gpu"), key=attrgetter("launch", "start"))
    for _, group in groupby(on_gpu, key=attrgetter("launch")):
        replayed = list(group)
        if len(replayed) == 1:  # a copy or a fill beside the graph
            rows += replayed
            continue
        found = known.attribute(replayed)
        strange += found is None
        rows += found or [kernel._replace(owner=None) for kernel in replayed]
    problems = dict(window.problems)
    if strange:
        problems["replays whose kernels are not those of the step"] = strange
    return Window(rows, problems)


class Launched:
    """A step, kernel by kernel, with an event at every border between layers."""

    def __init__(self, parts: Parts, *, external: bool = False) -> None:
        self._parts = parts
        self.borders = [_event(external=external) for _ in range(len(parts) + 1)]
        self._notes = annotations(scope for _, ops in parts for scope, _ in ops)

    def run(self, *, watched: bool = False) -> None:
        self.borders[0].record()
        for (_, ops), border in zip(self._parts, self.borders[1:], strict=True):
            for scope, op in ops:
                if watched:
                    with self._notes[scope]:
                        op()
                else:
                    op()
            border.record()

    def offsets(self) -> list[int]:
        """Nanoseconds from the first border to each, once the last is reached."""
        self.borders[-1].synchronize()
        return [int(self.borders[0].elapsed_time(border) * NS_PER_MS) for border in self.borders]


class Captured:
    """The same step as a graph; its borders are read while the next one runs."""

    def __init__(self, parts: Parts) -> None:
        self._launched = Launched(parts, external=True)
        self._graph = capture(self._launched.run)
        self._done = _event(external=False)

    def run(self, *, watched: bool = False) -> None:
        self._graph.replay()
        self._done.record()

    def offsets(self) -> list[int]:
        """A border within a graph does not say that it is yet to be reached again: the end is waited for."""
        self._done.synchronize()
        return self._launched.offsets()

    def close(self) -> None:
        self._graph.reset()


def capture(run: Callable[[], None]) -> Any:
    """What was launched, as one thing to launch."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def _event(*, external: bool) -> Event:
    event: Event = torch.cuda.Event(enable_timing=True, external=external)
    return event


@dataclass(frozen=True)
class Timed:
    """When a step began on the device, and its borders from there."""

    start: int
    offsets: list[int]

    @property
    def end(self) -> int:
        return self.start + self.offsets[-1]


class Replay:
    """Several steps in a row: the host queues them, and reads of one while the next is under way."""

    def __init__(self, decoder: Decoder, taste: Taste, mode: str, *, graph: bool) -> None:
        self._decoder, self._taste, self._graph = decoder, taste, graph
        self._carried = Carried(decoder)
        self._steps: dict[int, tuple[Launched | Captured, ...]] = {}
        self._planned: dict[str, Row] = {}
        self._spans: tuple[Row, ...] = ()
        self._score = Score(())
        self._profiler = Profiler(gpu=decoder.state.ids.is_cuda)
        self._timed: list[Timed] = []
        self._before = 0  # the context before the first of them
        self._window: Window | None = None
        self._duty = Duty(0.0)
        self.mode(mode)

    def mode(self, name: str) -> str:
        """spans: never a window; windows: within the budget; continuous: always."""
        self._duty, told = budget(name, self._duty)
        return told

    def warm_up(self, at: int) -> None:
        """Compiles what the first step needs, and learns which kernel belongs to which row."""
        self._carried.place(torch.zeros_like(self._carried.token), at)
        self._ready(at)

    def place(self, token: torch.Tensor, at: int) -> None:
        """The next steps go on from this token of each sequence, at a position."""
        self._carried.place(token, at)

    def run(self, ticks: Ticks, at: int, count: int) -> list[int]:
        """So many steps from a position on; the tokens of the first sequence."""
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
            self._window = attributed(window, self._score) if self._graph else window
            self._duty.add_window(now(), self._profiler.overhead_ns, took)
        else:
            self._duty.add_plain_step(took)
        return [int(token) for token in tokens[:, 0]]

    def write(self, emitter: Emitter, numbers: Numbers, *, context: int, **facts: Any) -> None:
        """What the device says of the steps that were run, up to a context: the others were for nothing."""
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
        """What the device said is not asked for."""
        self._timed, self._window = [], None

    def close(self) -> None:
        """Nothing is left under way, and no graph outlives the device."""
        torch.accelerator.synchronize()
        for step in (step for pair in self._steps.values() for step in pair):
            if isinstance(step, Captured):
                step.close()
        self._steps = {}

    def _queue(
        self, steps: Sequence[Launched | Captured], watched: bool
    ) -> tuple[torch.Tensor, list[tuple[Launched | Captured, int]]]:
        """Launches the steps, and gives their tokens and those whose borders are still to be read.

        Each token is on its way to the host before the next step overwrites it.
        """
        token = self._carried.token
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
        """A step begins when it is launched, or when the one before it ends."""
        before = self._timed[-1].end if self._timed else anchor
        self._timed.append(Timed(max(anchor, before), step.offsets()))

    def _ready(self, position: int) -> tuple[Launched | Captured, ...]:
        """The step for the class of contexts of a position, as often as steps run at once."""
        context = context_class(position)
        if context not in self._steps:
            with self._carried.rehearsal() as again:
                self._steps[context] = self._prepared(context, again)
        return self._steps[context]

    def _prepared(self, context: int, again: Callable[[], None]) -> tuple[Launched | Captured, ...]:
        fused = FusedStep(self._decoder, self._carried, self._taste, context)
        parts = by_layer(fused.ops, fused.rows)
        self._planned = {row.scope: row for row in fused.rows}
        self._spans = tuple(part for part, _ in parts)
        launched = Launched(parts)
        launched.run()  # compiles
        if not self._graph:
            return launched, *(Launched(parts) for _ in range(AT_ONCE - 1))
        again()
        self._profiler.start()
        launched.run(watched=True)
        torch.accelerator.synchronize()
        self._score = score(self._profiler.stop())
        again()
        return tuple(Captured(parts) for _ in range(AT_ONCE))
