"""The kernel table of many files: what one contributes, and the table of all with its spread between them."""

from dataclasses import replace
from functools import partial as bound
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select, steps, windows
from tracetui.analysis.courses import trends
from tracetui.analysis.kernels import LABELS, QUANTILES, divisor, group_sums
from tracetui.analysis.partial import sketch, standin
from tracetui.analysis.partial.algebra import MEMBERS, Partial, Shape
from tracetui.look import Look

GROUP: Final = "group"  # the column that rows are grouped by, whatever it is
SPREAD: Final = ("files", "least_ns", "most_ns", "spread_share")
MOST_CELLS: Final = 1 << 17  # rows times steps of a file whose trends are kept
_SUMS: Final = ("count", "total_ns", "measured_ns", "seen", "gaps", "lines", "files", *roofline.WORK)
_PRINTED: Final = tuple(name for name, _ in QUANTILES)
SHAPES: Final = {
    "rows": Shape(
        (GROUP,),
        {
            **dict.fromkeys(_SUMS, "sum"),
            "min_ns": "low",
            "max_ns": "high",
            "least_ns": "low",
            "most_ns": "high",
            **dict.fromkeys(LABELS, "same"),
            **dict.fromkeys(_PRINTED, "last"),
        },
    ),
    "sketch": Shape((GROUP, *sketch.KEY), {"times": "sum"}, bound(sketch.settled, group=GROUP)),
    "cells": Shape((GROUP, "step"), {"dur": "sum"}),
    **standin.STEPS,
}


def partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return what a run contributes: exact sums of its rows, a sketch of their durations, its whole; where it
    is to be merged with other ranks, also its rows step by step.
    """
    group = look.group or "name"
    rows = select.with_group(run, select.in_steps(run, look), group)
    each = select.instance_dur(run)
    launches = (rows.filter(select.whole(run)) if select.folded(run) else rows).select(
        standin.plain(run, group).alias(GROUP), dur=each
    )
    frames = {
        "rows": _rows(run, look, rows, launches),
        "sketch": sketch.counted(launches.drop_nulls("dur"), GROUP),
        MEMBERS: _weights(run, look),
    }
    return {**frames, **_step_by_step(run, look, rows)} if look.merged and run.has("step") else frames


def _rows(run: Run, look: Look, rows: pl.LazyFrame, launches: pl.LazyFrame) -> pl.DataFrame:
    """Return the sums of each row, its labels, and the percentiles that the source prints for one."""
    group = look.group or "name"
    adds = [*roofline.work(run), *windows.sums(run, look)]
    sums = group_sums(run, windows.weighed(run, look, rows), group, adds)
    table = windows.scaled(sums.with_columns(seen="count"))
    counts = launches.group_by(GROUP).agg(gaps=pl.col("dur").null_count().cast(pl.Int64))
    only = pl.when(pl.len() == 1)
    printed = rows.group_by(standin.plain(run, group).alias(GROUP)).agg(
        pl.len().cast(pl.Int64).alias("lines"),
        *(only.then(pl.col(c).first()).alias(c) for c in _PRINTED if run.has(c)),
    )
    return (
        table.select(
            standin.plain(run, group).alias(GROUP),
            *(standin.plain(run, c) for c in LABELS if c in table.columns and c != group),
            *(c for c in ("count", "total_ns", "seen", "min_ns", "max_ns")),
            *(c for c in roofline.WORK if c in table.columns),
            measured_ns=pl.col("measured_ns" if "measured_ns" in table.columns else "total_ns"),
            least_ns="total_ns",
            most_ns="total_ns",
            files=pl.lit(1, pl.Int64),
        )
        .join(printed.collect(), on=GROUP, how="left", nulls_equal=True)
        .join(counts.collect(), on=GROUP, how="left", nulls_equal=True)
        .sort(GROUP, nulls_last=True)
    )


def _step_by_step(run: Run, look: Look, rows: pl.LazyFrame) -> dict[str, pl.DataFrame]:
    """Return the time of each row in each step, and the steps; no time where that would be much."""
    group = standin.plain(run, look.group or "name").alias(GROUP)
    timed = rows.filter(pl.col("step").is_not_null())
    cells = timed.group_by(group, pl.col("step").cast(pl.Int64)).agg(pl.col("dur").sum()).collect()
    every = select.in_steps(run, replace(look, filter="", where=(), focus=()))
    numbers = windows.stood_for(
        run, look, every.select(pl.col("step").drop_nulls().unique()).collect()["step"]
    )
    asked = pl.col("step").is_in(numbers.implode())
    frames = standin.steps_of(run, steps.marks(run).with_columns(asked=asked.cast(pl.Int64)))
    return {**frames, "cells": cells} if cells.height <= MOST_CELLS else frames


def _weights(run: Run, look: Look) -> pl.DataFrame:
    """Return what the totals of a run are divided by, and what its shares are of."""
    unfiltered = select.in_steps(run, replace(look, filter="", where=()))
    return pl.DataFrame(
        {
            "divisor": [int(divisor(run, look))],
            "whole_ns": [windows.whole(run, look, unfiltered)],
            "listed": [bool(run.meta.get("listed"))],
            "lens": pl.Series([select.lens_of(run, look)], dtype=pl.String),
        }
    )


def merged_table(partial: Partial, look: Look) -> pl.DataFrame:
    """Return the kernel table over all files, largest total first."""
    members, per = partial.frames[MEMBERS], look.per != "total"
    table = partial.frames["rows"].with_columns(
        mean_ns=pl.when(pl.col("seen") > 0)
        .then((pl.col("measured_ns") / pl.col("seen")).round())
        .cast(pl.Int64),
        spread_share=pl.when(pl.col("total_ns") > 0).then(
            (pl.col("most_ns") - pl.col("least_ns")) * pl.col("files") / pl.col("total_ns")
        ),
    )
    table = _with_rates(_with_percentiles(table, partial.frames["sketch"]), partial)
    whole = 0 if members["listed"].any() else int(members["whole_ns"].sum())
    table = table.sort("total_ns", GROUP, descending=[True, False], nulls_last=True).with_columns(
        share=pl.col("total_ns") / whole if whole else pl.lit(None, pl.Float64)
    )
    table = _with_scale(table.with_columns(cumulative_share=pl.col("share").cum_sum()))
    by = (_divisor(partial, look) if look.merged else int(members["divisor"].sum())) if per else 1
    if by != 1:
        table = table.with_columns((pl.col("total_ns") / by).round().cast(pl.Int64), pl.col("count") / by)
    if look.merged and look.group != "step" and "cells" in partial.frames:
        table = table.join(_trends(partial), on=GROUP, how="left", nulls_equal=True)
    return table.drop("seen", "gaps", "lines").rename({GROUP: look.group or "name"})


def _with_percentiles(table: pl.DataFrame, sketches: pl.DataFrame) -> pl.DataFrame:
    """Return the table with percentiles where every launch is known, else those printed for a single row."""
    wanted = [(f"{name}_ns", share) for name, share in QUANTILES]
    own = sketch.quantiles(sketches, GROUP, wanted)
    table = table.join(own, on=GROUP, how="left", nulls_equal=True)
    inside = [
        pl.when(pl.col("gaps") == 0).then(pl.col(c).clip(pl.col("min_ns"), pl.col("max_ns"))).alias(c)
        for c, _ in wanted
    ]
    table = table.with_columns(inside)
    printed = [c for c in _PRINTED if c in table.columns]
    alone = [
        pl.coalesce(pl.when(pl.col("lines") == 1).then(c), f"{c}_ns").cast(pl.Int64).alias(f"{c}_ns")
        for c in printed
    ]
    return table.with_columns(alone).drop(printed)


def _divisor(partial: Partial, look: Look) -> int:
    """Return the steps of all ranks together, or their tokens, which they have in common."""
    if "steps" not in partial.frames:
        return 1
    marks = partial.frames["steps"].filter(pl.col("asked") == 1)
    by_step = look.per == "step" or marks["tokens"].null_count() == marks.height
    return max(1, int(marks["steps" if by_step else "tokens"].sum()))


def _trends(partial: Partial) -> pl.DataFrame:
    """Return group → its time per step or token, in a few cells."""
    cells = partial.frames["cells"]
    rows = cells.select(pl.lit("kernel").alias("kind"), "step", "dur")
    run = standin.run_of(partial, rows)
    return trends(run, cells.lazy(), GROUP)


def _with_rates(table: pl.DataFrame, partial: Partial) -> pl.DataFrame:
    """Return the table with rates and shares of the roof, where all files agree on the device."""
    scaled = table.with_columns(total_ns="measured_ns", count="seen", _total="total_ns", _count="count")
    rated = roofline.with_rates(scaled, standin.bare(partial))
    return rated.with_columns(total_ns="_total", count="_count").drop("_total", "_count")


def _with_scale(table: pl.DataFrame) -> pl.DataFrame:
    if (table["measured_ns"] == table["total_ns"]).all():
        return table.drop("measured_ns")
    return table.with_columns(scale=pl.col("total_ns") / pl.col("measured_ns"))
