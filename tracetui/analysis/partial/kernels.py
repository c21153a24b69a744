"""The kernel table of many files: what one contributes, and the table with the spread between files."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture.importlog import ImportLog
from capture.run import Run
from tracetui.analysis import roofline, select, windows
from tracetui.analysis.kernels import LABELS, QUANTILES, divisor, kernel_table
from tracetui.analysis.partial import sketch
from tracetui.analysis.partial.algebra import MEMBERS, Partial, Shape
from tracetui.look import Look

GROUP: Final = "group"  # the column that rows are grouped by, whatever it is
_SUMS: Final = ("count", "total_ns", "measured_ns", "seen", "gaps", "files", *roofline.WORK)
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
        },
    ),
    "sketch": Shape((GROUP, "bucket"), {"times": "sum"}),
}
SPREAD: Final = ("files", "least_ns", "most_ns", "spread_share")


def partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return what a run contributes: its table with exact sums, a sketch of its durations, its whole."""
    group = look.group or "name"
    table = kernel_table(run, replace(look, per="total"))
    rows = select.with_group(run, select.in_steps(run, look), group)
    each = select.instance_dur(run)
    more = rows.group_by(group).agg(
        select.standing_for(run).sum().cast(pl.Int64).alias("seen"),
        each.null_count().cast(pl.Int64).alias("gaps"),
        *roofline.work(run),
    )
    table = table.join(more.collect(), on=group, how="left", nulls_equal=True)
    known = table.rename({group: GROUP}).select(
        _text(GROUP),
        *(_text(c) for c in LABELS if c in table.columns and c != group),
        *(c for c in ("count", "total_ns", "seen", "gaps", "min_ns", "max_ns")),
        *(c for c in roofline.WORK if c in table.columns),
        measured_ns=pl.col("measured_ns" if "measured_ns" in table.columns else "total_ns"),
        least_ns="total_ns",
        most_ns="total_ns",
        files=pl.lit(1, pl.Int64),
    )
    counted = rows.select(_text(group).alias(GROUP), dur=each).drop_nulls("dur")
    counted = counted.with_columns(bucket=sketch.bucket(pl.col("dur")))
    counts = counted.group_by(GROUP, "bucket").agg(times=pl.len().cast(pl.Int64))
    return {
        "rows": known.sort(GROUP, nulls_last=True),
        "sketch": counts.collect(),
        MEMBERS: _weights(run, look),
    }


def _weights(run: Run, look: Look) -> pl.DataFrame:
    """Return what the totals of a run are divided by, and what its shares are of."""
    unfiltered = select.in_steps(run, replace(look, filter=""))
    return pl.DataFrame(
        {
            "divisor": [int(divisor(run, look))],
            "whole_ns": [windows.whole(run, look, unfiltered)],
            "listed": [bool(run.meta.get("listed"))],
            "lens": pl.Series([select.lens_of(run, look)], dtype=pl.String),
        }
    )


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)


def merged_table(partial: Partial, look: Look) -> pl.DataFrame:
    """Return the kernel table over all files, largest total first."""
    rows, members = partial.frames["rows"], partial.frames[MEMBERS]
    table = rows.with_columns(
        mean_ns=pl.when(pl.col("seen") > 0)
        .then((pl.col("measured_ns") / pl.col("seen")).round())
        .cast(pl.Int64),
        spread_share=pl.when(pl.col("total_ns") > 0).then(
            (pl.col("most_ns") - pl.col("least_ns")) * pl.col("files") / pl.col("total_ns")
        ),
    )
    wanted = [(f"{name}_ns", share) for name, share in QUANTILES]
    own = sketch.quantiles(partial.frames["sketch"], (GROUP,), wanted)
    table = table.join(own, on=GROUP, how="left", nulls_equal=True)
    inside = [
        pl.when(pl.col("gaps") == 0).then(pl.col(c).clip(pl.col("min_ns"), pl.col("max_ns"))).alias(c)
        for c, _ in wanted
    ]
    table = _with_rates(table.with_columns(inside), partial)
    whole = 0 if members["listed"].any() else int(members["whole_ns"].sum())
    table = table.sort("total_ns", GROUP, descending=[True, False], nulls_last=True).with_columns(
        share=pl.col("total_ns") / whole if whole else pl.lit(None, pl.Float64)
    )
    by = int(members["divisor"].sum()) if look.per != "total" else 1
    table = table.with_columns(cumulative_share=pl.col("share").cum_sum())
    if by != 1:
        table = table.with_columns((pl.col("total_ns") / by).round().cast(pl.Int64), pl.col("count") / by)
    return _with_scale(table).drop("seen", "gaps").rename({GROUP: look.group or "name"})


def _with_rates(table: pl.DataFrame, partial: Partial) -> pl.DataFrame:
    """Return the table with rates and shares of the roof, where all files agree on the device."""
    of_all = Run("files", partial.meta, pl.DataFrame(), ImportLog())
    scaled = table.with_columns(total_ns="measured_ns", count="seen", _total="total_ns", _count="count")
    rated = roofline.with_rates(scaled, of_all)
    return rated.with_columns(total_ns="_total", count="_count").drop("_total", "_count")


def _with_scale(table: pl.DataFrame) -> pl.DataFrame:
    if (table["measured_ns"] == table["total_ns"]).all():
        return table.drop("measured_ns")
    return table.with_columns(scale=pl.col("total_ns") / pl.col("measured_ns"))
