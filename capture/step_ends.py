"""Find where steps end, and the steps of graph launches if nothing else marks steps.

A step lasts from its begin to that of the next one.

An annotation or a timer often ends before sampling and scheduling. What lies between two steps belongs to
the first of them, as rows or as a gap, unless it is a pause: nothing was asked, and the step ends on its own.
"""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from capture.import_log import Log

PAUSE_FACTOR: Final = 10  # times the median distance between the begins of steps: a longer gap is a pause
GRAPH_LAUNCH_PATTERN: Final = r"^(?:cuda|hip|cu)GraphLaunch"  # of the host calls that replay a graph
REPLAY_STEP_NAME: Final = "graph replay"
_NOTE: Final = "steps are inferred from graph launches: nothing in this file marks a step"
_MIN_STEPS: Final = 2
_SCHEMA: Final = {"step": pl.Int64(), "t": pl.Int64(), "dur": pl.Int64()}
_MIN_GAPS: Final = 3  # with fewer the longest step stands for the median


def find_step_ends(begin: pl.Series, dur: pl.Series, count: pl.Series | None = None) -> pl.Series:
    """Find the end of each step; of overlapping steps, of the last one, and before a pause its own.

    `begin` is sorted; null begins and durations have null ends. `count` is the number of steps that each
    represents.
    """
    own_end = begin + dur
    following = begin.slice(1).append(pl.Series([None], dtype=begin.dtype)).head(begin.len())
    gap, period = following - own_end, following - begin
    follows = gap >= 0
    periods = (period if count is None else period / count).filter(follows)
    typical: Any = periods.median()
    if typical is None:
        return own_end
    if periods.len() < _MIN_GAPS:
        typical = dur.max()
    longest = PAUSE_FACTOR * typical if count is None else count.cast(pl.Int64) * (PAUSE_FACTOR * typical)
    return following.zip_with(follows & (gap <= longest), own_end)


def derive_replay_steps(launches: pl.DataFrame, kernels: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Derive step, t and dur from launches (t, key) and their kernels (key, name as integer, t, dur).

    A step is one launch if all replay the same kernels, else as many as pass until the same graphs repeat. It
    ends where the next begins, the last one with its last kernel. Empty if the launches do not repeat.
    """
    end = (pl.col("t") + pl.col("dur")).max()
    graphs = kernels.sort("t").group_by("key", maintain_order=True).agg(names=pl.col("name"), end=end)
    replays = launches.join(graphs, on="key", how="inner").sort("t")
    period = find_cycle_length([hash(tuple(names)) for names in replays["names"]])
    if not period or replays.height < _MIN_STEPS * period:
        return pl.DataFrame(schema=_SCHEMA)
    first = replays.gather_every(period)
    log.note("inferred_steps", _NOTE, count=first.height)
    ends = first["t"].shift(-1).fill_null(replays["end"].max())
    numbers = range(1, first.height + 1)
    return pl.DataFrame({"step": numbers, "t": first["t"], "dur": ends - first["t"]}, schema=_SCHEMA)


def find_cycle_length(values: Sequence[int]) -> int:
    """Find after how many values the sequence repeats throughout; 0 if it does not."""
    for period in range(1, len(values) // 2 + 1):
        if all(a == b for a, b in zip(values, values[period:], strict=False)):
            return period
    return 0
