"""Split the difference of two totals exactly: calls, time per call, new, gone, unmeasured gap."""

from typing import Final

import polars as pl

PARTS: Final = ("calls_ns", "time_ns", "new_ns", "gone_ns")


def parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return matched rows with Δtotal split so that the parts add up to it, to the nanosecond.

    Δcalls at the old time per call is rounded to a whole nanosecond; what is left is the time per call.
    A side may have time of no call, which a summary can say: it counts as new or gone too.
    """
    both = (pl.col("count_a") > 0) & (pl.col("count_b") > 0)
    delta = pl.col("total_b_ns") - pl.col("total_a_ns")
    old_rate = pl.col("total_a_ns") / pl.col("count_a")
    calls = ((pl.col("count_b") - pl.col("count_a")) * old_rate).round().cast(pl.Int64)
    nothing = pl.lit(0, dtype=pl.Int64)
    return rows.with_columns(
        delta_ns=delta,
        calls_ns=pl.when(both).then(calls).otherwise(nothing),
        time_ns=pl.when(both).then(delta - calls).otherwise(nothing),
        new_ns=pl.when(pl.col("count_a") == 0).then(delta).otherwise(nothing),
        gone_ns=pl.when((pl.col("count_a") > 0) & (pl.col("count_b") == 0)).then(delta).otherwise(nothing),
    )


def waterfall(rows: pl.DataFrame, by: str, gap_ns: int | None) -> pl.DataFrame:
    """Return one bar a group, largest change first, and one for the gap; they add up to the whole Δ."""
    split = parts(rows)
    label = pl.col(by).cast(pl.String) if by in split.columns else pl.lit(None, dtype=pl.String)
    bars = (
        split.group_by(label.fill_null("–").alias(by))
        .agg(pl.col("total_a_ns", "total_b_ns", "delta_ns", *PARTS).sum())
        .sort(pl.col("delta_ns").abs(), by, descending=[True, False])
    )
    if gap_ns is None:
        return bars
    gap = {c: 0 for c in bars.columns if c != by} | {by: "between the measured kernels", "delta_ns": gap_ns}
    return pl.concat([bars, pl.DataFrame([gap], schema=bars.schema)])
