"""Each row's own part of the time, so that every instant of a step has one owner: a row, or a gap.

Computation goes before communication, and that before copies between memories; within a class an instant
belongs to the row that began first.
"""

import polars as pl

from tracetui.analysis.gpu_time import CLASSES
from tracetui.analysis.laid_out import Axis


def with_own(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows (`step`, `t`, `dur`, `class`) by step and start, with `own`, the time that each has to
    itself, and `gap`, the time before it in which nothing of its step ran. A row without a start owns its
    duration.
    """
    axis = Axis.of(rows.filter(pl.col("t").is_not_null()), ["step"])
    ends = axis.rows.select("class", axis.at, end=axis.at + pl.col("dur"))
    placed = axis.rows.with_columns(_own(ends), axis.gaps())
    loose = rows.filter(pl.col("t").is_null()).with_columns(own="dur", gap=pl.lit(0, pl.Int64))
    return pl.concat([placed, loose], how="vertical_relaxed") if loose.height else placed


def _own(rows: pl.DataFrame) -> pl.Series:
    """Return the own time of rows (`at`, `end`, `class`) in the order of their starts."""
    present = [c for c in CLASSES if (rows["class"] == c).any()]
    rows, parts = rows.with_row_index("row"), []
    for place, owner in enumerate(present):
        mine = rows.filter(pl.col("class") == owner) if len(present) > 1 else rows
        before = pl.col("end").cum_max().shift(1)
        begin = pl.max_horizontal("at", before)
        pieces = mine.select("row", begin=begin, until=pl.max_horizontal("end", begin))
        above = _merged(rows.filter(pl.col("class").is_in(present[:place])))
        hidden = _covered(above, pieces["until"]) - _covered(above, pieces["begin"]) if place else 0
        parts.append(pieces.select("row", own=pl.col("until") - pl.col("begin") - hidden))
    if len(parts) == 1:
        return parts[0]["own"]
    return pl.concat(parts).sort("row")["own"] if parts else pl.Series("own", [], dtype=pl.Int64)


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the union of intervals that come by start: `first`, `length`, and the length `before`."""
    opens = (pl.col("at") > pl.col("end").cum_max().shift(1)).fill_null(value=True)
    union = rows.group_by(opens.cum_sum().alias("number"), maintain_order=True).agg(
        first=pl.col("at").min(), length=pl.col("end").max() - pl.col("at").min()
    )
    return union.select("first", "length", before=pl.col("length").cum_sum() - pl.col("length"))


def _covered(union: pl.DataFrame, until: pl.Series) -> pl.Series:
    """Return how much time a union covers before each of some moments, which are in order."""
    found = until.to_frame("at").join_asof(union, left_on="at", right_on="first")
    inside = pl.min_horizontal(pl.col("at") - pl.col("first"), "length") + pl.col("before")
    return found.select(inside.fill_null(0)).to_series()
