"""Sides: the runs of a comparison, with their repeats and what is known about their noise.

Each recording counts once as a sample, however often and under whatever names it was given.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import overload

from capture.errors import UsageError
from capture.run import Run


@dataclass(frozen=True)
class NoiseFloor:
    """Run-to-run spread: one standard deviation of the logarithm of a time."""

    spread: float = 0.05  # assumed if unknown
    freedom: float = math.inf  # degrees of freedom: number of measured runs − 1
    source: str = ""  # as text; empty if assumed

    @classmethod
    def from_saved(cls, run: Run) -> "NoiseFloor | None":
        """Read the floor that was saved with a baseline; None if it was saved without repeats."""
        saved = run.meta.get("floor")
        if not isinstance(saved, dict):
            return None
        spread, runs = saved.get("spread"), saved.get("runs")
        if not isinstance(spread, float) or not isinstance(runs, int) or not 0 < spread < 10 or runs < 2:
            return None
        return cls(spread, runs - 1, f"saved with {run.name}, measured on {runs} runs")

    @property
    def is_known(self) -> bool:
        """Whether it was measured or set by the user."""
        return bool(self.source)

    @property
    def percent(self) -> str:
        """The floor as text: 5%."""
        return f"{100 * self.spread:.2g}%"


@dataclass(frozen=True)
class Sides(Sequence[Run]):
    """The compared runs, as a sequence, with what shows how far runs differ by themselves."""

    runs: tuple[Run, ...] = ()  # the first of side a, the first of side b; or one of each of many sides
    more_a: tuple[Run, ...] = ()  # repeats
    more_b: tuple[Run, ...] = ()
    same: tuple[Run, ...] = ()  # identical runs, which measure the noise
    floor: NoiseFloor = NoiseFloor()  # for one run per side
    notes: tuple[str, ...] = ()  # on the selection of the runs

    @classmethod
    def from_runs(cls, runs: Sequence[Run]) -> "Sides":
        """Return the sides themselves, or runs without repeats as sides."""
        return runs if isinstance(runs, Sides) else cls(tuple(runs))

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Run, ...]: ...
    def __getitem__(self, index: int | slice) -> Run | tuple[Run, ...]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    @property
    def groups(self) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[Run, ...]]:
        """All runs of side a, those of side b, and those of neither."""
        return (self.runs[0], *self.more_a), (self.runs[1], *self.more_b), self.same

    @property
    def has_repeats(self) -> bool:
        """Whether some run was recorded more than once."""
        return bool(self.more_a or self.more_b or len(self.same) > 1)

    @property
    def has_known_spread(self) -> bool:
        """Whether the run-to-run spread is known, so that a gate may fail."""
        return self.has_repeats or self.floor.is_known

    def without_repeats(self) -> "Sides":
        """Return the sides with one run each, and the noise."""
        return replace(self, more_a=(), more_b=(), notes=())


def map_runs(change: Callable[[Run], Run], runs: Sequence[Run]) -> Sequence[Run]:
    """Return changed runs, of sides also their repeats and identical runs."""
    if not isinstance(runs, Sides):
        return [change(run) for run in runs]
    first, more_a, more_b, same = (
        tuple(map(change, group)) for group in (runs.runs, runs.more_a, runs.more_b, runs.same)
    )
    return replace(runs, runs=first, more_a=more_a, more_b=more_b, same=same)


def is_same_recording(one: Run, other: Run) -> bool:
    """True if two runs are the same recording, even under different names."""
    a, b = one.events, other.events
    return one is other or (a.columns == b.columns and a.height == b.height and a.equals(b))


def is_among(run: Run, runs: Iterable[Run]) -> bool:
    """True if one of the runs is the same recording."""
    return any(is_same_recording(run, each) for each in runs)


def read_file_name(run: Run) -> str:
    """Return the name of a run's file without its folder, or the run's name if it has no file."""
    return PurePath(run.log.source).name or run.name


def find_distinct(runs: Sequence[Run]) -> list[int]:
    """Find the indices of the runs without duplicate recordings, keeping the first of each."""
    return [i for i, run in enumerate(runs) if not is_among(run, runs[:i])]


def add_identical_runs(sides: Sides, named: Sequence[Run]) -> Sides:
    """Add the runs behind --aa to the side that they repeat; raise UsageError if they are too few.

    If one side is among them, the others repeat that side: a compared run is no second sample of the noise.
    If both sides are among them, the others only measure noise, because whether the sides are alike is what
    the comparison asks.
    """
    a, b, _ = sides.groups
    compared, others = _split_by_side(named, (*a, *b))
    on_a, on_b = (any(is_among(run, side) for run in compared) for side in (a, b))
    side = "ab"[on_b] if on_a != on_b else ""
    notes = (_describe_identical_runs(compared, len(others), side),) if compared else ()
    more_a, more_b, same = (others if side == each else () for each in ("a", "b", ""))
    sides = Sides(sides.runs, sides.more_a + more_a, sides.more_b + more_b, same, notes=sides.notes + notes)
    if named and (len(same) == 1 or not sides.has_repeats):
        why = _describe_counted_once(compared) if compared else ""
        todo = "--aa takes two or more identical runs"
        raise UsageError("one run does not show the noise", why=why, todo=todo)
    return sides


def _split_by_side(named: Sequence[Run], sides: Sequence[Run]) -> tuple[list[Run], tuple[Run, ...]]:
    """Split distinct recordings into those that are compared and the others."""
    runs = [named[i] for i in find_distinct(named)]
    compared = [run for run in runs if is_among(run, sides)]
    return compared, tuple(run for run in runs if not is_among(run, sides))


def _describe_identical_runs(compared: Sequence[Run], others: int, side: str) -> str:
    """Describe which of the identical runs are compared, and how the others count."""
    once = _describe_counted_once(compared)
    ending = "s" * (others == 1)
    role = f"repeat{ending} {side}" if side else f"measure{ending} the noise"
    return f"{once}; the other {others} {role}" if others else once


def _describe_counted_once(compared: Sequence[Run]) -> str:
    names = ", ".join(map(read_file_name, compared))
    are = "is" if len(compared) == 1 else "are"
    return f"{names} {are} compared and also named by --aa: counted once"
