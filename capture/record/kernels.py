"""Kernels by torch's own profiler: short windows, read in process, each row with the module that owns it.

A window costs time, so windows open only so often that a stated share of the wall clock is not passed.
`fold_window` is a pure function on plain tuples; everything that touches torch is at the end of this file.
"""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import bisect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..native.emit import Emitter, clock_pair, now
from ..native.schema import WINDOW
from .kineto_log import silent

MARK: Final = "tt:"  # begins the annotations that say whose work is done within them
BUDGET: Final = 0.03

_ENGINE: Final = "autograd::engine::evaluate_function: "
_ACCUMULATE: Final = "AccumulateGrad"
_OPTIMIZER: Final = "Optimizer."
_LAUNCHES: Final = ("Launch", "Memcpy", "Memset")


class ProfilerEvent(NamedTuple):
    """One event of the profiler; times in ns on the clock of `now`."""

    name: str
    start: int
    end: int
    correlation: int = 0
    linked: int = 0
    kind: str = "cpu_op"  # as kineto calls it: cpu_op, kernel, gpu_memcpy, gpu_memset, cuda_runtime …
    device: int = -1
    stream: int = 0
    thread: int = 0
    sequence: int = -1


class Row(NamedTuple):
    """One piece of leaf work, and the module that owns it."""

    name: str
    start: int
    duration: int
    owner: str | None
    op: str  # the op of the program that launched it
    phase: str | None
    lens: str
    track: str | None
    launch: int = 0  # the same number for all kernels of one launch


@dataclass(frozen=True)
class Window:
    """The rows of one window; `problems` counts what makes them doubtful."""

    rows: list[Row]
    problems: dict[str, int] = field(default_factory=dict)


class _Place(NamedTuple):
    """Where an event lies in the nesting of its thread."""

    owner: str | None  # the innermost annotation around it, or itself if it is one
    outermost: ProfilerEvent  # the outermost op around it, itself if none
    backward: ProfilerEvent | None  # the step of the backward pass around it
    optimizer: bool


def fold_window(events: Sequence[ProfilerEvent]) -> Window:
    """Return the leaf work of a window: kernels where a GPU did it, else the outermost ops."""
    on_gpu = [e for e in events if _is_gpu_work(e)]
    on_cpu = [e for e in events if not _is_gpu(e)]
    places = _places(on_cpu)
    owners = _forward_owners(on_cpu, places)
    if on_gpu:
        return _fold_gpu(on_gpu, on_cpu, places, owners)
    pairs = zip(on_cpu, places)
    return Window([_row(e, place, owners, "wall", None) for e, place in pairs if _is_leaf_op(e, place)])


def _fold_gpu(
    on_gpu: Sequence[ProfilerEvent],
    on_cpu: Sequence[ProfilerEvent],
    places: Sequence[_Place],
    owners: dict[int, str | None],
) -> Window:
    ops = {e.correlation: place for e, place in zip(on_cpu, places) if e.kind == "cpu_op"}
    launches = {e.correlation: (e, p) for e, p in zip(on_cpu, places) if e.kind != "cpu_op"}
    rows, early, torn, orphans = [], 0, 0, 0
    for kernel in on_gpu:
        launch, launch_place = launches.get(kernel.correlation, (None, None))
        if kernel.start <= 0 or kernel.end < kernel.start:
            torn += 1
        elif launch is not None and kernel.start < launch.start:
            early += 1
        else:
            place = ops.get(kernel.linked, launch_place)
            orphans += place is None
            track = f"gpu {kernel.device} stream {kernel.stream}"
            rows.append(_row(kernel, place, owners, "gpu", track))
    problems = {
        "kernels without a time": torn,
        "kernels that began before their launch": early,
        "kernels that nobody is known to have launched": orphans,
        "launches without a kernel": _launches_without_kernel(on_gpu, on_cpu),
    }
    return Window(rows, _above_zero(problems))


def _above_zero(counts: dict[str, int]) -> dict[str, int]:
    return {what: count for what, count in counts.items() if count}


def _launches_without_kernel(on_gpu: Sequence[ProfilerEvent], on_cpu: Sequence[ProfilerEvent]) -> int:
    calls = (e for e in on_cpu if e.kind != "cpu_op")
    launched = {e.correlation for e in calls if any(word in e.name for word in _LAUNCHES)}
    return len(launched - {kernel.correlation for kernel in on_gpu})


def _is_gpu(e: ProfilerEvent) -> bool:
    return e.kind in ("kernel", "gpu_user_annotation") or e.kind.startswith("gpu_")


def _is_gpu_work(e: ProfilerEvent) -> bool:
    return e.kind in ("kernel", "gpu_memcpy", "gpu_memset")


def _places(on_cpu: Sequence[ProfilerEvent]) -> list[_Place]:
    """Return the place of each event, by containment on its own thread."""
    places: list[_Place | None] = [None] * len(on_cpu)
    order = sorted(range(len(on_cpu)), key=lambda i: (on_cpu[i].thread, on_cpu[i].start, -on_cpu[i].end))
    stack: list[int] = []
    for i in order:
        event = on_cpu[i]
        while stack and (on_cpu[stack[-1]].thread != event.thread or on_cpu[stack[-1]].end <= event.start):
            stack.pop()
        around = places[stack[-1]] if stack else None
        parent = on_cpu[stack[-1]] if stack else None
        places[i] = _place(event, parent, around)
        stack.append(i)
    return [place for place in places if place is not None]


