"""Short windows of torch's own profiler, read in process: each kernel with the module that owns it.

A window costs time, so windows open only as often as a share of the wall time allows. `extract_leaf_work` is
a pure function of plain tuples; everything that touches torch comes after it.
"""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import bisect
import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..native.emit import Emitter, now, read_clock_pair
from ..native.schema import WINDOW_OP

if TYPE_CHECKING:
    from collections.abc import Iterator

ANNOTATION_PREFIX: Final = "tt:"  # prefix of annotations that name the owner of the work in them
MAX_TIME_SHARE: Final = 0.03  # of the wall time, for windows
KINETO_LEVEL_VARIABLE: Final = "KINETO_LOG_LEVEL"  # read by the profiler once, at its first use

_LEVEL_SYMBOL: Final = "_ZN9libkineto6Logger14severityLevel_E"  # libkineto::Logger::severityLevel_
_MUTED_LEVEL: Final = 99
_BACKWARD_PREFIX: Final = "autograd::engine::evaluate_function: "
_ACCUMULATE: Final = "AccumulateGrad"
_OPTIMIZER_PREFIX: Final = "Optimizer."
_LAUNCH_WORDS: Final = ("Launch", "Memcpy", "Memset")


class ProfilerEvent(NamedTuple):
    """One profiler event; times in ns on the clock of `now`."""

    name: str
    start: int
    end: int
    correlation: int = 0
    linked: int = 0
    kind: str = "cpu_op"  # kineto activity: cpu_op, kernel, gpu_memcpy, gpu_memset, cuda_runtime …
    device: int = -1
    stream: int = 0
    thread: int = 0
    sequence: int = -1


class LeafWork(NamedTuple):
    """One piece of leaf work, and the module that owns it."""

    name: str
    start: int
    duration: int
    owner: str | None
    op: str  # op of the program that launched it
    phase: str | None
    lens: str
    track: str | None
    launch: int = 0  # shared by all kernels of one launch


@dataclass(frozen=True)
class ProfilerWindow:
    """The rows of one window; `problems` counts what makes them doubtful."""

    rows: list[LeafWork]
    problems: dict[str, int] = field(default_factory=dict)


class _Nesting(NamedTuple):
    """The position of an event in the nesting of its thread."""

    owner: str | None  # innermost annotation around the event, or itself
    outermost: ProfilerEvent  # outermost op around the event, or itself
    backward: ProfilerEvent | None  # function of the backward pass around the event
    is_optimizer: bool


def extract_leaf_work(events: Sequence[ProfilerEvent]) -> ProfilerWindow:
    """Return the leaf work of a window: kernels if a GPU was used, else the outermost ops."""
    on_gpu = [e for e in events if e.kind in ("kernel", "gpu_memcpy", "gpu_memset")]
    on_cpu = [e for e in events if e.kind != "kernel" and not e.kind.startswith("gpu_")]
    nesting = _find_nesting(on_cpu)
    owners = _map_forward_owners(on_cpu, nesting)
    if on_gpu:
        return _extract_gpu_work(on_gpu, on_cpu, nesting, owners)
    pairs = zip(on_cpu, nesting)
    leaves = [(e, nested) for e, nested in pairs if e.kind == "cpu_op" and nested.outermost is e]
    return ProfilerWindow(
        [_build_leaf_work(e, nested, owners, "wall", None) for e, nested in leaves if not _is_enclosing(e)]
    )


def _extract_gpu_work(
    on_gpu: Sequence[ProfilerEvent],
    on_cpu: Sequence[ProfilerEvent],
    nesting: Sequence[_Nesting],
    owners: dict[int, str | None],
) -> ProfilerWindow:
    ops = {e.correlation: nested for e, nested in zip(on_cpu, nesting) if e.kind == "cpu_op"}
    launches = {e.correlation: (e, nested) for e, nested in zip(on_cpu, nesting) if e.kind != "cpu_op"}
    rows, early, torn, orphans = [], 0, 0, 0
    for kernel in on_gpu:
        launch, launch_nesting = launches.get(kernel.correlation, (None, None))
        if kernel.start <= 0 or kernel.end < kernel.start:
            torn += 1
        elif launch is not None and kernel.start < launch.start:
            early += 1
        else:
            nested = ops.get(kernel.linked, launch_nesting)
            orphans += nested is None
            track = f"gpu {kernel.device} stream {kernel.stream}"
            rows.append(_build_leaf_work(kernel, nested, owners, "gpu", track))
    problems = {
        "kernels without a time": torn,
        "kernels that started before their launch": early,
        "kernels without a known launch": orphans,
        "launches without a kernel": _count_launches_without_kernel(on_gpu, on_cpu),
    }
    return ProfilerWindow(rows, {what: count for what, count in problems.items() if count})


