"""Compare growth: the laws of the same op in two runs, the ratio of their slopes, where the lines cross."""

from dataclasses import dataclass

import polars as pl

from capture.run import Run
from tracetui.analysis.growth import Growth, growth
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class Curves:
    """One row for each op that both runs have, and the growth of both runs behind it."""

    rows: pl.DataFrame
    a: Growth
    b: Growth


def curves(a: Run, b: Run, look: Look, group: str) -> Curves:
    """Return the fitted lines of both runs side by side: growing rows first, then by size.

    What scatters has a slope of its own by chance; it is set against no other.
    """
    left, right = growth(a, look, group), growth(b, look, group)
    columns = (group, "law", "slope_ns_per_1k", "r2", "first_ns", "last_ns", "total_ns")
    both = _named(left.rows, columns, "a", group).join(_named(right.rows, columns, "b", group), on=group)
    rows = both.join(_crossing(left, right), left_on=group, right_on="row", how="left")
    laws_of = pl.col("law_a"), pl.col("law_b")
    lines = pl.all_horizontal(law == "linear" for law in laws_of)
    ratio = pl.when(lines & (pl.col("slope_a_ns_per_1k") != 0)).then(
        pl.col("slope_b_ns_per_1k") / pl.col("slope_a_ns_per_1k")
    )
    straight = pl.all_horizontal(law.is_in(["linear", "flat"]) for law in laws_of)
    rows = rows.with_columns(slope_ratio=ratio, cross=pl.when(straight).then(pl.col("cross")))
    grows = pl.any_horizontal(law == "linear" for law in laws_of)
    order = pl.col("total_a_ns") + pl.col("total_b_ns")
    return Curves(rows.sort(grows, order, group, descending=[True, True, False]), left, right)


def _named(rows: pl.DataFrame, columns: tuple[str, ...], side: str, group: str) -> pl.DataFrame:
    """Return expressions that name the columns after their side, before the unit at the end."""
    renamed = {c: _sided(c, side) for c in columns if c != group}
    return rows.select(pl.col(group).cast(pl.String), *renamed).rename(renamed)


def _sided(column: str, side: str) -> str:
    head, unit, tail = column.partition("_ns")
    return f"{head}_{side}{unit}{tail}"


def _crossing(a: Growth, b: Growth) -> pl.DataFrame:
    """Return row → the x at which both lines are equal, within what was measured."""
    left, right = (g.lines.with_columns(pl.col("row").cast(pl.String)) for g in (a, b))
    both = left.join(right, on="row", suffix="_b")
    x = (pl.col("intercept_b") - pl.col("intercept")) / (pl.col("slope") - pl.col("slope_b"))
    low, high = _extent(a, b)
    return both.select("row", cross=pl.when(x.is_between(low, high) & x.is_finite()).then(x))


def _extent(a: Growth, b: Growth) -> tuple[float, float]:
    x = pl.concat([a.series["x"], b.series["x"]])
    low, high = x.min(), x.max()
    return (low, high) if isinstance(low, float) and isinstance(high, float) else (0.0, 0.0)
