"""Find where steps end, and the steps of graph launches if nothing else marks steps.

A step lasts from its begin to that of the next one.

An annotation or a timer often ends before sampling and scheduling. What lies between two steps belongs to
the first of them, as rows or as a gap, unless it is a pause: nothing was asked, and the step ends on its own.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from capture.import_log import Log

PAUSE_FACTOR: Final = 10  # times the median distance between the begins of steps: a longer gap is a pause
GRAPH_LAUNCH_PATTERN: Final = r"^(?:cuda|hip|cu)GraphLaunch"  # of the host calls that replay a graph
REPLAY_STEP_NAME: Final = "graph replay"
_NOTE: Final = "steps are inferred from graph launches: nothing in this file marks a step"
_MIN_STEPS: Final = 2
_SCHEMA: Final = {"step": pl.Int64(), "t": pl.Int64(), "dur": pl.Int64()}
_MIN_GAPS: Final = 3  # with fewer the longest step stands for the median
_MIN_CYCLES: Final = 4  # that repeat, to be more than the layers of one pass
_MIN_BLOCK: Final = 3  # values: fewer, as of three projections, are no layer
_COMPARED_END: Final = 64  # values at the end that are compared before all


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


def find_last_cycles(values: npt.NDArray[np.integer]) -> tuple[int, int]:
    """Find the length of the cycles with which a sequence ends, and their number; zeros without any.

    They are most of it and begin with the value with which it begins, or behind one pass of another length:
    else they may be parts of a longer one, as layers are of a pass.
    """
    size, least = len(values), 2
    periods = size - 1 - np.flatnonzero(values[:-1] == values[-1:])[::-1]
    for period in periods[periods <= size // _MIN_CYCLES].tolist():
        end = values[-min(period, _COMPARED_END) :]
        if period < least or not np.array_equal(end, values[-len(end) - period : -period]):
            continue
        others = np.flatnonzero(values[:-period] != values[period:])
        length = size - (int(others[-1]) + 1 if len(others) else 0)
        count = length // period
        before, cycle = np.split(values, [size - count * period])
        is_most = 2 * length >= size and cycle[:1] == values[0]
        if count >= _MIN_CYCLES and np.ptp(cycle) and (is_most or _is_one_pass(before, cycle[:period])):
            return period, count
        least = length - period + 1  # a shorter one would repeat no further
    return 0, 0


def _is_one_pass(before: npt.NDArray[np.integer], cycle: npt.NDArray[np.integer]) -> bool:
    """Whether all values of a cycle are before the cycles, too, and one of them once in both."""
    names, counts = np.unique(cycle, return_counts=True)
    counts_before = np.array([np.count_nonzero(before == name) for name in names])
    return bool(counts_before.all() and ((counts == 1) & (counts_before == 1)).any())


def has_repeated_block(values: npt.NDArray[np.integer]) -> bool:
    """Whether some values that follow each other follow once more, as layers do: three or more."""
    places = (np.flatnonzero(values == value) for value in np.unique(values))
    distances = {gap for each in places for gap in np.diff(each).tolist() if gap >= _MIN_BLOCK}
    return any(_has_run(values[:-gap] == values[gap:], gap) for gap in distances)


def _has_run(is_equal: npt.NDArray[np.bool], length: int) -> bool:
    """Whether so many values that follow each other are true."""
    breaks = np.flatnonzero(~np.concatenate([[False], is_equal, [False]]))
    return bool((np.diff(breaks) > length).any())
