"""Kernel statistics: one row per group, with trends over the steps; percentiles only of single launches."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import polars as pl
from msgspec import Struct

from capture.run import Run, list_chunks
from tracetui.analysis.frames.codes import group_by_packed_key
from tracetui.analysis.frames.name_filter import is_name_match
from tracetui.analysis.frames.run_memo import cache_per_run, map_chunks
from tracetui.analysis.frames.selection import (
    build_totals,
    common_value,
    has_only_launches,
    has_step_sums,
    instance_dur,
    is_change,
    resolve_lens,
    select_existing,
    select_in_steps,
    select_unfolded,
    with_group,
)
from tracetui.analysis.roofline import build_work_sums, drop_unknown_rates, with_compute_time, with_rates
from tracetui.analysis.time.step_sampling import (
    build_scaled_sums,
    compute_coverage,
    compute_scaled_total,
    find_represented_steps,
    scale_totals,
    with_sampling_weights,
)
from tracetui.analysis.time.step_table import assign_trend_cells, build_step_facts
from tracetui.look import Look

Result = TypeVar("Result")

TREND_CELLS: Final = 48
MAX_ROWS_AT_ONCE: Final = 1 << 17  # with more rows, summing cell by cell is faster
LABELS: Final = ("name", "op", "layer", "phase", "category", "lens", "shape")
QUANTILES: Final = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
MAX_CACHED_TABLES: Final = 4  # tables per run, which filters reuse


def collect_step_times(rows: pl.LazyFrame, group: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return group, step and time of the rows in steps, and the sorted step numbers."""
    timed = rows.filter(pl.col("step").is_not_null()).select(group, "step", "dur").collect()
    step = timed["step"]
    return timed, step.filter(is_change(step)).unique().sort()


def compute_step_trends(run: Run, timed: pl.DataFrame, numbers: pl.Series, group: str) -> pl.DataFrame:
    """Return the time per step (per token if known) of each group in a few cells; null in a gap."""
    cells = _assign_cells(run, numbers)
    if cells.is_empty():
        return pl.DataFrame(schema={group: timed.schema[group], "trend": pl.List(pl.Float64)})
    count = int(cells["place"].max()) + 1  # type: ignore[arg-type]
    table = timed.select(pl.col(group).unique()).with_row_index("row")
    cell_times = _sum_by_cell(timed, cells, group).join(table, on=group, nulls_equal=True)
    indices = cell_times["row"].cast(pl.Int64) * count + cell_times["place"]
    no_times = pl.repeat(None, table.height * count, dtype=pl.Float64, eager=True)
    flat = no_times.scatter(indices, cell_times["each"])
    return table.select(group, trend=flat.reshape((table.height, count)).arr.to_list())


