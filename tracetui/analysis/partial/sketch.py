"""A sketch of durations: the values themselves where they are few, else counts in buckets of a fixed ratio.

Two sketches are merged by adding their counts. A group keeps its values until there are more than EXACT
different ones; then its percentiles are off by at most ERROR of themselves, whatever the durations are (the
scheme of DDSketch, Masson et al. 2019). How many different values all parts have together decides, so that
the order of merging changes nothing.
"""

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

ERROR: Final = 0.005  # of a percentile that comes from buckets, at most
EXACT: Final = 2048  # different durations of a group that are kept as they are
KEY: Final = ("dur", "bucket")  # one of them is null
_RATIO: Final = (1 + ERROR) / (1 - ERROR)
_ZERO: Final = -1  # the bucket of durations of nothing


def bucket(duration: pl.Expr) -> pl.Expr:
    """Return the bucket of a duration of at least one ns; those of nothing have one of their own."""
    number = (duration.cast(pl.Float64).log() / math.log(_RATIO)).ceil()
    return pl.when(duration > 0).then(number).otherwise(_ZERO).cast(pl.Int32)


def counted(durations: pl.LazyFrame, group: str) -> pl.DataFrame:
    """Return the sketch of each group of some durations: group, dur, bucket, times."""
    times = durations.group_by(group, "dur").agg(times=pl.len().cast(pl.Int64))
    return settled(times.with_columns(bucket=pl.lit(None, pl.Int32)).collect(), group)


def settled(sketch: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return the sketch with values in buckets where a group has too many of them, or has buckets already."""
    rough = pl.col("bucket").is_not_null().any().over(group) | (pl.len().over(group) > EXACT)
    rows = sketch.with_columns(_rough=rough)
    few, many = rows.filter(~pl.col("_rough")).drop("_rough"), rows.filter("_rough").drop("_rough")
    if many.is_empty():
        return few
    placed = many.with_columns(
        bucket=pl.coalesce("bucket", bucket(pl.col("dur"))), dur=pl.lit(None, pl.Int64)
    )
    sums = placed.group_by(group, *KEY).agg(pl.col("times").sum())
    return pl.concat([few, sums.select(few.columns)])


def quantiles(sketch: pl.DataFrame, group: str, asked: Sequence[tuple[str, float]]) -> pl.DataFrame:
    """Return group → percentiles in ns, between the two launches that are nearest."""
    have = sketch.sort(group, *KEY).with_columns(
        below=pl.col("times").cum_sum().over(group), all=pl.col("times").sum().over(group)
    )
    of_bucket = _RATIO ** pl.col("bucket") * (1 - ERROR)
    middle = pl.when(pl.col("bucket") == _ZERO).then(0.0).otherwise(of_bucket)
    have = have.with_columns(value=pl.coalesce(pl.col("dur").cast(pl.Float64), middle))
    wanted = []
    for name, share in asked:
        place = share * (pl.col("all") - 1)
        low = pl.col("value").filter(pl.col("below") > place.floor()).first()
        high = pl.col("value").filter(pl.col("below") > place.ceil()).first()
        part = (place - place.floor()).first()
        wanted.append((low + (high - low) * part).round().cast(pl.Int64).alias(name))
    return have.group_by(group).agg(wanted)
