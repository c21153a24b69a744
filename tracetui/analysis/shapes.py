"""Operand shapes: how often each was run, and at what rate where work and traffic are known."""

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select
from tracetui.look import Look


def shape_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a shape and op, largest total first; a rate needs flops or bytes on every row."""
    rows = select.timed(run, look).filter(pl.col("shape").is_not_null())
    keys = ["shape", *(c for c in ("op", "category") if run.has(c))]
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    total = pl.col("dur").sum()
    unknown = [pl.lit(None, pl.Float64).alias(c) for c in roofline.WORK if not run.has(c)]
    sums = count.cast(pl.Int64).alias("count"), total.alias("total_ns"), *roofline.work(run)
    table = rows.group_by(keys).agg(*sums).collect().with_columns(unknown)
    seconds = pl.col("total_ns") / 1e9
    measurable = pl.col("total_ns") > 0
    every = pl.col("total_ns").sum()
    return (
        table.with_columns(
            mean_ns=pl.when(pl.col("count") > 0)
            .then(pl.col("total_ns") / pl.col("count"))
            .round()
            .cast(pl.Int64),
            share=pl.when(every > 0).then(pl.col("total_ns") / every),
            flop_per_s=pl.when(measurable).then(pl.col("flops") / seconds),
            byte_per_s=pl.when(measurable).then(pl.col("bytes") / seconds),
        )
        .sort("total_ns", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
        .select(*keys, "count", "total_ns", "share", "mean_ns", "flops", "flop_per_s", "bytes", "byte_per_s")
    )