def _count_launches_without_kernel(on_gpu: Sequence[ProfilerEvent], on_cpu: Sequence[ProfilerEvent]) -> int:
    calls = (e for e in on_cpu if e.kind != "cpu_op")
    launched = {e.correlation for e in calls if any(word in e.name for word in _LAUNCH_WORDS)}
    return len(launched - {kernel.correlation for kernel in on_gpu})


def _find_nesting(on_cpu: Sequence[ProfilerEvent]) -> list[_Nesting]:
    """Return the nesting of each event, by containment on its own thread."""
    nesting: dict[int, _Nesting] = {}
    order = sorted(range(len(on_cpu)), key=lambda i: (on_cpu[i].thread, on_cpu[i].start, -on_cpu[i].end))
    stack: list[tuple[ProfilerEvent, _Nesting]] = []
    for i in order:
        event = on_cpu[i]
        while stack and (stack[-1][0].thread != event.thread or stack[-1][0].end <= event.start):
            stack.pop()
        nesting[i] = _nest_event(event, *stack[-1]) if stack else _nest_event(event)
        stack.append((event, nesting[i]))
    return [nesting[i] for i in range(len(on_cpu))]


def _nest_event(
    event: ProfilerEvent, parent: ProfilerEvent | None = None, enclosing: _Nesting | None = None
) -> _Nesting:
    owner = event.name[len(ANNOTATION_PREFIX) :] if event.name.startswith(ANNOTATION_PREFIX) else None
    backward = event if event.name.startswith(_BACKWARD_PREFIX) else None
    if parent is None or enclosing is None:
        return _Nesting(owner, event, backward, is_optimizer=False)
    outermost = event if _is_enclosing(parent) else enclosing.outermost
    is_optimizer = enclosing.is_optimizer or parent.name.startswith(_OPTIMIZER_PREFIX)
    return _Nesting(owner or enclosing.owner, outermost, enclosing.backward or backward, is_optimizer)


def _is_enclosing(e: ProfilerEvent) -> bool:
    """Return whether an event only encloses work: an annotation, or a whole optimizer step."""
    return e.name.startswith((ANNOTATION_PREFIX, _OPTIMIZER_PREFIX)) or e.kind == "user_annotation"


def _map_forward_owners(
    on_cpu: Sequence[ProfilerEvent], nesting: Sequence[_Nesting]
) -> dict[int, str | None]:
    """Return sequence number → owner of the forward op; its backward op has the same number.

    An op without gradient shows the number that the next op takes: the last op to start is the owner.
    """
    pairs = zip(on_cpu, nesting)
    forward = [(e, nested) for e, nested in pairs if e.sequence >= 0 and nested.backward is None]
    forward.sort(key=lambda pair: (pair[0].start, -pair[0].end))
    return {e.sequence: nested.owner for e, nested in forward}


def _build_leaf_work(
    e: ProfilerEvent, nesting: _Nesting | None, owners: dict[int, str | None], lens: str, track: str | None
) -> LeafWork:
    """Return an event as leaf work; backward work has the owner of its forward op."""
    op = nesting.outermost.name if nesting else ""
    for prefix in (_BACKWARD_PREFIX, ANNOTATION_PREFIX):
        op = op[len(prefix) :] if op.startswith(prefix) else op
    name = op if lens == "wall" else e.name
    owner, phase = nesting.owner if nesting else None, None
    if nesting and nesting.backward:
        phase = "backward"
        owner = "gradients" if _ACCUMULATE in nesting.backward.name else owners.get(nesting.backward.sequence)
    elif nesting and nesting.is_optimizer:
        owner, phase = "optimizer", "optimizer"
    return LeafWork(name, e.start, e.end - e.start, owner, op, phase, lens, track, e.correlation)


def emit_window(emitter: Emitter, lens: str, **facts: Any) -> None:
    """Write that rows of this lens were sampled in this step, so that they represent other steps, too."""
    emitter.event("span", "profiler window", t=now(), lens=lens, op=WINDOW_OP, **facts)


