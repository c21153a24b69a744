"""Select the runs that count as samples of a comparison: each recording counts once."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from capture.errors import UsageError
from capture.run import Run
from tracetui.compare.run_sides import Sides


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
