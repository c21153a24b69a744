"""The kernel table of many files: what one file contributes, and the table of all, with its spread."""

from functools import partial
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import kernels, roofline
from tracetui.analysis.frames import selection
from tracetui.analysis.kernels import LABELS, QUANTILES
from tracetui.analysis.merged import duration_sketch, merged_run
from tracetui.analysis.merged.partial_results import MEMBERS, FrameShape, PartialResult
from tracetui.analysis.time import step_sampling, step_table
from tracetui.look import Look

GROUP: Final = "group"  # the column that rows are grouped by, under one name
SPREAD_COLUMNS: Final = ("files", "least_ns", "most_ns", "spread_share")
MAX_TREND_CELLS: Final = 1 << 17  # rows × steps of a file up to which trends are computed
_SCALED: Final = {"scaled_ns": "total_ns", "scaled_count": "count"}
_SUMS: Final = (*_SCALED, *_SCALED.values(), "gaps", "lines", "files", *roofline.WORK_SUMS)
SHAPES: Final = {
    "rows": FrameShape(
        (GROUP,),
        {
            **dict.fromkeys(_SUMS, "sum"),
            **dict.fromkeys(("min_ns", "least_ns"), "low"),
            **dict.fromkeys(("max_ns", "most_ns"), "high"),
            **dict.fromkeys(LABELS, "same"),
            **dict.fromkeys(dict(QUANTILES), "last"),
        },
    ),
    "sketch": FrameShape(
        (GROUP, *duration_sketch.SKETCH_KEY),
        {"times": "sum"},
        partial(duration_sketch.compact_sketch, group=GROUP),
    ),
    "cells": FrameShape((GROUP, "step"), {"dur": "sum"}),
    **merged_run.STEP_SHAPES,
}


