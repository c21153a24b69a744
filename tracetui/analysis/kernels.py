"""Kernel statistics: one row a group, percentiles only where there are instances."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select, steps, windows
from tracetui.look import Look

LABELS: Final = ("name", "op", "layer", "phase", "category", "lens", "shape")
QUANTILES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
TREND_CELLS: Final = 48


def kernel_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a group, largest total first: its share, its trend over steps, its rates."""
    group = look.group or "name"
    rows = select.with_group(run, select.in_steps(run, look), group)
    rows = windows.weighed(run, look, rows)
    adds = [*roofline.work(run), *windows.sums(run, look)]
    sums = windows.scaled(roofline.with_rates(group_sums(run, rows, group, adds), run))
    table = sums.join(_quantiles(run, rows, group), on=group, how="left", nulls_equal=True)
    if run.has("step") and group != "step":
        table = table.join(trends(run, rows, group), on=group, how="left", nulls_equal=True)
    return _per(_with_shares(run, table, group, _whole(run, look)), divisor(run, look))


def total_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a group: count, total and share alone, which is several times faster."""
    return total_tables(run, look, (look.group or "name",))[0]


def total_tables(run: Run, look: Look, groups: Sequence[str]) -> list[pl.DataFrame]:
    """Return such a table for each of several groups, in one pass over the rows."""
    rows = select.in_steps(run, look)
    for group in groups:
        rows = select.with_group(run, rows, group)
    scaled = windows.sums(run, look)
    cells = windows.weighed(run, look, rows).group_by(groups).agg(*_totals(run), *scaled).collect()
    added = [pl.col("count").sum(), pl.col("total_ns").sum(), *scaled]
    tables = [windows.scaled(cells.group_by(group).agg(added)) for group in groups]
    whole, by = _whole(run, look), divisor(run, look)
    return [_per(_with_shares(run, t, group, whole), by) for t, group in zip(tables, groups, strict=True)]


def _whole(run: Run, look: Look) -> int | None:
    """Return what shares are of where a filter hides rows: all rows; None without a filter."""
    if not (look.filter or look.where):
        return None
    return windows.whole(run, look, select.in_steps(run, replace(look, filter="", where=())))


def divisor(run: Run, look: Look) -> float:
    """Return what totals are divided by: 1, the steps looked at, or their tokens; a filter changes none."""
    if look.per == "total" or not run.has("step"):
        return 1
    rows = select.in_steps(run, replace(look, filter="", where=(), focus=()))
    numbers = rows.select(pl.col("step").drop_nulls().unique()).collect()["step"]
    numbers = windows.stood_for(run, look, numbers)
    marks = steps.marks(run).filter(pl.col("step").is_in(numbers.implode()))
    by_step = look.per == "step" or not run.has("tokens")
    return max(1, int(marks["steps" if by_step else "tokens"].sum()))


def trends(run: Run, rows: pl.LazyFrame, group: str, width: int = TREND_CELLS) -> pl.DataFrame:
    """Return group → its time per step (per token where known) in a few cells; a gap is null."""
    timed = rows.filter(pl.col("step").is_not_null()).select(group, "step", "dur").collect()
    cells = _cells(run, timed["step"].unique().sort(), width)
    placed = timed.join(cells.select("step", "cell"), on="step", maintain_order="left")
    if not placed["cell"].is_sorted():
        placed = placed.sort("cell", maintain_order=True)
    weights = cells.group_by("cell").agg(pl.col("weight").sum()).sort("cell")["weight"]
    sums = [
        part.group_by(group).agg(each=pl.col("dur").sum() / weight).with_columns(cell=pl.lit(i))
        for i, (part, weight) in enumerate(zip(_stretches(placed), weights, strict=True))
    ]
    if not sums:
        return pl.DataFrame(schema={group: timed.schema[group], "trend": pl.List(pl.Float64)})
    table = timed.select(pl.col(group).unique()).with_row_index("row")
    found = pl.concat(sums).join(table, on=group, nulls_equal=True)
    places = found["row"].cast(pl.Int64) * len(sums) + found["cell"]
    every = pl.repeat(None, table.height * len(sums), dtype=pl.Float64, eager=True)
    every = every.scatter(places, found["each"])
    return table.select(group, trend=every.reshape((table.height, len(sums))).arr.to_list())


def _stretches(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each cell, which stand together: small tables of groups are fast ones."""
    start = 0
    for length in rows["cell"].rle().struct.field("len"):
        yield rows.slice(start, length)
        start += length


