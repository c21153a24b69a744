"""Rows in the order of their groups and starts, and the groups laid out one behind the other on one axis.

On that axis rows of two groups never share an instant, so that one pass over all rows tells of each what has
ended before it in its own group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl


def in_order(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows by group, then by `t`, those without a start last; those that are in order as they are.

    Categories come in the order of their codes.
    """
    for column in ("t", *reversed(by)):  # sorting is stable, so that the last order holds
        last = column == "t"
        key = rows[column].to_physical()
        if not key.is_sorted(nulls_last=last):
            rows = rows.sort(pl.col(column).to_physical(), nulls_last=last, maintain_order=True)
    return rows


@dataclass(frozen=True, eq=False)
class Axis:
    """Rows in order, and where they stand when their groups lie one behind the other."""

    rows: pl.DataFrame
    at: pl.Series  # of each row; null where it has no start
    first: pl.Series  # whether it is the first of its group
    group: pl.Series  # the number of its group
    spans: pl.Series  # of each group the time from its first start to its last end

    @classmethod
    def of(cls, rows: pl.DataFrame, by: Sequence[str]) -> "Axis":
        """Return the axis of rows (`t`, `dur`, the groups)."""
        rows = in_order(rows, by)
        codes = [rows[c].to_physical() for c in by]
        opening = pl.select(pl.int_range(rows.height) == 0).to_series()
        changes = [code.ne_missing(code.shift(1)).alias(str(i)) for i, code in enumerate(codes)]
        first = pl.select(pl.any_horizontal(opening, *changes).alias("first"))["first"]
        group = (first.cast(pl.UInt32).cum_sum() - 1).set_sorted().rename("group")
        times = rows.select(group, "t", end=pl.col("t") + pl.col("dur"))
        table = times.group_by("group", maintain_order=True).agg(pl.col("t").first(), pl.col("end").max())
        spans = (table["end"] - table["t"]).fill_null(0)
        shift = spans.cum_sum() - spans + pl.int_range(spans.len(), eager=True) - table["t"]
        return cls(rows, (rows["t"] + shift.gather(group)).rename("at"), first, group, spans)

    @cached_property
    def gaps(self) -> pl.Series:
        """The time before each row in which nothing of its group ran; 0 where it has no start."""
        reach = (self.at + self.rows["dur"]).cum_max().shift(1)
        return ((self.at - reach).clip(0).fill_null(0) * ~self.first).rename("gap")
