"""What it would take to decide a comparison: how many more recordings a side, and how long each is."""

import math
from collections.abc import Iterable
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis.compare.repeats import POWER
from tracetui.analysis.statistics import ALPHA
from tracetui.look import Terms

MOST: Final = 50  # recordings a side that anybody would make
MINUTE: Final = 60.0


def more_recordings(row: dict[str, Any], terms: Terms) -> int | None:
    """Return how many more recordings a side are likely (four times in five) to decide a row of phase totals.

    They either show the change that is seen now, or that there is none that matters. None where more than
    MOST would be needed, or the row has no interval.
    """
    a, b, low, high = (row[c] for c in ("a_ns", "b_ns", "low_ns", "high_ns"))
    if not a or not b or low is None or high is None or low >= high:
        return None
    shift = abs(math.log(b / a))
    have = 1 + len(terms.more_a), 1 + len(terms.more_b)
    error = _error(shift, (high - low) / math.sqrt(a * b), terms, have)
    of_one = error / math.sqrt(1 / have[0] + 1 / have[1])
    for runs in range(max(*have, 2), MOST + 1):
        if _decides(shift, of_one * math.sqrt(2 / runs), 2 * runs - 2, terms):
            return max(1, runs - min(have))
    return None


def _error(shift: float, width: float, terms: Terms, have: tuple[int, int]) -> float:
    """Return the standard error of a shift in logarithms, from the width of its interval."""
    from scipy.special import stdtrit

    reach = 2 * math.asinh(width / (4 * math.cosh(shift / 2)))
    freedom = sum(have) - 2 + max(0, len(terms.same) - 1) if terms.repeated else terms.floor.freedom
    return reach / float(stdtrit(max(1.0, min(freedom, 1e6)), 1 - _alpha(terms) / 2))


def _decides(shift: float, error: float, freedom: int, terms: Terms) -> bool:
    from scipy.special import ndtri, stdtrit

    bound, reserve = stdtrit(freedom, 1 - _alpha(terms) / 2), ndtri(POWER)
    matters = math.log1p(terms.threshold)
    changed = shift >= matters and shift / error - reserve >= bound
    return bool(changed or shift + (bound + reserve) * error <= matters)


def _alpha(terms: Terms) -> float:
    return ALPHA * terms.share if terms.repeated else ALPHA


def seconds_each(runs: Iterable[Run]) -> float | None:
    """Return how long a recording lasts, the longest of these; None where no run has a clock."""
    lengths = [length for run in runs if (length := _seconds(run)) is not None]
    return max(lengths, default=None)


def _seconds(run: Run) -> float | None:
    if not run.has("t"):
        return None
    end = pl.col("t") + (pl.col("dur").fill_null(0) if run.has("dur") else 0)
    low, high = run.events.select(pl.col("t").min().alias("low"), end.max().alias("high")).row(0)
    return None if low is None else float((high - low) / 1e9)


def words(more: int | None, seconds: float | None) -> str:
    """Return what it would take as a clause."""
    if more is None:
        return f"more than {MOST} recordings a side, or a quieter machine, would be needed"
    each = f", about {long(seconds)} each," if seconds else ""
    return f"{more} more recording{'s' * (more > 1)} a side{each} would tell"


def long(seconds: float) -> str:
    """Return a time that a person waits: 40 s, 3 min."""
    return f"{max(1, round(seconds))} s" if seconds < 2 * MINUTE else f"{round(seconds / MINUTE)} min"
