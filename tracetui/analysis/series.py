"""Things sampled over time: counters, and memory by name."""

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look

TREND_CELLS = 64


def counter_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a counter: how many samples, their range, the last, and how they moved."""
    return _sampled(run, look, "counter", "value", ["name", *select.have(run, ("unit", "track"))])


def memory_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a name: smallest, largest and last size, and how it moved; no size beyond 64 bits."""
    table = _sampled(run, look, "memory", "bytes", ["name", *select.have(run, ("track",))])
    sizes = {c: f"{c}_bytes" for c in ("first", "mean", "min", "max", "last")}
    whole = (pl.col(c).round().cast(pl.Int64, strict=False) for c in sizes)
    return table.with_columns(whole).rename(sizes)


def samples(run: Run, look: Look, kind: str, value: str) -> pl.LazyFrame:
    """Return samples in the order of time; where the source tells none, in its own order."""
    rows = run.events.lazy().filter((pl.col("kind") == kind) & pl.col(value).is_not_null())
    rows = select.narrowed(rows, run, look)
    return rows.sort("t", maintain_order=True, nulls_last=True) if run.has("t") else rows


def _sampled(run: Run, look: Look, kind: str, value: str, keys: list[str]) -> pl.DataFrame:
    v = pl.col(value)
    count = select.standing_for(run)
    place = (count.cum_sum() - count) * TREND_CELLS // count.sum().clip(lower_bound=TREND_CELLS)
    mean = (v * count).sum() / count.sum()
    rows = samples(run, look, kind, value)
    trend = (
        rows.with_columns(_cell=place.over(keys))
        .group_by(*keys, "_cell")
        .agg(mean.alias(value))
        .group_by(keys)
        .agg(v.sort_by("_cell").alias("trend"))
    )
    table = rows.group_by(keys).agg(
        count.sum().cast(pl.Int64).alias("count"),
        v.first().alias("first"),
        mean.alias("mean"),
        v.min().alias("min"),
        v.max().alias("max"),
        v.last().alias("last"),
    )
    joined = table.join(trend, on=keys, nulls_equal=True)
    return joined.sort(keys, nulls_last=True).collect()
