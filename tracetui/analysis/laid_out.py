"""Rows in the order of their groups and starts, and the groups laid out one behind the other on one axis.

On that axis rows of two groups never share an instant, so that one pass over all rows tells of each what has
ended before it in its own group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

from tracetui.analysis import stretches

FEW: Final = 16  # words whose rows are sooner taken one word after the other than sorted


def in_order(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows by group, then by `t`, those without a start last; those that are in order as they are.

    Categories come in the order of their codes.
    """
    for column in ("t", *reversed(by)):  # sorting is stable, so that the last order holds
        last = column == "t"
        key = rows[column].to_physical()
        if not key.is_sorted(nulls_last=last):
            parts = _parts(rows, column) if isinstance(rows.schema[column], pl.Categorical) else []
            rows = pl.concat(parts, rechunk=True) if parts else _sorted(rows, column, nulls_last=last)
    return rows


def _sorted(rows: pl.DataFrame, column: str, *, nulls_last: bool) -> pl.DataFrame:
    return rows.sort(pl.col(column).to_physical(), nulls_last=nulls_last, maintain_order=True)


def _parts(rows: pl.DataFrame, column: str) -> list[pl.DataFrame]:
    """Return the rows of each of a few words, in the order of their codes; nothing of many words."""
    code = rows[column].to_physical()
    every = code.unique().sort()  # null stands first
    if every.len() > FEW:
        return []
    own = pl.col(column).to_physical()
    return [rows.filter(own.eq_missing(pl.lit(c, code.dtype))) for c in every]


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

    def covered(self, dur: pl.Series) -> pl.Series:
        """Return of each group how much time its rows cover together where they are so long."""
        reach = (self.at + dur).cum_max().fill_null(strategy="forward").fill_null(0)
        gaps = (self.at - reach.shift(1, fill_value=0)).clip(0).fill_null(0)
        return stretches.grown(reach - gaps.cum_sum(), self.first.arg_true())

    def sums(self, values: pl.Series) -> pl.Series:
        """Return of each group the sum of the values of its rows."""
        return stretches.sums(values, self.first.arg_true())
