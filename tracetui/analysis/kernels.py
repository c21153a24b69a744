"""Kernel statistics: one row a group, percentiles only where there are instances."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.select import timed
from tracetui.look import Look

LABELS: Final = ("op", "layer", "phase", "category", "lens", "shape")
QUANTILES: Final = (("p50_ns", 0.50, "p50"), ("p95_ns", 0.95, "p95"), ("p99_ns", 0.99, "p99"))


def kernel_table(run: Run, look: Look) -> pl.DataFrame:
    """One row a group, largest total first, with its share and its trend over steps."""
    rows = timed(run, look)
    group = look.group
    keys = [pl.col(group)] if run.has(group) else [pl.lit(None, dtype=pl.String).alias(group)]
    table = rows.group_by(keys, maintain_order=True).agg(*_labels(run, group), *_statistics(run)).collect()
    if run.has("step"):
        table = table.join(_trend(rows, group), on=group, how="left", nulls_equal=True, maintain_order="left")
    return _with_shares(_per(table, run, rows, look))


def divisor(run: Run, rows: pl.LazyFrame, look: Look) -> float:
    """What totals are divided by: 1, the steps, or the tokens of the steps that the rows stand in."""
    if look.per == "total" or not run.has("step"):
        return 1
    steps = rows.select("step").unique().collect()["step"].drop_nulls()
    if look.per == "step" or not run.has("tokens"):
        return max(1, steps.len())
    marks = run.events.filter((pl.col("kind") == "step") & pl.col("step").is_in(steps.implode()))
    return max(1, int(marks["tokens"].sum()))


def _labels(run: Run, group: str) -> list[pl.Expr]:
    """A label stands only where the whole group agrees on it."""
    agreed = (pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()) for c in LABELS)
    return [
        label.alias(c) if c == "layer" else label.cast(pl.String).alias(c)
        for c, label in zip(LABELS, agreed, strict=True)
        if run.has(c) and c != group
    ]


def _statistics(run: Run) -> list[pl.Expr]:
    count = pl.col("count").fill_null(1) if run.has("count") else pl.lit(1)
    single = (pl.col("count").fill_null(1) == 1).all() if run.has("count") else pl.lit(True)
    total = pl.col("dur").sum()
    stats = [
        (count.sum() if run.has("count") else pl.len().cast(pl.Int64)).alias("count"),
        total.alias("total_ns"),
        (total / (count.sum() if run.has("count") else pl.len())).round().cast(pl.Int64).alias("mean_ns"),
    ]
    for alias, q, stated in QUANTILES:
        own = pl.when(single).then(pl.col("dur").quantile(q, "linear").round().cast(pl.Int64))
        stats.append(_or_stated(run, own, stated).alias(alias))
    for alias, stated in (("min_ns", "min"), ("max_ns", "max")):
        own = pl.when(single).then(pl.col("dur").min() if stated == "min" else pl.col("dur").max())
        printed = (
            pl.col(stated).min() if stated == "min" else pl.col(stated).max() if run.has(stated) else own
        )
        stats.append((pl.coalesce(own, printed) if run.has(stated) else own).alias(alias))
    return stats


def _or_stated(run: Run, own: pl.Expr, stated: str) -> pl.Expr:
    """The percentile of the instances, else the one the source printed for the group's only row."""
    if not run.has(stated):
        return own
    return pl.coalesce(own, pl.when(pl.len() == 1).then(pl.col(stated).first()))


def _trend(rows: pl.LazyFrame, group: str) -> pl.DataFrame:
    """group → its total in each step, in step order."""
    return (
        rows.filter(pl.col("step").is_not_null())
        .group_by(group, "step")
        .agg(pl.col("dur").sum())
        .sort("step")
        .group_by(group, maintain_order=True)
        .agg(pl.col("dur").alias("trend"))
        .collect()
    )


def _per(table: pl.DataFrame, run: Run, rows: pl.LazyFrame, look: Look) -> pl.DataFrame:
    by = divisor(run, rows, look)
    if by == 1:
        return table
    return table.with_columns((pl.col("total_ns") / by).round().cast(pl.Int64), pl.col("count") / by)


def _with_shares(table: pl.DataFrame) -> pl.DataFrame:
    total = pl.col("total_ns").sum()
    return (
        table.sort("total_ns", descending=True, maintain_order=True)
        .with_columns(share=pl.when(total > 0).then(pl.col("total_ns") / total))
        .with_columns(cumulative_share=pl.col("share").cum_sum())
    )
