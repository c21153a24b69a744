"""A sketch of durations: counts in buckets that grow by a fixed ratio, from which percentiles follow.

Two sketches are merged by adding their counts, so the order of merging changes nothing. A percentile is off
by at most ERROR of itself, whatever the durations are (the scheme of DDSketch, Masson et al. 2019).
"""

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

ERROR: Final = 0.005  # of a percentile, at most
_RATIO: Final = (1 + ERROR) / (1 - ERROR)
_ZERO: Final = -1  # the bucket of durations of nothing


def bucket(duration: pl.Expr) -> pl.Expr:
    """Return the bucket of a duration of at least one ns; those of nothing have one of their own."""
    number = (duration.cast(pl.Float64).log() / math.log(_RATIO)).ceil()
    return pl.when(duration > 0).then(number).otherwise(_ZERO).cast(pl.Int32)


def quantiles(counts: pl.DataFrame, key: Sequence[str], asked: Sequence[tuple[str, float]]) -> pl.DataFrame:
    """Return key → percentiles in ns of sketches with columns `bucket` and `times`, between the two launches
    that are nearest, as for exact ones.
    """
    have = counts.sort(*key, "bucket").with_columns(
        below=pl.col("times").cum_sum().over(key), all=pl.col("times").sum().over(key)
    )
    middle = pl.when(pl.col("bucket") == _ZERO).then(0.0).otherwise(_RATIO ** pl.col("bucket") * (1 - ERROR))
    have = have.with_columns(middle=middle)
    wanted = []
    for name, share in asked:
        place = share * (pl.col("all") - 1)
        low = pl.col("middle").filter(pl.col("below") > place.floor()).first()
        high = pl.col("middle").filter(pl.col("below") > place.ceil()).first()
        part = (place - place.floor()).first()
        wanted.append((low + (high - low) * part).round().cast(pl.Int64).alias(name))
    return have.group_by(key).agg(wanted)
