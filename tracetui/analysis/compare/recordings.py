"""Which runs are the samples of a comparison: each recording counts once, however often it is named."""

from collections.abc import Sequence
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
    told: tuple[str, ...]


NONE: Final = Identical((), (), (), ())


def same(one: Run, other: Run) -> bool:
    """Whether two runs are one recording, under whatever name it was read."""
    a, b = one.events, other.events
    return one is other or (a.columns == b.columns and a.height == b.height and a.equals(b))


def among(run: Run, runs: Sequence[Run]) -> bool:
    return any(same(run, each) for each in runs)


def called(run: Run) -> str:
    return PurePath(run.log.source).name or run.name


def distinct(runs: Sequence[Run]) -> list[int]:
    """The places of the runs, each recording where it stands first."""
    return [i for i, run in enumerate(runs) if not among(run, runs[:i])]


def identical(a: Sequence[Run], b: Sequence[Run], named: Sequence[Run]) -> Identical:
    """What is compared itself is no second sample of the noise: the runs beside it repeat its side.

    Where both sides are among the identical runs, the others can repeat neither: whether the two are alike
    is the question.
    """
    runs = [named[i] for i in distinct(named)]
    compared = [run for run in runs if among(run, (*a, *b))]
    others = tuple(run for run in runs if not among(run, (*a, *b)))
    on_a, on_b = (any(among(run, side) for run in compared) for side in (a, b))
    of_a, of_b = (others if on_a and not on_b else ()), (others if on_b and not on_a else ())
    noise = others if on_a == on_b else ()
    repeated = max(len(a) + len(of_a), len(b) + len(of_b)) > 1
    if named and (len(noise) == 1 or not (noise or repeated)):
        raise UsageError(
            "the noise of one run cannot be told",
            why=_counted(compared) if compared else "",
            todo="--aa takes two or more identical runs",
        )
    told = (_told(compared, len(others), "ab"[on_b] if on_a != on_b else ""),) if compared else ()
    return Identical(of_a, of_b, noise, told)


def _told(compared: Sequence[Run], others: int, side: str) -> str:
    """Which of the identical runs is a side itself, and what becomes of the others."""
    if not others:
        return _counted(compared)
    if side:
        return f"{_counted(compared)}; what is identical to it ({others}) repeats {side}"
    return f"{_counted(compared)}; the others ({others}) tell the noise"


def _counted(compared: Sequence[Run]) -> str:
    names = ", ".join(map(called, compared))
    are = "is compared and stands" if len(compared) == 1 else "are compared and stand"
    return f"{names} {are} behind --aa too: counted once"