def _place(event: ProfilerEvent, parent: ProfilerEvent | None, around: _Place | None) -> _Place:
    own = event.name[len(MARK) :] if event.name.startswith(MARK) else None
    if parent is None or around is None:
        return _Place(own, event, event if event.name.startswith(_ENGINE) else None, False)
    owner = own or around.owner
    backward = around.backward or (event if event.name.startswith(_ENGINE) else None)
    optimizer = around.optimizer or parent.name.startswith(_OPTIMIZER)
    return _Place(owner, event if _is_frame(parent) else around.outermost, backward, optimizer)


def _is_frame(e: ProfilerEvent) -> bool:
    """Return whether an event only encloses work: an annotation, or the optimizer as a whole."""
    return e.name.startswith((MARK, _OPTIMIZER)) or e.kind == "user_annotation"


def _is_leaf_op(e: ProfilerEvent, place: _Place) -> bool:
    return e.kind == "cpu_op" and place.outermost is e and not _is_frame(e)


def _forward_owners(on_cpu: Sequence[ProfilerEvent], places: Sequence[_Place]) -> dict[int, str | None]:
    """Return sequence number → owner of the forward op that has it; the backward op carries the same number.

    An op that needs no gradient shows the number that the next one takes: the last to begin is the owner.
    """
    pairs = zip(on_cpu, places)
    forward = [(e, place) for e, place in pairs if e.sequence >= 0 and place.backward is None]
    forward.sort(key=lambda pair: (pair[0].start, -pair[0].end))
    return {e.sequence: place.owner for e, place in forward}


def _row(
    e: ProfilerEvent, place: _Place | None, owners: dict[int, str | None], lens: str, track: str | None
) -> Row:
    """Return an event as a row; backward work has the owner of its forward work."""
    op = _without(_ENGINE, MARK, name=place.outermost.name) if place else ""
    name = op if lens == "wall" else e.name
    owner, phase = place.owner if place else None, None
    if place and place.backward:
        phase = "backward"
        owner = "gradients" if _ACCUMULATE in place.backward.name else owners.get(place.backward.sequence)
    elif place and place.optimizer:
        owner, phase = "optimizer", "optimizer"
    return Row(name, e.start, e.end - e.start, owner, op, phase, lens, track, e.correlation)


def _without(*prefixes: str, name: str) -> str:
    """Return a name without those of the prefixes that it begins with."""
    for prefix in prefixes:
        name = name[len(prefix) :] if name.startswith(prefix) else name
    return name


def emit_window(emitter: Emitter, lens: str, **facts: Any) -> None:
    """Write that single rows of the lens were recorded in this step: they stand for other steps too."""
    emitter.event("span", "profiler window", t=now(), lens=lens, op=WINDOW, **facts)


class Duty:
    """Says when the next window may open: never so often that windows cost more than the budget."""

    def __init__(self, budget: float = BUDGET, *, warm_up: int = 1) -> None:
        self.budget = budget
        self.windows = 0
        self.spent_ns = 0
        self._warm_up = warm_up
        self._next_at = 0
        self._plain: list[int] = []  # durations of steps without a window, sorted

    def due(self, at: int) -> bool:
        """Return whether this step may have a window; the first steps are a warm-up and never have."""
        if self._warm_up > 0:
            self._warm_up -= 1
            return False
        return self.budget > 0 and at >= self._next_at

    def add_plain_step(self, duration: int) -> None:
        """Take the duration of a step without a window: what a step costs by itself."""
        bisect.insort(self._plain, duration)
        if len(self._plain) > 63:
            del self._plain[:: len(self._plain) - 1]  # the shortest and the longest

    def add_window(self, at: int, overhead: int, step: int) -> None:
        """Charge a window with its handling, and with what it slowed its step down by."""
        usual = self._plain[len(self._plain) // 2] if self._plain else step
        cost = overhead + max(0, step - usual)
        self.windows += 1
        self.spent_ns += cost
        self._next_at = at + (round(cost / self.budget) - cost if self.budget < 1 else 0)


class Profiler:
    """Opens one window at a time. Start and stop it on the thread that runs the model.

    It is the plain profiler that `torch.profiler` has within: that one imports torch's compiler, too.
    """

    def __init__(self, *, gpu: bool) -> None:
        from torch.autograd import profiler

        self._profile: Any = profiler.profile
        self._device = "cuda" if gpu else None
        self._open: Any = None
        self.overhead_ns = 0

    def start(self) -> None:
        """Begin a window."""
        began = now()
        self._open = self._profile(use_kineto=True, use_device=self._device)
        with silent():
            self._open._prepare_trace()
        with silent():
            self._open._start_trace()
        self.overhead_ns = now() - began

    def stop(self) -> Window:
        """End the window and return its rows, their times on the clock of `now`."""
        began = now()
        window, self._open = self._open, None
        with silent():
            window.__exit__(None, None, None)
        mono, unix = clock_pair()
        folded = fold_window(list(read_kineto(window.kineto_results.events(), unix - mono)))
        self.overhead_ns += now() - began
        return folded

    def abandon(self) -> None:
        """End a window that nobody will read."""
        if self._open is not None:
            with suppress(Exception), silent():
                self._open.__exit__(None, None, None)
            self._open = None


def read_kineto(events: Iterable[Any], offset: int) -> Iterable[ProfilerEvent]:
    """Yield kineto's events as plain tuples, `offset` ns earlier.

    `events()` of the profile itself would take thirty times as long.
    """
    for e in events:
        start = e.start_ns()
        yield ProfilerEvent(
            e.name(),
            start - offset if start > 0 else 0,
            e.end_ns() - offset if start > 0 else 0,
            e.correlation_id(),
            e.linked_correlation_id(),
            e.activity_type(),
            e.device_index(),
            e.device_resource_id(),
            e.start_thread_id(),
            e.sequence_nr(),
        )
