"""Each row's own part of the time, so that every instant of a step has one owner: a row, or a gap.

Computation goes before communication, and that before copies between memories; within a class an instant
belongs to the row that began first.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracetui.analysis.gpu_time import CLASSES, COMPUTE

Ints = NDArray[np.int64]


def with_own(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows (`step`, `t`, `dur`, `class`) by step and start, with `own`, the time that each has to
    itself, and `gap`, the time before it in which nothing of its step ran. A row without a start owns its
    duration.
    """
    rows = rows.sort("step", "t", nulls_last=True)
    placed = rows["t"].is_not_null()
    own, gap = rows["dur"].to_numpy().copy(), np.zeros(rows.height, dtype=np.int64)
    at = np.flatnonzero(placed.to_numpy())
    if at.size:
        own[at], gap[at] = _shared(rows.filter(placed))
    return rows.with_columns(own=pl.Series(own, dtype=pl.Int64), gap=pl.Series(gap, dtype=pl.Int64))


def _shared(rows: pl.DataFrame) -> tuple[Ints, Ints]:
    """Return own time and gap of rows that have a start, in their order."""
    start = _laid_out(rows).to_numpy()
    end, owner = start + rows["dur"].to_numpy(), _ranks(rows)
    own = np.zeros(rows.height, dtype=np.int64)
    for rank in np.unique(owner):
        mine = np.flatnonzero(owner == rank)
        begin = np.maximum(start[mine], _reach(end[mine], start[mine]))
        until = np.maximum(end[mine], begin)
        above = owner < rank
        covered = _covered(start[above], end[above], until) - _covered(start[above], end[above], begin)
        own[mine] = until - begin - covered
    first = rows["step"].ne_missing(rows["step"].shift()).fill_null(value=True).to_numpy()
    gap = np.where(first, 0, np.maximum(start - _reach(end, start), 0))
    return own, gap


def _laid_out(rows: pl.DataFrame) -> pl.Series:
    """Return starts with the steps one behind the other, so that rows of two never share an instant."""
    begin = pl.col("t").min().over("step")
    span = ((pl.col("t") + pl.col("dur")).max() - pl.col("t").min() + 1).over("step")
    first = pl.col("step").ne_missing(pl.col("step").shift()).fill_null(value=True)
    before = pl.when(first).then(span).otherwise(0).cum_sum() - span
    return rows.select(pl.col("t") - begin + before).to_series()


def _ranks(rows: pl.DataFrame) -> Ints:
    """Return the place of each row's class in the order of owners."""
    order = {name: i for i, name in enumerate(CLASSES)}
    ranks = rows.select(pl.col("class").replace_strict(order, default=order[COMPUTE], return_dtype=pl.Int64))
    found: Ints = ranks.to_series().to_numpy()
    return found


def _reach(end: Ints, start: Ints) -> Ints:
    """Return the latest end of the rows before each; for the first its own start."""
    latest = np.maximum.accumulate(end)
    return np.concatenate((start[:1], latest[:-1]))


def _covered(start: Ints, end: Ints, until: Ints) -> Ints:
    """Return how much time intervals in the order of their starts cover before each of some moments."""
    if not start.size:
        return np.zeros(until.size, dtype=np.int64)
    latest = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > latest[:-1]))
    first = start[opens]
    last = np.concatenate((latest[:-1][opens[1:]], latest[-1:]))
    length = last - first
    before = np.cumsum(length) - length
    place = np.searchsorted(first, until, side="right") - 1
    inside = np.minimum(until - first[place], length[place]) + before[place]
    return np.where(place >= 0, inside, 0)
