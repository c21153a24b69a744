"""Rows of a lane: slices lie so that none covers another, and one is below another only where inside it."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tracetui.analysis.nesting import NO_SCOPE, holders

Ints = NDArray[np.int64]


def rows_of(start: Ints, end: Ints, nests: bool) -> Ints:
    """Return for each slice of one lane the row in which it lies, counted from the top.

    Slices come by start, the longest first. Where they nest, a slice lies below the innermost that contains
    it; else all begin at the top. Where the row is taken by one that only overlaps, it is the next free one.
    """
    row, until = np.zeros(len(start), dtype=np.int64), list[int]()
    scopes = np.full(len(start), nests)
    holder = holders(np.zeros(len(start), dtype=np.int64), start, end, scopes).tolist()
    for i, (a, b, around) in enumerate(zip(start.tolist(), end.tolist(), holder, strict=True)):
        place = 0 if around == NO_SCOPE else int(row[around]) + 1
        while place < len(until) and until[place] > a:
            place += 1
        row[i] = place
        until[place : place + 1] = [max(b, a + 1)]
    return row


def rows_for_short(start: Ints, end: Ints, row: Ints, moments: Ints, nests: bool) -> Ints:
    """Return for moments of a lane the row of what is too short to be placed by itself.

    It lies below all that is open at its start, where slices nest; else in the first row that is free.
    """
    if not len(start):
        return np.zeros(len(moments), dtype=np.int64)
    bounds = np.unique(np.concatenate((start, end)))
    deep = int(row.max()) + 1
    taken = np.zeros((deep, len(bounds)), dtype=bool)
    for level in range(deep):
        own = np.flatnonzero(row == level)
        last = np.searchsorted(start[own], bounds, side="right") - 1
        taken[level] = (last >= 0) & (end[own][last] > bounds)
    if nests:
        levels = np.where(taken.any(axis=0), deep - np.argmax(taken[::-1], axis=0), 0)
    else:
        levels = np.where(taken.all(axis=0), deep, np.argmin(taken, axis=0))
    at = np.searchsorted(bounds, moments, side="right") - 1
    found: Ints = np.where(at >= 0, levels[at], 0).astype(np.int64)
    return found


def with_rows(slices: pl.DataFrame, wide: pl.Series) -> pl.Series:
    """Return the row of each slice, of a frame with `lane`, `t`, `end` and `nests`.

    Those that are `wide` are placed one by one; no other may contain one of them.
    """
    frame = slices.select("lane", "t", "end", "nests").with_columns(wide=wide).with_row_index("place")
    row = np.zeros(slices.height, dtype=np.int64)
    for own in frame.partition_by("lane"):
        nests = bool(own["nests"][0])
        placed = own.filter("wide").sort("t", "end", descending=[False, True], maintain_order=True)
        start, end = placed["t"].to_numpy(), placed["end"].to_numpy()
        levels = rows_of(start, end, nests)
        row[placed["place"].to_numpy()] = levels
        short = own.filter(~pl.col("wide"))
        row[short["place"].to_numpy()] = rows_for_short(start, end, levels, short["t"].to_numpy(), nests)
    return pl.Series("row", row, dtype=pl.Int32)
