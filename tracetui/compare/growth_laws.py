"""Compare growth: the laws of each op in two runs, the ratio of their slopes, and where the lines cross."""

from dataclasses import dataclass

import polars as pl

from capture.run import Run
from tracetui.analysis.growth import Growth, compute_growth
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class GrowthComparison:
    """One row per op that both runs have, and the growth of both runs."""

    rows: pl.DataFrame
    a: Growth
    b: Growth


def compare_growth(a: Run, b: Run, look: Look, group: str) -> GrowthComparison:
    """Compare the fitted lines of both runs: growing rows first, then by size.

    Noisy rows have a slope by chance, so only lines are compared.
    """
    left, right = compute_growth(a, look, group), compute_growth(b, look, group)
    both = _select_side(left.rows, group, "a").join(_select_side(right.rows, group, "b"), on=group)
    rows = both.join(_find_crossings(left, right), left_on=group, right_on="row", how="left")
    laws = pl.col("law_a"), pl.col("law_b")
    are_linear = pl.all_horizontal(law == "linear" for law in laws)
    slope_a, slope_b = pl.col("slope_a_ns_per_1k"), pl.col("slope_b_ns_per_1k")
    ratio = pl.when(are_linear & (slope_a != 0)).then(slope_b / slope_a)
    are_straight = pl.all_horizontal(law.is_in(["linear", "flat"]) for law in laws)
    rows = rows.with_columns(slope_ratio=ratio, cross=pl.when(are_straight).then(pl.col("cross")))
    grows = pl.any_horizontal(law == "linear" for law in laws)
    size = pl.col("total_a_ns") + pl.col("total_b_ns")
    return GrowthComparison(rows.sort(grows, size, group, descending=[True, True, False]), left, right)


def _select_side(rows: pl.DataFrame, group: str, side: str) -> pl.DataFrame:
    """Select columns, named with their side: slope_ns_per_1k of a is slope_a_ns_per_1k."""
    columns = ("law", "slope_ns_per_1k", "r2", "first_ns", "last_ns", "total_ns")
    parts = ((column, *column.partition("_ns")) for column in columns)
    renamed = {f"{head}_{side}{unit}{tail}": column for column, head, unit, tail in parts}
    return rows.select(pl.col(group).cast(pl.String), **renamed)


def _find_crossings(a: Growth, b: Growth) -> pl.DataFrame:
    """Find for each row the x at which both lines are equal, within the measured range."""
    left, right = (g.lines.with_columns(pl.col("row").cast(pl.String)) for g in (a, b))
    both = left.join(right, on="row", suffix="_b")
    x = (pl.col("intercept_b") - pl.col("intercept")) / (pl.col("slope") - pl.col("slope_b"))
    measured = pl.concat([a.series["x"], b.series["x"]])
    is_measured = x.is_between(pl.lit(measured.min()), pl.lit(measured.max())) & x.is_finite()
    return both.select("row", cross=pl.when(is_measured).then(x))
