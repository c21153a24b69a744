"""Kernels that a step launched but that ran far from the rest of it, and would stretch its window.

The rule: at either end of a group, what lies beyond a gap that is longer than half of the group's window,
and holds less than a hundredth of the group's time.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from tracetui.analysis.laid_out import Axis

FAR: Final = 0.5  # of the window
LITTLE: Final = 0.01  # of the time


def with_strays(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows (`t`, `dur`, the groups) by group and start, with `stray`: whether a row lies far from its
    group.
    """
    axis = Axis.of(rows, by)
    return axis.rows.with_columns(strays(axis))


def strays(axis: Axis) -> pl.Series:
    """Return `stray` of each row of an axis."""
    window = pl.select(pl.max_horizontal(axis.spans, 1)).to_series()
    cut = axis.gaps > FAR * window.gather(axis.group)
    split = axis.group.filter(cut).unique()
    if split.is_empty():
        return pl.repeat(value=False, n=axis.rows.height, eager=True).rename("stray")
    numbered = axis.rows.select("dur", axis.group, cut.alias("cut")).with_row_index("row")
    far = _far(numbered.filter(pl.col("group").is_in(split.implode())))
    return pl.select(stray=pl.int_range(axis.rows.height, dtype=pl.UInt32).is_in(far.implode())).to_series()


def _far(rows: pl.DataFrame) -> pl.Series:
    """Return the numbers of the rows on the side of a cut that holds little of the time of their group."""
    side = pl.col("cut").cast(pl.Int32).cum_sum().over("group").alias("side")  # one gap is that long at most
    sides = rows.with_columns(side).with_columns(part=pl.col("dur").sum().over("group", "side"))
    return sides.filter(pl.col("part") < LITTLE * pl.col("dur").sum().over("group"))["row"]
