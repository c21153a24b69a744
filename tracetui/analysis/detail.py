"""One row of another view, entered: its launches, their distribution, its course over steps and layers."""

import math
from dataclasses import replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select, steps
from tracetui.analysis.kernels import kernel_table
from tracetui.look import Look

BINS: Final = 10
WIDE_RANGE: Final = 50  # largest over smallest, beyond which bins grow by a factor instead of a distance
COLUMNS: Final = ("name", "step", "layer", "phase", "op", "count", "track", "path", "shape")
_FORM: Final = {
    "grid": "grid", "block": "block", "registers": "registers", "shared": "shared_bytes",
    "occupancy": "occupancy_pct",
}  # fmt: skip
FORM: Final = tuple(_FORM.values())  # how a row was launched


def launches(run: Run, look: Look) -> pl.DataFrame:
    """Return the rows themselves, without folded ones, in the order of time where it is known."""
    columns = [c for c in COLUMNS if run.has(c)]
    rows = select.timed(run, look).filter(select.whole(run))
    start = [(pl.col("t") - select.start(run)).alias("at_ns")] if run.has("t") else []
    delay = [(pl.col("t") - pl.col("launch")).alias("delay_ns")] if run.has("launch") else []
    launcher = [c for c in ("line", "launcher") if run.has(c)]
    form = [pl.col(c).alias(name) for c, name in _FORM.items() if run.has(c)]
    rows = rows.select(*start, pl.col("dur").alias("dur_ns"), *columns, *delay, *form, *launcher)
    return (rows.sort("at_ns", maintain_order=True, nulls_last=True) if start else rows).collect()


def statistics(run: Run, look: Look) -> pl.DataFrame:
    """Return what the kernels view says of all these rows together."""
    return kernel_table(run, replace(look, group="all", per="total"))


def category(run: Run, look: Look) -> pl.DataFrame:
    """Return the categories of these rows, one a row, from A; nothing where the source tells none."""
    if not run.has("category"):
        return pl.DataFrame(schema={"category": pl.String})
    own = select.timed(run, look).select(pl.col("category").cast(pl.String)).drop_nulls()
    return own.unique().sort("category").collect()


def forms(launches: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct forms in which rows were launched, with count and total_ns, the longest first.

    Empty where the source knows none.
    """
    known = [c for c in FORM if c in launches.columns and launches[c].null_count() < launches.height]
    if not known:
        return pl.DataFrame()
    grouped = launches.drop_nulls(known[:1]).group_by(known, maintain_order=True)
    return grouped.agg(count=pl.len(), total_ns=pl.col("dur_ns").sum()).sort(
        "total_ns", descending=True, maintain_order=True
    )


def histogram(durations: pl.Series, bins: int = BINS) -> pl.DataFrame:
    """Return low_ns, high_ns, count: each duration counted once; the last bin holds its upper edge too."""
    values = durations.drop_nulls()
    schema = {"low_ns": pl.Int64, "high_ns": pl.Int64, "count": pl.Int64}
    if values.is_empty():
        return pl.DataFrame(schema=schema)
    low, high = pl.DataFrame({"v": values}).select(a=pl.col("v").min(), b=pl.col("v").max()).row(0)
    edges = _edges(low, high, bins)
    counts = dict(_binned(values, edges).iter_rows())
    rows = {
        "low_ns": edges[:-1],
        "high_ns": edges[1:],
        "count": [counts.get(i, 0) for i in range(len(edges) - 1)],
    }
    return pl.DataFrame(rows, schema=schema)


def _binned(values: pl.Series, edges: list[int]) -> pl.DataFrame:
    """Return bin → how many values lie from its lower edge up to the next."""
    inner = pl.Series(edges[1:-1], dtype=pl.Int64)
    place = inner.search_sorted(values, side="right") if inner.len() else pl.zeros(values.len(), eager=True)
    return pl.DataFrame({"bin": place}).group_by("bin").agg(pl.len())


def _edges(low: int, high: int, bins: int) -> list[int]:
    """Return whole, rising edges from the lowest value to the highest."""
    if high - low < bins:
        return list(range(low, high + 1)) if high > low else [low, low]
    if low > 0 and high / low > WIDE_RANGE:
        factor = math.log(high / low) / bins
        return [low, *(round(low * math.exp(factor * i)) for i in range(1, bins)), high]
    return [low, *(low + round((high - low) * i / bins) for i in range(1, bins)), high]


def by_step(run: Run, look: Look) -> pl.DataFrame:
    """Return step → phase, total and, where tokens are known, the time of one token."""
    if not run.has("step"):
        return pl.DataFrame(
            schema={"step": pl.Int64, "phase": pl.String, "total_ns": pl.Int64, "per_token_ns": pl.Float64}
        )
    rows = select.timed(run, look).filter(pl.col("step").is_not_null())
    sums = rows.group_by("step").agg(pl.col("dur").sum().alias("total_ns")).collect()
    marks = steps.marks(run).select("step", "phase", "tokens")
    per = pl.when(pl.col("tokens") > 0).then(pl.col("total_ns") / pl.col("tokens"))
    return (
        sums.join(marks, on="step", how="left")
        .select("step", "phase", "total_ns", per_token_ns=per)
        .sort("step")
    )


def by_layer(run: Run, look: Look) -> pl.DataFrame:
    """Return layer → total."""
    if not run.has("layer"):
        return pl.DataFrame(schema={"layer": pl.Int32, "total_ns": pl.Int64})
    rows = select.timed(run, look).filter(pl.col("layer").is_not_null())
    return rows.group_by("layer").agg(pl.col("dur").sum().alias("total_ns")).sort("layer").collect()
