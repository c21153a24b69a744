"""Sort rows by group and start, and place the groups one after the other on a single time axis.

Rows of two groups never overlap on that axis, so one pass over all rows computes what ended before each row
in its own group.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import polars as pl
from msgspec import Struct

from tracetui.analysis.frames.codes import sum_segments, sum_segments_of_cumsum

MAX_SPLIT_VALUES: Final = 16  # up to this many distinct values, filtering by each beats sorting


def measure_union(starts: pl.Series, ends: pl.Series) -> int:
    """Return the time covered by intervals that come by start."""
    if starts.is_empty():
        return 0
    latest_end = ends.cum_max().shift(1, fill_value=starts[0])
    uncovered_start = pl.select(pl.max_horizontal(starts, latest_end)).to_series()
    return int((ends - uncovered_start).clip(lower_bound=0).sum())


def uncovered_ns(end: pl.Expr, by: str | Sequence[str]) -> pl.Expr:
    """The part of each row that no earlier one of its group covers, of rows sorted by group and `t`."""
    latest_end = end.cum_max().shift(1).over(by)
    return (end - pl.max_horizontal("t", latest_end)).clip(0)


def sort_by_group_and_start(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows sorted by group, then by `t` with null last; unchanged if already sorted.

    Categories are sorted by their codes.
    """
    for column in ("t", *reversed(by)):  # sorting is stable, so the last key goes first
        is_start = column == "t"
        key = rows[column].to_physical()
        if key.is_sorted(nulls_last=is_start):
            continue
        code = pl.col(column).to_physical()
        is_text = isinstance(rows.schema[column], pl.Categorical)
        if is_text and (codes := key.unique().sort()).len() <= MAX_SPLIT_VALUES:  # null first
            parts = [rows.filter(code.eq_missing(pl.lit(c, key.dtype))) for c in codes]
            rows = pl.concat(parts, rechunk=True)
        else:
            rows = rows.sort(code, nulls_last=is_start, maintain_order=True)
    return rows


class TimeAxis(Struct, frozen=True, eq=False, dict=True):
    """Rows sorted by group and start, with their positions on the shared axis."""

    rows: pl.DataFrame
    axis_ns: pl.Series  # start of each row on the axis; null if it has none
    is_first: pl.Series  # of each row, in its group
    group: pl.Series  # number of each row's group
    span_ns: pl.Series  # of each group, from its first start to its last end

    @classmethod
    def from_rows(cls, rows: pl.DataFrame, by: Sequence[str]) -> "TimeAxis":
        """Place rows with `t`, `dur` and the group columns on an axis."""
        rows = sort_by_group_and_start(rows, by)
        codes = [rows[c].to_physical() for c in by]
        is_top_row = pl.select(pl.int_range(rows.height) == 0).to_series()
        is_change = [code.ne_missing(code.shift(1)).alias(str(i)) for i, code in enumerate(codes)]
        is_first = pl.select(pl.any_horizontal(is_top_row, *is_change).alias("first"))["first"]
        group = (is_first.cast(pl.UInt32).cum_sum() - 1).set_sorted().rename("group")
        extents = rows.select(group, "t", end=pl.col("t") + pl.col("dur"))
        bounds = extents.group_by("group", maintain_order=True).agg(pl.col("t").first(), pl.col("end").max())
        span_ns = (bounds["end"] - bounds["t"]).fill_null(0)
        offset = span_ns.cum_sum() - span_ns + pl.int_range(span_ns.len(), eager=True) - bounds["t"]
        return cls(rows, (rows["t"] + offset.gather(group)).rename("axis_ns"), is_first, group, span_ns)

    @cached_property
    def gap_ns(self) -> pl.Series:
        """Time before each row in which no row of its group ran; 0 without a start."""
        previous_end = (self.axis_ns + self.rows["dur"]).cum_max().shift(1)
        return ((self.axis_ns - previous_end).clip(0).fill_null(0) * ~self.is_first).rename("gap_ns")

    def measure_union(self, dur: pl.Series) -> pl.Series:
        """Return the time covered by each group's rows if they had these durations."""
        latest_end = (self.axis_ns + dur).cum_max().fill_null(strategy="forward").fill_null(0)
        gaps = (self.axis_ns - latest_end.shift(1, fill_value=0)).clip(0).fill_null(0)
        return sum_segments_of_cumsum(latest_end - gaps.cum_sum(), self.is_first.arg_true())

    def sum_by_group(self, values: pl.Series) -> pl.Series:
        """Return the sum of the values of each group's rows."""
        return sum_segments(values, self.is_first.arg_true())
