"""Kernels that a step launched but that ran far from the rest of it, and would stretch its window.

The rule: at either end of a group, what lies beyond a gap that is longer than half of the group's window,
and holds less than a hundredth of the group's time.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

FAR: Final = 0.5  # of the window
LITTLE: Final = 0.01  # of the time


def with_strays(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows (`t`, `dur`, the groups) by start, with `stray`: whether a row lies far from its group."""
    ordered = rows.sort(*by, "t")
    end = (pl.col("t") + pl.col("dur")).cum_max()
    reach = end.shift(1).over(by) if by else end.shift(1)
    ordered = ordered.with_columns(_gap=(pl.col("t") - reach).clip(0).fill_null(0))
    window = pl.max_horizontal((pl.col("t") + pl.col("dur")).max() - pl.col("t").min(), 1)
    cut = (pl.col("_gap") > FAR * (window.over(by) if by else window)).cast(pl.Int32).cum_sum()
    ordered = ordered.with_columns(_side=cut.over(by) if by else cut)  # at most one gap is that long
    whole = pl.col("dur").sum()
    part = whole.over([*by, "_side"])
    several = pl.col("_side").max()
    stray = (part < LITTLE * (whole.over(by) if by else whole)) & ((several.over(by) if by else several) > 0)
    return ordered.with_columns(stray=stray.fill_null(False)).drop("_gap", "_side")
