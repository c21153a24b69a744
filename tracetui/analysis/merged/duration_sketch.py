"""Sketches of durations: exact values if they are few, else counts in buckets of a constant ratio.

Sketches merge by adding their counts. A group keeps exact values up to `MAX_EXACT_VALUES` different ones;
beyond, percentiles have a relative error of at most `MAX_RELATIVE_ERROR` (DDSketch, Masson et al. 2019). The
number of different values of all files together decides, so the order of merging has no effect.
"""

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

MAX_RELATIVE_ERROR: Final = 0.005  # of a percentile from buckets
MAX_EXACT_VALUES: Final = 2048  # different durations that a group keeps exactly
SKETCH_KEY: Final = ("dur", "bucket")  # one of them is null
_RATIO: Final = (1 + MAX_RELATIVE_ERROR) / (1 - MAX_RELATIVE_ERROR)
_ZERO_BUCKET: Final = -1  # the bucket of durations of 0 ns


def bucket(duration: pl.Expr) -> pl.Expr:
    """Bucket of a duration in ns; 0 ns has a bucket of its own."""
    number = (duration.cast(pl.Float64).log() / math.log(_RATIO)).ceil()
    return pl.when(duration > 0).then(number).otherwise(_ZERO_BUCKET).cast(pl.Int32)


def build_sketch(durations: pl.DataFrame, group: str) -> pl.DataFrame:
    """Build the sketch of each group: group, dur, bucket, times."""
    times = durations.group_by(group, "dur").agg(times=pl.len().cast(pl.Int64))
    return compact_sketch(times.with_columns(bucket=pl.lit(None, pl.Int32)), group)


def compact_sketch(sketch: pl.DataFrame, group: str) -> pl.DataFrame:
    """Move the values of groups that have too many, or have buckets already, into buckets."""
    if sketch.height <= MAX_EXACT_VALUES and sketch["bucket"].null_count() == sketch.height:
        return sketch
    needs_buckets = pl.col("bucket").is_not_null().any() | (pl.len() > MAX_EXACT_VALUES)
    is_rough = sketch.select(needs_buckets.over(group)).to_series()
    exact, rough = sketch.filter(~is_rough), sketch.filter(is_rough)
    if rough.is_empty():
        return exact
    number = pl.coalesce("bucket", bucket(pl.col("dur")))
    sums = rough.with_columns(bucket=number, dur=pl.lit(None, pl.Int64)).group_by(group, *SKETCH_KEY)
    return pl.concat([exact, sums.agg(pl.col("times").sum()).select(exact.columns)])


def estimate_quantiles(
    sketch: pl.DataFrame, group: str, quantiles: Sequence[tuple[str, float]]
) -> pl.DataFrame:
    """Estimate quantiles (name, share) of each group in ns, interpolated between the two nearest launches."""
    center = _RATIO ** pl.col("bucket") * (1 - MAX_RELATIVE_ERROR)
    rough = pl.when(pl.col("bucket") == _ZERO_BUCKET).then(0.0).otherwise(center)
    counts = sketch.sort(group, *SKETCH_KEY).with_columns(
        below=pl.col("times").cum_sum().over(group),
        all=pl.col("times").sum().over(group),
        value=pl.coalesce(pl.col("dur").cast(pl.Float64), rough),
    )
    columns = []
    for name, share in quantiles:
        rank = share * (pl.col("all") - 1)
        low = pl.col("value").filter(pl.col("below") > rank.floor()).first()
        high = pl.col("value").filter(pl.col("below") > rank.ceil()).first()
        fraction = (rank - rank.floor()).first()
        columns.append((low + (high - low) * fraction).round().cast(pl.Int64).alias(name))
    return counts.group_by(group).agg(columns)