class WindowBudget:
    """Decides when the next window may open, so that windows cost at most their budget."""

    def __init__(self, budget: float = MAX_TIME_SHARE, *, warm_up: int = 1) -> None:
        self.budget = budget
        self.windows = 0
        self.spent_ns = 0
        self._warm_up = warm_up
        self.next_at = 0
        self._plain_durations: list[int] = []  # of steps without a window, sorted

    def is_due(self, at_ns: int) -> bool:
        """Return whether this step may have a window; warm-up steps never do."""
        if self._warm_up > 0:
            self._warm_up -= 1
            return False
        return self.budget > 0 and at_ns >= self.next_at

    def add_plain_step(self, duration: int) -> None:
        """Add the duration of a step without a window."""
        bisect.insort(self._plain_durations, duration)
        if len(self._plain_durations) > 63:
            del self._plain_durations[:: len(self._plain_durations) - 1]  # drop the shortest and the longest

    def add_window(self, at_ns: int, overhead: int, step: int) -> None:
        """Charge the handling of a window, and the slowdown of its step."""
        median = self._plain_durations[len(self._plain_durations) // 2] if self._plain_durations else step
        cost = overhead + max(0, step - median)
        self.windows += 1
        self.spent_ns += cost
        self.next_at = at_ns + (round(cost / self.budget) - cost if self.budget < 1 else 0)


class WindowProfiler:
    """Opens one window at a time; start and stop it on the thread that runs the model.

    Uses the basic profiler inside `torch.profiler`, which itself would import torch's compiler, too.
    """

    def __init__(self, *, gpu: bool) -> None:
        from torch.autograd import profiler

        self._profile: Any = profiler.profile
        self._device = "cuda" if gpu else None
        self._open: Any = None
        self.overhead_ns = 0

    def start(self) -> None:
        """Open a window."""
        began = now()
        self._open = self._profile(use_kineto=True, use_device=self._device)
        with mute_kineto():
            self._open._prepare_trace()
        with mute_kineto():
            self._open._start_trace()
        self.overhead_ns = now() - began

    def stop(self) -> ProfilerWindow:
        """Close the window and return its rows, with times on the clock of `now`."""
        began = now()
        window, self._open = self._open, None
        with mute_kineto():
            window.__exit__(None, None, None)
        mono, unix = read_clock_pair()
        extracted = extract_leaf_work(list(read_kineto(window.kineto_results.events(), unix - mono)))
        self.overhead_ns += now() - began
        return extracted

    def discard(self) -> None:
        """Close a window whose rows are not needed."""
        if self._open is not None:
            with suppress(Exception), mute_kineto():
                self._open.__exit__(None, None, None)
            self._open = None


def read_kineto(events: Iterable[Any], offset: int) -> Iterable[ProfilerEvent]:
    """Yield kineto events as plain tuples, `offset` ns earlier.

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


@contextmanager
def mute_kineto() -> Iterator[None]:
    """Mute kineto's log while the block runs.

    If its level variable cannot be found, the environment mutes it for good.
    """
    level = _find_level()
    setting = os.environ.pop(KINETO_LEVEL_VARIABLE, None)
    if level is None:
        os.environ[KINETO_LEVEL_VARIABLE] = setting or str(_MUTED_LEVEL)
        before = 0
    else:
        before, level.value = level.value, _MUTED_LEVEL
    try:
        yield
    finally:
        os.environ.pop(KINETO_LEVEL_VARIABLE, None)
        if setting is not None:
            os.environ[KINETO_LEVEL_VARIABLE] = setting
        if level is not None:
            level.value = _parse_level(level.value, setting) if level.value != _MUTED_LEVEL else before


def _parse_level(current: int, setting: str | None) -> int:
    """Return the level set in the environment, or the current one if there is none."""
    with suppress(ValueError):
        return int(setting or current)
    return current


@lru_cache(maxsize=None)
def _find_level() -> Any:
    """Return kineto's level variable, or None."""
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    for path in (folder / "libtorch_cpu.so", folder / "libtorch_cpu.dylib"):
        if path.exists():
            with suppress(OSError, ValueError):
                return ctypes.c_int.in_dll(ctypes.CDLL(str(path)), _LEVEL_SYMBOL)
    return None
