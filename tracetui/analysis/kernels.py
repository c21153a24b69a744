"""Kernel statistics: one row a group, percentiles only where there are instances."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final, TypeVar

import polars as pl
from msgspec import Struct

from capture import pieces
from capture.run import Run
from tracetui.analysis import kept, matching, roofline, select, steps, windows
from tracetui.analysis.courses import courses, in_numbered_steps
from tracetui.analysis.packed import grouped
from tracetui.look import Look

Found = TypeVar("Found")

LABELS: Final = ("name", "op", "layer", "phase", "category", "lens", "shape")
QUANTILES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
REMEMBERED: Final = 4  # tables of a run, which filters narrow


def kernel_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a group, largest total first: its share, its trend over steps, its rates."""
    group, plain = look.group or "name", replace(look, filter="")
    known = _measured_before(run).get(plain) if look.filter else None
    table = _narrowed(run, look, known) if known is not None else None
    if table is None:
        measured = _measured(run, look)
        table = measured.table
        if not look.filter:
            _remember(run, plain, measured)
    return _per(_with_shares(run, table, group, _whole(run, look, known)), divisor(run, look))


class _Measured(Struct, frozen=True, eq=False):
    """Groups with what is found of each by itself, and what the rows of each are of."""

    table: pl.DataFrame
    kinds: pl.DataFrame  # the group, name and op: each combination once
    steps: int | None  # of all rows; None where no course over them is known


def _measured(run: Run, look: Look) -> _Measured:
    """Return what is found of each group without a look at the others, in any order."""
    group = look.group or "name"
    rows = windows.weighed(run, look, select.with_group(run, select.in_steps(run, look), group))
    adds = [*roofline.work(run), *windows.sums(run, look)]
    alike, timed_rows = _added_up(run, look, rows, adds)
    sums = windows.scaled(roofline.with_rates(_summed(run, alike, group, adds), run))
    table = sums.join(_quantiles(run, rows, group), on=group, how="left", nulls_equal=True)
    kinds = alike.select(dict.fromkeys((group, "name", *select.have(run, ("op",)))).keys()).unique()
    if not run.has("step") or group == "step":
        return _Measured(table, kinds, None)
    timed, numbers = in_numbered_steps(timed_rows, group)
    table = table.join(courses(run, timed, numbers, group), on=group, how="left", nulls_equal=True)
    return _Measured(table, kinds, numbers.len())


def _added_up(
    run: Run, look: Look, rows: pl.LazyFrame, adds: Sequence[pl.Expr]
) -> tuple[pl.DataFrame, pl.LazyFrame]:
    """Return the sums of rows that have all labels in common, and rows that tell the time of each group in
    each step.
    """
    found = _of_pieces(run, look, "kernels", partial(_sums_of_kernels, run, look, adds))
    if not found:
        return _alike(run, rows, look.group or "name", adds), rows
    alike, timed = zip(*found, strict=True)
    return pl.concat(alike), pl.concat(timed).lazy()