def _sum_by_cell(timed: pl.DataFrame, cells: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return group and `place` with `each`, the time in a cell divided by its weight.

    Few rows are summed at once, otherwise cell by cell: grouping small tables is fast.
    """
    placed = timed.join(cells, on="step", maintain_order="left")
    weighted_time = (pl.col("dur").sum() / pl.col("weight").first()).alias("each")
    if placed.height <= MAX_ROWS_AT_ONCE:
        return placed.group_by(group, "place").agg(weighted_time)
    if not placed["place"].is_sorted():
        placed = placed.sort("place", maintain_order=True)
    sums = pl.col("place").first(), weighted_time
    return pl.concat(part.group_by(group).agg(sums) for part in _iter_cells(placed))


def _iter_cells(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each cell, which are adjacent."""
    start = 0
    for length in rows["place"].rle().struct.field("len"):
        yield rows.slice(start, length)
        start += length


def _assign_cells(run: Run, numbers: pl.Series) -> pl.DataFrame:
    """Return the cell of each step in a trend, and the cell's weight: tokens, else steps.

    Only decode steps are included if there are any: a prefill in front would flatten everything after it.
    """
    marks = build_step_facts(run)
    if numbers.len() < marks.height:
        marks = marks.filter(pl.col("step").is_in(numbers.implode()))
    decode = (marks["phase"] == "decode").sum()
    chosen = marks.filter(pl.col("phase") == "decode") if 0 < decode < marks.height else marks
    weight = pl.col("tokens" if (chosen["tokens"] > 0).sum() == chosen.height else "steps")
    cell, weight = assign_trend_cells(chosen, TREND_CELLS).alias("cell"), weight.cast(pl.Float64)
    place = cell.rank("dense").cast(pl.Int64) - 1
    return chosen.select_seq("step", weight=weight.sum().over(cell), place=place)


def compute_kernel_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row per group, largest total first: its share, trend over steps and rates."""
    cache = _make_stats_cache(run)
    cached = cache.get(replace(look, filter="")) if look.filter else None
    table = _filter_measured(run, look, cached) if cached is not None else None
    if table is None:
        measured = _measure_groups(run, look)
        table = measured.table
        if not look.filter:
            cache[look] = measured
            while len(cache) > MAX_CACHED_TABLES:
                cache.pop(next(iter(cache)), None)
    table = with_shares(table, look.group or "name", _compute_share_base(run, look, cached))
    if look.filter or look.where:
        table = _with_unfiltered_cumulative_shares(run, look, table)
    return divide_totals(table, compute_divisor(run, look))


def _with_unfiltered_cumulative_shares(run: Run, look: Look, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with cumulative shares among all rows; null for a row that a filter shows in part."""
    group = look.group or "name"
    everything = compute_total_table(run, replace(look, filter="", where=(), per="total"))
    everything = everything.select(group, all_ns="total_ns", among_all="cumulative_share")
    table = table.join(everything, on=group, how="left", nulls_equal=True, maintain_order="left")
    is_whole = pl.col("total_ns") == pl.col("all_ns")
    table = table.with_columns(cumulative_share=pl.when(is_whole).then("among_all"))
    return table.drop("all_ns", "among_all")


class _GroupStats(Struct, frozen=True, eq=False):
    """Statistics of each group by itself, and the labels of its rows."""

    table: pl.DataFrame
    kinds: pl.DataFrame  # distinct combinations of group, name and op


def _measure_groups(run: Run, look: Look) -> _GroupStats:
    """Compute the statistics of each group, without those that depend on other groups, in any order."""
    group = look.group or "name"
    rows = with_sampling_weights(run, look, with_group(run, select_in_steps(run, look), group))
    rows = with_compute_time(rows, run)
    extra_sums = [*build_work_sums(run), *build_scaled_sums(run, look)]
    chunk_sums = _map_kernel_chunks(run, look, "kernels", partial(_sum_chunk, run, group, extra_sums))
    if chunk_sums:
        label_sums, timed_rows = (pl.concat(frames) for frames in zip(*chunk_sums, strict=True))
    else:
        label_sums, timed_rows = _sum_equal_labels(run, rows, group, extra_sums), rows
    sums = derive_statistics(_merge_label_sums(run, label_sums, group, extra_sums), run)
    table = sums.join(_compute_quantiles(run, rows, group), on=group, how="left", nulls_equal=True)
    kinds = label_sums.select(dict.fromkeys((group, "name", *select_existing(run, ("op",)))).keys()).unique()
    if not run.has("step") or group == "step":
        return _GroupStats(table, kinds)
    timed, numbers = collect_step_times(timed_rows.lazy(), group)
    if look.filter or look.where:  # the cells of a trend are those of all rows
        everything = select_in_steps(run, replace(look, filter="", where=()))
        numbers = collect_step_times(with_group(run, everything, group), group)[1]
    trends = compute_step_trends(run, timed, numbers, group)
    return _GroupStats(table.join(trends, on=group, how="left", nulls_equal=True), kinds)


def _sum_chunk(
    run: Run, group: str, extra_sums: Sequence[pl.Expr], rows: pl.LazyFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the label sums of a chunk's rows, and the time of each group in each step."""
    table = with_compute_time(with_group(run, rows, group), run).collect()
    in_steps = [group, "step"] if run.has("step") and group != "step" else [group]
    times = table.group_by(in_steps).agg(pl.col("dur").sum())
    return _sum_equal_labels(run, table.lazy(), group, extra_sums), times


def _map_kernel_chunks(
    run: Run, look: Look, key: Hashable, compute: Callable[[pl.LazyFrame], Result]
) -> list[Result]:
    """Return `compute(rows)` of each chunk with kernels of a growing run.

    Empty if the run has no chunks, or if a chunk's rows depend on other rows: filters, focus, sampling.
    """
    if look.filter or look.where or look.focus or not list_chunks(run):
        return []
    if compute_coverage(run, look) is not None:
        return []

    def compute_chunk(events: pl.DataFrame) -> Result | None:
        has_kernels = (events["kind"] == "kernel").any()
        return compute(select_in_steps(run, look, events)) if has_kernels else None

    full_key = key, look, resolve_lens(run, look), has_only_launches(run), has_step_sums(run)
    return [result for result in map_chunks(run, full_key, compute_chunk) if result is not None]


@cache_per_run
def _make_stats_cache(run: Run) -> dict[Look, _GroupStats]:
    """Return the run's dict from unfiltered look to group statistics, empty at first."""
    return {}


def _filter_measured(run: Run, look: Look, stats: _GroupStats) -> pl.DataFrame | None:
    """Return the groups that match the filter; None if only some rows of a group match."""
    group = look.group or "name"
    kinds = stats.kinds.with_columns(fits=is_name_match(run, look.filter).fill_null(value=False))
    groups = kinds.group_by(group).agg(pl.col("fits").any(), all_fit=pl.col("fits").all())
    if (groups["fits"] != groups["all_fit"]).any():
        return None
    matching = groups.filter("fits").select(group)
    return drop_unknown_rates(stats.table.join(matching, on=group, how="semi", nulls_equal=True))


def compute_total_table(run: Run, look: Look) -> pl.DataFrame:
    """Return count, total and share of each group; several times faster than the full table."""
    return compute_total_tables(run, look, (look.group or "name",))[0]


def compute_total_tables(run: Run, look: Look, groups: Sequence[str]) -> list[pl.DataFrame]:
    """Return such a table for each of several groups, in one pass over the rows."""
    scaled = build_scaled_sums(run, look)
    chunk_sums = _map_kernel_chunks(run, look, tuple(groups), lambda rows: _sum_by_groups(run, rows, groups))
    if chunk_sums:
        cells = pl.concat(chunk_sums)
    else:
        rows = with_sampling_weights(run, look, select_in_steps(run, look))
        cells = _sum_by_groups(run, rows, groups, scaled)
    sums = pl.col("count", "total_ns").sum(), *scaled
    tables = [scale_totals(cells.group_by(group).agg(sums)) for group in groups]
    base, divisor = _compute_share_base(run, look), compute_divisor(run, look)
    return [divide_totals(with_shares(t, g, base), divisor) for t, g in zip(tables, groups, strict=True)]


def _sum_by_groups(
    run: Run, rows: pl.LazyFrame, groups: Sequence[str], scaled: Sequence[pl.Expr] = ()
) -> pl.DataFrame:
    """Return count and total of rows equal in all groups."""
    for group in groups:
        rows = with_group(run, rows, group)
    return group_by_packed_key(rows, groups, (*build_totals(run), *scaled))


def _compute_share_base(run: Run, look: Look, cached: _GroupStats | None = None) -> int | None:
    """Return the total of all rows, which shares refer to if a filter hides some; None without a filter.

    0 if the source lists only a part of its kernels.
    """
    if run.meta.get("listed"):
        return 0
    if not (look.filter or look.where):
        return None
    if cached is not None and not look.where and "scale" not in cached.table.columns:
        return int(cached.table["total_ns"].sum())
    return compute_unfiltered_total(run, look)


def compute_unfiltered_total(run: Run, look: Look) -> int:
    """Return the time of all rows, including filtered ones, scaled to the steps they represent."""
    return compute_scaled_total(run, look, select_in_steps(run, replace(look, filter="", where=())))


def compute_divisor(run: Run, look: Look) -> float:
    """Return the divisor of totals: 1, the selected steps, or their tokens; filters do not change it."""
    if look.per == "total" or not run.has("step"):
        return 1
    step_facts = build_step_facts(run).filter(is_requested_step(run, look))
    by_step = look.per == "step" or not run.has("tokens")
    return max(1, int(step_facts["steps" if by_step else "tokens"].sum()))


def is_requested_step(run: Run, look: Look) -> pl.Expr:
    """True for the selected steps, and for those that sampled ones represent."""
    rows = select_in_steps(run, replace(look, filter="", where=(), focus=()))
    numbers = rows.select(pl.col("step").drop_nulls().unique()).collect()["step"]
    return pl.col("step").is_in(find_represented_steps(run, look, numbers).implode())


def sum_by_group(run: Run, rows: pl.LazyFrame, group: str, work: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return labels, totals, extremes and work of each group, summed under all labels in one pass."""
    return _merge_label_sums(run, _sum_equal_labels(run, rows, group, work), group, work)


def _sum_equal_labels(run: Run, rows: pl.LazyFrame, group: str, work: Sequence[pl.Expr]) -> pl.DataFrame:
    sums = *build_totals(run), *_build_extremes(run), *work
    return group_by_packed_key(rows, (group, *_list_labels(run, group)), sums)


def _list_labels(run: Run, group: str) -> list[str]:
    return [c for c in LABELS if run.has(c) and c != group]


def _merge_label_sums(
    run: Run, label_sums: pl.DataFrame, group: str, work: Sequence[pl.Expr]
) -> pl.DataFrame:
    """Return the sums of each group, with the labels that all its rows share."""
    if label_sums[group].n_unique() == label_sums.height:
        return label_sums
    return label_sums.group_by(group).agg(
        *map(common_value, _list_labels(run, group)),
        pl.col("count", "total_ns").sum(),
        pl.when(pl.col("min_ns").null_count() == 0).then(pl.col("min_ns").min()),
        pl.when(pl.col("max_ns").null_count() == 0).then(pl.col("max_ns").max()),
        *work,
    )


def derive_statistics(sums: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Return sums of groups with mean and rates, and with totals scaled to all steps."""
    mean = pl.when(pl.col("count") > 0).then(pl.col("total_ns") / pl.col("count")).round()
    return scale_totals(with_rates(sums.with_columns_seq(mean_ns=mean.cast(pl.Int64)), run))


def _build_extremes(run: Run) -> list[pl.Expr]:
    """Return the shortest and longest launch, if each row is one launch or reports its own."""
    extremes = []
    for name, find_extreme in (("min", pl.Expr.min), ("max", pl.Expr.max)):
        each = pl.coalesce(name, instance_dur(run)) if run.has(name) else instance_dur(run)
        extreme = find_extreme(each)
        complete = extreme if has_only_launches(run) else pl.when(each.null_count() == 0).then(extreme)
        extremes.append(complete.alias(f"{name}_ns"))
    return extremes


def _compute_quantiles(run: Run, rows: pl.LazyFrame, group: str) -> pl.DataFrame:
    """Return percentiles of single launches, else as printed by the source for a row; null for sums."""
    each = instance_dur(run)
    quantiles = [each.quantile(q, "linear").alias(f"{name}_ns") for name, q in QUANTILES]
    table = select_unfolded(run, rows).group_by(group).agg(*quantiles, gaps=each.null_count()).collect()
    return choose_quantiles(join_printed_quantiles(run, rows, table, group))


def join_printed_quantiles(run: Run, rows: pl.LazyFrame, table: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return the table with the percentiles that the source prints for a single row, and `lines`."""
    names = [name for name, _ in QUANTILES if run.has(name)]
    if not names:
        return table
    if_single = pl.when(pl.len() == 1)
    printed = rows.group_by(group).agg(
        *(if_single.then(pl.col(c).first()).alias(c) for c in names), lines=pl.len().cast(pl.Int64)
    )
    return printed.collect().join(table, on=group, how="left", nulls_equal=True)


def choose_quantiles(table: pl.DataFrame) -> pl.DataFrame:
    """Return percentiles printed for a single row, else those of groups without gaps, else null."""
    if_complete, if_single = pl.when(pl.col("gaps") == 0), pl.when(pl.col("lines") == 1)
    columns = []
    for name, _ in QUANTILES:
        value = if_complete.then(pl.col(f"{name}_ns").round().cast(pl.Int64))
        printed = [if_single.then(name)] if name in table.columns else []
        columns.append(pl.coalesce(*printed, value).cast(pl.Int64).alias(f"{name}_ns"))
    return table.with_columns_seq(columns).drop("gaps", "lines", *dict(QUANTILES), strict=False)


def divide_totals(table: pl.DataFrame, by: float) -> pl.DataFrame:
    """Return the table with totals and counts per step or token."""
    if by == 1:
        return table
    return table.with_columns_seq((pl.col("total_ns") / by).round().cast(pl.Int64), pl.col("count") / by)


def with_shares(table: pl.DataFrame, group: str, base: int | None) -> pl.DataFrame:
    """Return the table by falling total, with shares of the base, else of all rows; null if the base is 0."""
    total = pl.col("total_ns").sum() if base is None else pl.lit(base)
    return (
        table.sort("total_ns", group, descending=[True, False], nulls_last=True)
        .with_columns_seq(share=pl.when(total > 0).then(pl.col("total_ns") / total))
        .with_columns_seq(cumulative_share=pl.col("share").cum_sum())
    )
