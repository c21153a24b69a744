"""Values sampled over time: counters, and memory by name."""

import polars as pl

from capture.run import Run
from tracetui.analysis.frames.selection import filter_rows, launch_count, select_existing
from tracetui.look import Look

TREND_CELLS = 64


def compute_counter_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row per counter: number of samples, their range, the last, and the trend."""
    keys = ["name", *select_existing(run, ("unit", "track"))]
    return _compute_sample_table(run, look, "counter", "value", keys)


def compute_memory_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row per name: first, mean, min, max and last size, null beyond 64 bits, and the trend."""
    table = _compute_sample_table(run, look, "memory", "bytes", ["name", *select_existing(run, ("track",))])
    sizes = {c: f"{c}_bytes" for c in ("first", "mean", "min", "max", "last")}
    rounded = (pl.col(c).round().cast(pl.Int64, strict=False) for c in sizes)
    return table.with_columns(rounded).rename(sizes)


def select_samples(run: Run, look: Look, kind: str, value: str) -> pl.LazyFrame:
    """Return samples by time, or in the source's order without times."""
    rows = run.events.lazy().filter((pl.col("kind") == kind) & pl.col(value).is_not_null())
    rows = filter_rows(rows, run, look)
    return rows.sort("t", maintain_order=True, nulls_last=True) if run.has("t") else rows


def _compute_sample_table(run: Run, look: Look, kind: str, value: str, keys: list[str]) -> pl.DataFrame:
    column = pl.col(value)
    count = launch_count(run)
    place = (count.cum_sum() - count) * TREND_CELLS // count.sum().clip(lower_bound=TREND_CELLS)
    mean = (column * count).sum() / count.sum()
    rows = select_samples(run, look, kind, value)
    cells = rows.with_columns(_cell=place.over(keys)).group_by(*keys, "_cell").agg(mean.alias(value))
    trend = cells.group_by(keys).agg(trend=column.sort_by("_cell"))
    table = rows.group_by(keys).agg(
        count=count.sum().cast(pl.Int64),
        first=column.first(),
        mean=mean,
        min=column.min(),
        max=column.max(),
        last=column.last(),
    )
    return table.join(trend, on=keys, nulls_equal=True).sort(keys, nulls_last=True).collect()