def _sums_of_kernels(
    run: Run, look: Look, adds: Sequence[pl.Expr], rows: pl.LazyFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the same of the rows of a piece, with times of steps added up."""
    group = look.group or "name"
    table = select.with_group(run, rows, group).collect()
    in_steps = [group, "step"] if run.has("step") and group != "step" else [group]
    return _alike(run, table.lazy(), group, adds), table.group_by(in_steps).agg(pl.col("dur").sum())


def _of_pieces(run: Run, look: Look, what: Hashable, find: Callable[[pl.LazyFrame], Found]) -> list[Found]:
    """Return what is found of the rows of each piece of a run that grows, where it has kernels; nothing of
    a run that does not grow, and where other rows decide on those of a piece.
    """
    if look.filter or look.where or look.focus or not pieces.of(run):
        return []
    if windows.coverage(run, look) is not None:
        return []

    def find_in(events: pl.DataFrame) -> Found | None:
        has_kernels = (events["kind"] == "kernel").any()
        return find(select.in_steps(run, look, events)) if has_kernels else None

    about = what, look, select.lens_of(run, look), select.all_instances(run), select.step_sums(run)
    return [found for found in kept.of_pieces(run, about, find_in) if found is not None]


@select.once
def _measured_before(run: Run) -> dict[Look, _Measured]:
    """Return what was measured without a filter of names, by the look."""
    return {}


def _remember(run: Run, look: Look, measured: _Measured) -> None:
    before = _measured_before(run)
    before[look] = measured
    while len(before) > REMEMBERED:
        before.pop(next(iter(before)), None)


def _narrowed(run: Run, look: Look, known: _Measured) -> pl.DataFrame | None:
    """Return those groups that fit the filter; None where it fits only some rows of one."""
    group = look.group or "name"
    judged = known.kinds.with_columns(fits=matching.fits(run, look.filter).fill_null(value=False))
    groups = judged.group_by(group).agg(pl.col("fits").any(), every=pl.col("fits").all())
    if (groups["fits"] != groups["every"]).any():
        return None
    fitting = groups.filter("fits").select(group)
    table = known.table.join(fitting, on=group, how="semi", nulls_equal=True)
    table = roofline.without_unknown(table)
    if known.steps is None or table.height == known.table.height:
        return table
    rows = select.with_group(run, select.in_steps(run, replace(look, filter="")), group)
    rows = rows.filter(pl.col(group).is_in(fitting[group].implode(), nulls_equal=True))
    timed, numbers = in_numbered_steps(rows, group)
    if numbers.len() == known.steps:  # the cells of a course depend on which steps there are
        return table
    anew = courses(run, timed, numbers, group)
    return table.drop("trend").join(anew, on=group, how="left", nulls_equal=True)


def total_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a group: count, total and share alone, which is several times faster."""
    return total_tables(run, look, (look.group or "name",))[0]


def total_tables(run: Run, look: Look, groups: Sequence[str]) -> list[pl.DataFrame]:
    """Return such a table for each of several groups, in one pass over the rows."""
    scaled = windows.sums(run, look)
    found = _of_pieces(run, look, tuple(groups), lambda rows: _cells(run, rows, groups))
    if found:
        cells = pl.concat(found)
    else:
        rows = windows.weighed(run, look, select.in_steps(run, look))
        cells = _cells(run, rows, groups, scaled)
    added = [pl.col("count").sum(), pl.col("total_ns").sum(), *scaled]
    tables = [windows.scaled(cells.group_by(group).agg(added)) for group in groups]
    whole, by = _whole(run, look), divisor(run, look)
    return [_per(_with_shares(run, t, group, whole), by) for t, group in zip(tables, groups, strict=True)]


def _cells(
    run: Run, rows: pl.LazyFrame, groups: Sequence[str], scaled: Sequence[pl.Expr] = ()
) -> pl.DataFrame:
    """Return count and total of rows that are alike in all groups."""
    for group in groups:
        rows = select.with_group(run, rows, group)
    return grouped(rows, groups, (*_totals(run), *scaled))


def _whole(run: Run, look: Look, known: _Measured | None = None) -> int | None:
    """Return what shares are of where a filter hides rows: all rows; None without a filter."""
    if not (look.filter or look.where):
        return None
    if known is not None and not look.where and "scale" not in known.table.columns:
        return int(known.table["total_ns"].sum())
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


def group_sums(run: Run, rows: pl.LazyFrame, group: str, work: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return labels, totals, extremes and work; rows are first added up under all labels, in one pass."""
    return _summed(run, _alike(run, rows, group, work), group, work)


def _alike(run: Run, rows: pl.LazyFrame, group: str, work: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return the sums of rows that have all labels in common."""
    return grouped(rows, (group, *_labels(run, group)), (*_totals(run), *_extremes(run), *work))


def _labels(run: Run, group: str) -> list[str]:
    return [c for c in LABELS if run.has(c) and c != group]


def _summed(run: Run, alike: pl.DataFrame, group: str, work: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return the sums of each group, with the labels on which all its rows agree."""
    labels = _labels(run, group)
    total = pl.col("total_ns").sum()
    mean = pl.when(pl.col("count").sum() > 0).then(total / pl.col("count").sum()).round()
    return alike.group_by(group).agg(
        *map(_agreed, labels),
        pl.col("count").sum(),
        total,
        mean.cast(pl.Int64).alias("mean_ns"),
        pl.when(pl.col("min_ns").null_count() == 0).then(pl.col("min_ns").min()),
        pl.when(pl.col("max_ns").null_count() == 0).then(pl.col("max_ns").max()),
        *work,
    )


@cache
def _agreed(label: str) -> pl.Expr:
    """Return the value of a column on which all rows agree; null where they do not."""
    return pl.when(pl.col(label).n_unique() == 1).then(pl.col(label).first()).alias(label)


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
    table = table.select_seq(
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
    return table.with_columns_seq((pl.col("total_ns") / by).round().cast(pl.Int64), pl.col("count") / by)


def _with_shares(run: Run, table: pl.DataFrame, group: str, whole: int | None) -> pl.DataFrame:
    """Return the table by falling total, with shares; null where the source lists a part of its kernels."""
    total = pl.col("total_ns").sum() if whole is None else pl.lit(whole)
    if run.meta.get("listed"):
        total = pl.lit(0)
    return (
        table.sort("total_ns", group, descending=[True, False], nulls_last=True)
        .with_columns_seq(share=pl.when(total > 0).then(pl.col("total_ns") / total))
        .with_columns_seq(cumulative_share=pl.col("share").cum_sum())
    )
