"""Find where steps end: a step lasts from its begin to that of the next one.

An annotation or a timer often ends before sampling and scheduling. What lies between two steps belongs to
the first of them, as rows or as a gap, unless it is a pause: nothing was asked, and the step ends on its own.
"""

from typing import Final

import polars as pl

PAUSE_FACTOR: Final = 10  # times the median distance between the begins of steps: a longer gap is a pause
_MIN_GAPS: Final = 3  # with fewer the longest step stands for the median


def find_step_ends(begin: pl.Series, dur: pl.Series, count: pl.Series | None = None) -> pl.Series:
    """Find the end of each step; of overlapping steps, of the last one, and before a pause its own.

    `begin` is sorted; null begins and durations have null ends. `count` is the number of steps that each
    represents.
    """
    steps = pl.DataFrame({"begin": begin, "own_end": begin + dur, "dur": dur})
    steps = steps.with_columns(count=1 if count is None else count, following=pl.col("begin").shift(-1))
    gap, period = pl.col("following") - pl.col("own_end"), pl.col("following") - pl.col("begin")
    follows = steps.filter(gap >= 0)
    typical = follows.select((period / pl.col("count")).median()).item()
    if typical is None:
        return steps["own_end"]
    if follows.height < _MIN_GAPS:
        typical = dur.max()
    is_joined = gap.is_between(0, PAUSE_FACTOR * typical * pl.col("count"))
    return steps.select(pl.when(is_joined).then("following").otherwise("own_end"))["following"]