def sum_kernels(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Sum the rows of a run, with sketches of their durations and the totals that shares refer to.

    A run that is merged with other ranks also contributes the time of each row in each step.
    """
    group = look.group or "name"
    rows = selection.with_group(run, selection.select_in_steps(run, look), group)
    sums = _sum_rows(run, look, rows)
    totals = {
        "divisor": [int(kernels.compute_divisor(run, look))],
        "total_ns": [_compute_total(run, look, sums)],
        "listed": [bool(run.meta.get("listed"))],
        "lens": pl.Series([selection.resolve_lens(run, look)], dtype=pl.String),
    }
    frames = {
        "rows": sums,
        "sketch": _build_sketch(run, rows, group),
        MEMBERS: pl.DataFrame(totals),
    }
    return {**frames, **_sum_by_step(run, look, rows)} if look.merged and run.has("step") else frames


def _compute_total(run: Run, look: Look, sums: pl.DataFrame) -> int:
    """Compute the total that shares refer to: of the sums of all rows, unless some are hidden or scaled."""
    if look.filter or look.where or step_sampling.compute_coverage(run, look) is not None:
        return kernels.compute_unfiltered_total(run, look)
    return int(sums["total_ns"].sum())


def _build_sketch(run: Run, rows: pl.LazyFrame, group: str) -> pl.DataFrame:
    """Build the sketch of the durations of each row's launches."""
    key = merged_run.cast_for_merge(group).alias(GROUP)
    launches = selection.select_unfolded(run, rows).select(key, dur=selection.instance_dur(run)).collect()
    if launches["dur"].null_count():
        launches = launches.drop_nulls("dur")
    return duration_sketch.build_sketch(launches, GROUP)


def _sum_rows(run: Run, look: Look, rows: pl.LazyFrame) -> pl.DataFrame:
    """Sum each row, with its labels and the percentiles that the source prints for a single line.

    `gaps` counts the rows that are sums of launches; null if all launches of a row are folded.
    """
    group = look.group or "name"
    gaps = pl.when(pl.col("gaps").count() > 0).then(pl.col("gaps").sum())
    extra_sums = [*roofline.build_work_sums(run), *step_sampling.build_scaled_sums(run, look), gaps]
    rows = roofline.with_compute_time(step_sampling.with_sampling_weights(run, look, rows), run)
    has_gap = selection.instance_dur(run).is_null().cast(pl.Int64)
    has_gap = pl.when(selection.is_unfolded(run)).then(has_gap) if selection.is_folded(run) else has_gap
    sums = kernels.sum_by_group(run, rows.with_columns(gaps=has_gap), group, extra_sums)
    table = kernels.join_printed_quantiles(run, rows, sums, group)
    labels = [c for c in LABELS if c in table.columns and c != group]
    scaled = {c: pl.col(c if c in sums.columns else measured) for c, measured in _SCALED.items()}
    scaled = {c: total.round().cast(pl.Int64) for c, total in scaled.items()}
    extremes = dict.fromkeys(("least_ns", "most_ns"), scaled["scaled_ns"])
    key, *texts = map(merged_run.cast_for_merge, (group, *labels))
    rest = pl.exclude(group, *labels, *scaled)
    table = table.select(key.alias(GROUP), *texts, rest, **scaled, **extremes, files=pl.lit(1, pl.Int64))
    return table.sort(GROUP, nulls_last=True)


def _sum_by_step(run: Run, look: Look, rows: pl.LazyFrame) -> dict[str, pl.DataFrame]:
    """Sum each row in each step, unless there are too many cells, and collect the steps."""
    group = merged_run.cast_for_merge(look.group or "name").alias(GROUP)
    timed = rows.filter(pl.col("step").is_not_null())
    cells = timed.group_by(group, pl.col("step").cast(pl.Int64)).agg(pl.col("dur").sum()).collect()
    is_requested = kernels.is_requested_step(run, look).cast(pl.Int64)
    facts = step_table.build_step_facts(run).with_columns(is_requested=is_requested)
    frames = merged_run.collect_steps(facts)
    return {**frames, "cells": cells} if cells.height <= MAX_TREND_CELLS else frames


def build_kernel_table(merged: PartialResult, look: Look) -> pl.DataFrame:
    """Build the kernel table over all files, largest total first."""
    members = merged.members
    table = kernels.derive_statistics(merged.frames["rows"], merged_run.build_empty_run(merged))
    if (table["measured_ns"] == table["total_ns"]).all():
        table = table.drop(step_sampling.SCALE_COLUMNS)
    spread = (pl.col("most_ns") - pl.col("least_ns")) * pl.col("files") / pl.col("total_ns")
    table = table.with_columns(spread_share=pl.when(pl.col("total_ns") > 0).then(spread))
    quantiles = [(f"{name}_ns", share) for name, share in QUANTILES]
    sketched = duration_sketch.estimate_quantiles(merged.frames["sketch"], GROUP, quantiles)
    table = table.join(sketched, on=GROUP, how="left", nulls_equal=True)
    table = table.with_columns(pl.col(c).clip(pl.col("min_ns"), pl.col("max_ns")) for c, _ in quantiles)
    total_ns = 0 if members["listed"].any() else int(members["total_ns"].sum())
    table = kernels.with_shares(kernels.choose_quantiles(table), GROUP, total_ns)
    is_known = not (look.filter or look.where)  # else rows that the filter hides are in no part
    table = table.with_columns(cumulative_share=pl.when(is_known).then("cumulative_share"))
    if look.per != "total":
        divisor = _count_units(merged, look) if look.merged else int(members["divisor"].sum())
        table = kernels.divide_totals(table, divisor)
    if look.merged and look.group != "step" and "cells" in merged.frames:
        cells = merged.frames["cells"].with_columns(kind=pl.lit("kernel"))
        run = merged_run.build_merged_run(merged, cells.drop(GROUP))
        step_times = kernels.collect_step_times(cells.lazy(), GROUP)
        trends = kernels.compute_step_trends(run, *step_times, GROUP)
        table = table.join(trends, on=GROUP, how="left", nulls_equal=True)
    return table.rename({GROUP: look.group or "name"})


def _count_units(merged: PartialResult, look: Look) -> int:
    """Count the steps that all ranks have in common, or their tokens."""
    if "steps" not in merged.frames:
        return 1
    requested = merged.frames["steps"].filter(pl.col("is_requested") == 1)
    is_per_step = look.per == "step" or requested["tokens"].null_count() == requested.height
    return max(1, int(requested["steps" if is_per_step else "tokens"].sum()))
