"""Operand shapes: how often each was run, and its rates if work and traffic are known."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline
from tracetui.analysis.frames.selection import build_totals, select_timed, sum_unfiltered_ns
from tracetui.analysis.roofline import build_roof_columns, build_work_sums, with_compute_time
from tracetui.look import Look

_COLUMNS: Final = (
    "count", "total_ns", "share", "mean_ns", "flops", "flop_per_s", "bytes", "byte_per_s",
    "flops_per_launch", "bytes_per_launch",
)  # fmt: skip


def compute_shape_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row per shape and op, largest total first; a rate needs flops or bytes on every row.

    `roof_share` and `bound` are included if a roof is known.
    """
    rows = select_timed(run, look).filter(pl.col("shape").is_not_null())
    keys = ["shape", *(c for c in ("op", "category") if run.has(c))]
    present = [c for c in roofline.WORK if run.has(c)]
    unknown = [pl.lit(None, pl.Float64).alias(c) for c in roofline.WORK if c not in present]
    sums = (
        with_compute_time(rows, run).group_by(keys).agg(*build_totals(run), *build_work_sums(run)).collect()
    )
    roof_columns = build_roof_columns(run, [c for c in roofline.WORK_SUMS if c in sums.columns])
    table = sums.with_columns(unknown).with_columns(*_build_rates(_sum_all_ns(run, look)), *roof_columns)
    table = table.sort("total_ns", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
    return table.select(*keys, *_COLUMNS, *(roofline.ROOF_COLUMNS if roof_columns else ()))


def _sum_all_ns(run: Run, look: Look) -> int | None:
    """Sum the time of the rows with a shape that a filter hides, too; None without a filter."""
    if not (look.filter or look.where):
        return None
    return sum_unfiltered_ns(run, look, pl.col("shape").is_not_null())


def _build_rates(all_ns: int | None) -> list[pl.Expr]:
    """Return expressions derived from count, total_ns, flops and bytes of a row.

    Shares are of `all_ns`, None for the sum of the rows.
    """
    seconds = pl.col("total_ns") / 1e9
    total = pl.col("total_ns").sum() if all_ns is None else pl.lit(all_ns)
    has_time, has_launches = pl.col("total_ns") > 0, pl.col("count") > 0
    mean = (pl.col("total_ns") / pl.col("count")).round().cast(pl.Int64)
    return [
        pl.when(has_launches).then(mean).alias("mean_ns"),
        pl.when(total > 0).then(pl.col("total_ns") / total).alias("share"),
        pl.when(has_time).then(pl.col("flops") / seconds).alias("flop_per_s"),
        pl.when(has_time).then(pl.col("bytes") / seconds).alias("byte_per_s"),
        pl.when(has_launches).then(pl.col("flops") / pl.col("count")).alias("flops_per_launch"),
        pl.when(has_launches).then(pl.col("bytes") / pl.col("count")).alias("bytes_per_launch"),
    ]