def _cells(run: Run, numbers: pl.Series, width: int) -> pl.DataFrame:
    """Return step → the cell of a trend in which it falls, and its weight: tokens, else steps.

    A prefill in front of a decode would flatten everything after it: it is left out.
    """
    marks = steps.marks(run).filter(pl.col("step").is_in(numbers.implode()))
    decode = marks.filter(pl.col("phase") == "decode")
    chosen = decode if decode.height else marks
    tokens = pl.col("tokens").fill_null(0).clip(lower_bound=0)
    counted = chosen.filter(tokens > 0)
    weight = tokens if counted.height == chosen.height else pl.col("steps")
    return chosen.select("step", weight=weight.cast(pl.Float64), cell=steps.cells(chosen, width))


def group_sums(run: Run, rows: pl.LazyFrame, group: str, work: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return labels, totals, extremes and work; rows are first added up under all labels, in one pass."""
    labels = [c for c in LABELS if run.has(c) and c != group]
    low, high = _extremes(run)
    alike = rows.group_by(group, *labels).agg(*_totals(run), low, high, *work).collect()
    total = pl.col("total_ns").sum()
    mean = pl.when(pl.col("count").sum() > 0).then(total / pl.col("count").sum()).round()
    return alike.group_by(group).agg(
        *(pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()).alias(c) for c in labels),
        pl.col("count").sum(),
        total,
        mean.cast(pl.Int64).alias("mean_ns"),
        pl.when(pl.col("min_ns").null_count() == 0).then(pl.col("min_ns").min()),
        pl.when(pl.col("max_ns").null_count() == 0).then(pl.col("max_ns").max()),
        *work,
    )


def _totals(run: Run) -> tuple[pl.Expr, pl.Expr]:
    """Return expressions of how many launches some rows are, and of their time."""
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    return count.cast(pl.Int64).alias("count"), pl.col("dur").sum().alias("total_ns")


def _extremes(run: Run) -> list[pl.Expr]:
    """Return the shortest and the longest launch, known only where each row is one or states its own."""
    chosen = []
    for stated, extreme in (("min", pl.Expr.min), ("max", pl.Expr.max)):
        each = select.instance_dur(run)
        if run.has(stated):
            each = pl.coalesce(stated, each)
        chosen.append(_of_all(run, each, extreme(each)).alias(f"{stated}_ns"))
    return chosen


def _of_all(run: Run, each: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Return a value that stands only where every row of the group takes part in it."""
    return value if select.all_instances(run) else pl.when(each.null_count() == 0).then(value)


def _quantiles(run: Run, rows: pl.LazyFrame, group: str) -> pl.DataFrame:
    """Return percentiles of instances, else what the source printed for a row; null for sums."""
    each = select.instance_dur(run)
    launches = rows.filter(select.whole(run)) if select.folded(run) else rows
    own = [each.quantile(q, "linear").alias(f"{name}_ns") for name, q in QUANTILES]
    table = launches.group_by(group).agg(*own, _gaps=each.null_count()).collect()
    complete = pl.when(pl.col("_gaps") == 0)
    table = table.select(
        group,
        *(complete.then(pl.col(f"{n}_ns").round().cast(pl.Int64)).alias(f"{n}_ns") for n, _ in QUANTILES),
    )
    stated = [name for name, _ in QUANTILES if run.has(name)]
    if not stated:
        return table
    only = pl.when(pl.len() == 1)
    printed = rows.group_by(group).agg(only.then(pl.col(c).first()) for c in stated).collect()
    table = printed.join(table, on=group, how="left", nulls_equal=True)
    return table.with_columns(pl.coalesce(c, f"{c}_ns").alias(f"{c}_ns") for c in stated).drop(stated)


def _per(table: pl.DataFrame, by: float) -> pl.DataFrame:
    if by == 1:
        return table
    return table.with_columns((pl.col("total_ns") / by).round().cast(pl.Int64), pl.col("count") / by)


def _with_shares(run: Run, table: pl.DataFrame, group: str, whole: int | None) -> pl.DataFrame:
    """Return the table by falling total, with shares; null where the source lists a part of its kernels."""
    total = pl.col("total_ns").sum() if whole is None else pl.lit(whole)
    if run.meta.get("listed"):
        total = pl.lit(0)
    return (
        table.sort("total_ns", group, descending=[True, False], nulls_last=True)
        .with_columns(share=pl.when(total > 0).then(pl.col("total_ns") / total))
        .with_columns(cumulative_share=pl.col("share").cum_sum())
    )
