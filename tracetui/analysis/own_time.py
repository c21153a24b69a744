"""Each row's own part of the time, so that every instant of a step has one owner: a row, or a gap.

Computation goes before communication, and that before copies between memories; within a class an instant
belongs to the row that began first.
"""

import polars as pl

from tracetui.analysis.gpu_time import CLASSES, COMPUTE


def with_own(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows (`step`, `t`, `dur`, `class`) by step and start, with `own`, the time that each has to
    itself, and `gap`, the time before it in which nothing of its step ran. A row without a start owns its
    duration.
    """
    rows = rows.sort("step", "t", nulls_last=True)
    placed = rows.filter(pl.col("t").is_not_null())
    placed = placed.with_columns(at=_laid_out(placed))
    ends = placed.select("class", "at", end=pl.col("at") + pl.col("dur"))
    first = placed["step"].ne_missing(placed["step"].shift(1))
    gap = ends.select(gap=(pl.col("at") - pl.col("end").cum_max().shift(1)).clip(0).fill_null(0))["gap"]
    placed = placed.drop("at").with_columns(_own(ends), gap * ~first)
    loose = rows.filter(pl.col("t").is_null()).with_columns(own="dur", gap=pl.lit(0, pl.Int64))
    return pl.concat([placed, loose], how="vertical_relaxed")


def _laid_out(rows: pl.DataFrame) -> pl.Series:
    """Return starts with the steps one behind the other, so that rows of two never share an instant."""
    begin = pl.col("t").min().over("step")
    span = ((pl.col("t") + pl.col("dur")).max() - pl.col("t").min() + 1).over("step")
    first = pl.col("step").ne_missing(pl.col("step").shift(1)).fill_null(value=True)
    before = pl.when(first).then(span).otherwise(0).cum_sum() - span
    return rows.select(at=pl.col("t") - begin + before)["at"]


def _own(rows: pl.DataFrame) -> pl.Series:
    """Return the own time of rows (`at`, `end`, `class`) in the order of their starts."""
    order = {name: i for i, name in enumerate(CLASSES)}
    rank = pl.col("class").replace_strict(order, default=order[COMPUTE], return_dtype=pl.Int64)
    rows = rows.select("at", "end", rank=rank).with_row_index("row")
    parts = []
    for (owner,), mine in rows.group_by("rank"):
        before = pl.col("end").cum_max().shift(1)
        begin = pl.max_horizontal("at", before)
        pieces = mine.select("row", begin=begin, until=pl.max_horizontal("end", begin))
        above = _merged(rows.filter(pl.col("rank") < owner))
        hidden = _covered(above, pieces["until"]) - _covered(above, pieces["begin"]) if above.height else 0
        parts.append(pieces.select("row", own=pl.col("until") - pl.col("begin") - hidden))
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
