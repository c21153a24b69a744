"""Settle which runs are the samples of a comparison: each recording counts once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from capture.errors import UsageError
from capture.run import Run


@dataclass(frozen=True, eq=False)
class Identical:
    """Runs that are said to be identical, by what they are to the two sides that are compared."""

    of_a: tuple[Run, ...]  # repeats of side a, for one of that side is among them
    of_b: tuple[Run, ...]
    noise: tuple[Run, ...]  # of neither side: they tell the noise of both
    notes: tuple[str, ...]


NONE: Final = Identical((), (), (), ())


def same(one: Run, other: Run) -> bool:
    """Tell whether two runs are one recording, under whatever name it was read."""
    a, b = one.events, other.events
    return one is other or (a.columns == b.columns and a.height == b.height and a.equals(b))


def among(run: Run, runs: Iterable[Run]) -> bool:
    """Tell whether one of the runs is the same recording."""
    return any(same(run, each) for each in runs)


def file_label(run: Run) -> str:
    """Return the name of a run's file, or its own where it has none."""
    return PurePath(run.log.source).name or run.name


def distinct(runs: Sequence[Run]) -> list[int]:
    """Return the places of the runs, each recording where it stands first."""
    return [i for i, run in enumerate(runs) if not among(run, runs[:i])]


def identical(a: Sequence[Run], b: Sequence[Run], named: Sequence[Run]) -> Identical:
    """Return what the runs named as identical are to the two sides; raise UsageError where they are too few.

    A run that is compared itself is no second sample of the noise: the runs beside it repeat its side.
    Where both sides are among the identical runs, the others can repeat neither: whether the two are alike
    is the question.
    """
    compared, others = _divide(named, (*a, *b))
    on_a, on_b = (any(among(run, side) for run in compared) for side in (a, b))
    notes = (_note(compared, len(others), "ab"[on_b] if on_a != on_b else ""),) if compared else ()
    if on_a == on_b:
        parts = Identical((), (), others, notes)
    else:
        parts = Identical(others if on_a else (), others if on_b else (), (), notes)
    if named and not _shows_noise(parts, a, b):
        raise UsageError(
            "the noise of one run cannot be told",
            why=_counted_once(compared) if compared else "",
            todo="--aa takes two or more identical runs",
        )
    return parts


def _divide(named: Sequence[Run], sides: Sequence[Run]) -> tuple[list[Run], tuple[Run, ...]]:
    """Return the recordings that are among the sides, and the others, each once."""
    runs = [named[i] for i in distinct(named)]
    return [run for run in runs if among(run, sides)], tuple(run for run in runs if not among(run, sides))


def _shows_noise(parts: Identical, a: Sequence[Run], b: Sequence[Run]) -> bool:
    """Tell whether there are two runs of the same thing, and no single one that repeats nothing."""
    if parts.noise:
        return len(parts.noise) > 1
    return max(len(a) + len(parts.of_a), len(b) + len(parts.of_b)) > 1


def _note(compared: Sequence[Run], others: int, side: str) -> str:
    """Say which of the identical runs is a side itself, and what becomes of the others."""
    if not others:
        return _counted_once(compared)
    if side:
        return f"{_counted_once(compared)}; what is identical to it ({others}) repeats {side}"
    return f"{_counted_once(compared)}; the others ({others}) tell the noise"


def _counted_once(compared: Sequence[Run]) -> str:
    names = ", ".join(map(file_label, compared))
    are = "is compared and stands" if len(compared) == 1 else "are compared and stand"
    return f"{names} {are} behind --aa too: counted once"
