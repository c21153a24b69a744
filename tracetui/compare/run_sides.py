"""Sides: the runs of a comparison, with their repeats and what is known about their noise."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import overload

from capture.run import Run


@dataclass(frozen=True)
class NoiseFloor:
    """Run-to-run spread: one standard deviation of the logarithm of a time."""

    spread: float = 0.05  # assumed if unknown
    freedom: float = math.inf  # degrees of freedom: number of measured runs − 1
    source: str = ""  # as text; empty if assumed

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
