"""Operand shapes: how often each was run, and at what rate where work and traffic are known."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select
from tracetui.look import Look

_COLUMNS: Final = (
    "count", "total_ns", "share", "mean_ns", "flops", "flop_per_s", "bytes", "byte_per_s",
    "flops_per_launch", "bytes_per_launch",
)  # fmt: skip


def shape_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a shape and op, largest total first; a rate needs flops or bytes on every row.

    The share of the roof and what bounds a row stand where a roof is known.
    """
    rows = select.timed(run, look).filter(pl.col("shape").is_not_null())
    keys = ["shape", *(c for c in ("op", "category") if run.has(c))]
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    total = pl.col("dur").sum()
    present = [c for c in roofline.WORK if run.has(c)]
    unknown = [pl.lit(None, pl.Float64).alias(c) for c in roofline.WORK if c not in present]
    sums = count.cast(pl.Int64).alias("count"), total.alias("total_ns"), *roofline.work(run)
    table = rows.group_by(keys).agg(*sums).collect().with_columns(unknown)
    against = roofline.against_roof(run, present)
    return (
        table.with_columns(*_rates(), *against)
        .sort("total_ns", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
        .select(*keys, *_COLUMNS, *(roofline.AGAINST_ROOF if against else ()))
    )


def _rates() -> list[pl.Expr]:
    """Return expressions of what follows from count, total_ns, flops and bytes of a row."""
    seconds, every = pl.col("total_ns") / 1e9, pl.col("total_ns").sum()
    measurable, launched = pl.col("total_ns") > 0, pl.col("count") > 0
    mean = (pl.col("total_ns") / pl.col("count")).round().cast(pl.Int64)
    return [
        pl.when(launched).then(mean).alias("mean_ns"),
        pl.when(every > 0).then(pl.col("total_ns") / every).alias("share"),
        pl.when(measurable).then(pl.col("flops") / seconds).alias("flop_per_s"),
        pl.when(measurable).then(pl.col("bytes") / seconds).alias("byte_per_s"),
        pl.when(launched).then(pl.col("flops") / pl.col("count")).alias("flops_per_launch"),
        pl.when(launched).then(pl.col("bytes") / pl.col("count")).alias("bytes_per_launch"),
    ]
