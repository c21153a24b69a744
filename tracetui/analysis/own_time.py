"""Each row's own part of the time, so that every instant of a step has one owner: a row, or a gap.

Computation goes before communication, and that before copies between memories. Of several rows of a class
those have an instant that the step waited for, found from its last row back through what let each start; then
the row that began first.
"""

import polars as pl

from tracetui.analysis.gpu_time import CLASSES, COMPUTE
from tracetui.analysis.laid_out import Axis
from tracetui.analysis.releases import NONE, released


def with_own(axis: Axis) -> pl.DataFrame:
    """Return the rows of an axis of steps (`step`, `t`, `dur`, `class`, perhaps `track`) with `own`, the time
    that each has to itself, and `gap`, the time before it in which nothing of its step ran. A row without a
    start owns its duration, and comes last.
    """
    rows = axis.rows
    if rows["t"].has_nulls():
        axis = Axis.of(rows.filter(pl.col("t").is_not_null()), ["step"])
    placed = axis.rows.with_columns(axis.at)
    ends = placed.select("class", "at", end=pl.col("at") + pl.col("dur"), waited=_waited_for(placed))
    placed = axis.rows.with_columns(_own(ends), axis.gaps)
    loose = rows.filter(pl.col("t").is_null()).with_columns(own="dur", gap=pl.lit(0, pl.Int64))
    return pl.concat([placed, loose], how="vertical_relaxed") if loose.height else placed


def _waited_for(rows: pl.DataFrame) -> pl.Series:
    """Return of each row, by `at`, whether its step waited for it; where no streams work at once all."""
    if "track" not in rows.columns or rows["track"].n_unique() < 2 or not _at_once(rows):
        return pl.repeat(value=True, n=rows.height, eager=True)
    import numpy as np  # most runs do without

    before = released(rows.select("track", "dur", t="at"), 0)["by"].to_numpy()
    none = rows.height
    jumps = np.append(np.where(before == NONE, none, before), none)
    ends = rows.select("step", end=pl.col("at") + pl.col("dur")).with_row_index("row")
    steps = ends.group_by("step").agg(pl.len(), last=pl.col("row").get(pl.col("end").arg_max()))
    waited = np.zeros(none + 1, dtype=bool)
    waited[steps["last"].to_numpy()] = True
    for _ in range(int(steps["len"].max() or 0).bit_length()):  # type: ignore[arg-type]  # the way back doubles
        waited[jumps[waited]] = True
        jumps = jumps[jumps]
    return pl.Series("waited", waited[:none])


def _at_once(rows: pl.DataFrame) -> bool:
    """Tell whether rows of one class on several streams overlap."""
    reach = (pl.col("at") + pl.col("dur")).cum_max().shift(1)
    of_class = rows.select("at", "dur", "track", "class", reach=reach.over("class"))
    if not of_class.select((pl.col("at") < pl.col("reach")).any()).item():
        return False
    own = reach.over("class", "track").fill_null(0)
    others = pl.col("at").is_between(own, pl.col("reach"), closed="left")
    return bool(of_class.select(others.any()).item())


def _own(rows: pl.DataFrame) -> pl.Series:
    """Return the own time of rows (`at`, `end`, `class`, `waited`) in the order of their starts."""
    order = {name: 2 * i for i, name in enumerate(CLASSES)}
    rank = pl.col("class").replace_strict(order, default=order[COMPUTE], return_dtype=pl.Int64)
    rows = rows.select("at", "end", rank=rank + ~pl.col("waited")).with_row_index("row")
    ranks, parts = rows["rank"].unique().sort(), []
    for owner in ranks:
        mine = rows.filter(pl.col("rank") == owner) if len(ranks) > 1 else rows
        before = pl.col("end").cum_max().shift(1)
        begin = pl.max_horizontal("at", before)
        pieces = mine.select("row", begin=begin, until=pl.max_horizontal("end", begin))
        above = _merged(rows.filter(pl.col("rank") < owner))
        hidden = _covered(above, pieces["until"]) - _covered(above, pieces["begin"]) if above.height else 0
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
