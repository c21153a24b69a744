"""The row of a view that the user opened: its launches, their histogram, its time over steps and layers."""

import math
from dataclasses import replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames.selection import find_start_ns, is_unfolded, select_timed
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

BINS: Final = 10
TAIL_QUANTILE: Final = 0.99  # beyond it, launches share a bin if they take half of the range
WIDE_RANGE: Final = 50  # largest over smallest, above which bins have equal ratios instead of widths
COLUMNS: Final = ("name", "step", "layer", "phase", "op", "count", "track", "path", "shape")
_CONFIG_NAMES: Final = {
    "grid": "grid", "block": "block", "registers": "registers", "shared": "shared_bytes",
    "occupancy": "occupancy_pct",
}  # fmt: skip
CONFIG_COLUMNS: Final = tuple(_CONFIG_NAMES.values())  # launch configuration


def select_launches(run: Run, look: Look) -> pl.DataFrame:
    """Return the launches that the look selects, without folded rows, by time if known."""
    columns = [c for c in COLUMNS if run.has(c)]
    rows = select_timed(run, look).filter(is_unfolded(run))
    start = [(pl.col("t") - find_start_ns(run)).alias("at_ns")] if run.has("t") else []
    delay = [(pl.col("t") - pl.col("launch")).alias("delay_ns")] if run.has("launch") else []
    launcher = [c for c in ("line", "launcher") if run.has(c)]
    config = [pl.col(c).alias(name) for c, name in _CONFIG_NAMES.items() if run.has(c)]
    rows = rows.select(*start, pl.col("dur").alias("dur_ns"), *columns, *delay, *config, *launcher)
    return (rows.sort("at_ns", maintain_order=True, nulls_last=True) if start else rows).collect()


def compute_statistics(run: Run, look: Look) -> pl.DataFrame:
    """Return the statistics of the kernels view, for all selected rows together."""
    return compute_kernel_table(run, replace(look, group="all", per="total"))


def list_categories(run: Run, look: Look) -> pl.DataFrame:
    """Return the sorted categories of the selected rows; empty if the source has none."""
    if not run.has("category"):
        return pl.DataFrame(schema={"category": pl.String})
    categories = select_timed(run, look).select(pl.col("category").cast(pl.String)).drop_nulls()
    return categories.unique().sort("category").collect()


def group_launch_configs(launches: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct launch configurations with count and total_ns, longest first; empty if unknown."""
    columns = [c for c in CONFIG_COLUMNS if c in launches.columns and not launches[c].is_null().all()]
    if not columns:
        return pl.DataFrame()
    grouped = launches.drop_nulls(columns[:1]).group_by(columns, maintain_order=True)
    sums = grouped.agg(count=pl.len(), total_ns=pl.col("dur_ns").sum())
    return sums.sort("total_ns", descending=True, maintain_order=True)


def compute_histogram(durations: pl.Series) -> pl.DataFrame:
    """Return low_ns, high_ns and count; each duration counts once, the last bin includes its upper edge.

    A few launches far out share the last bin, or bins have equal ratios.
    """
    values = durations.drop_nulls()
    schema = dict.fromkeys(("low_ns", "high_ns", "count"), pl.Int64)
    if values.is_empty():
        return pl.DataFrame(schema=schema)
    low, high = pl.DataFrame({"v": values}).select(low=pl.col("v").min(), high=pl.col("v").max()).row(0)
    tail = int(values.quantile(TAIL_QUANTILE, "higher") or high)
    edges = _compute_edges(low, high)
    if 0 < tail - low < (high - low) / 2 and (low <= 0 or high / low <= WIDE_RANGE):
        edges = [*_compute_edges(low, tail), high]
    inner = pl.Series(edges[1:-1], dtype=pl.Int64)
    bins = inner.search_sorted(values, side="right") if inner.len() else pl.zeros(values.len(), eager=True)
    count_by_bin = dict(bins.value_counts().iter_rows())
    counts = [count_by_bin.get(i, 0) for i in range(len(edges) - 1)]
    return pl.DataFrame({"low_ns": edges[:-1], "high_ns": edges[1:], "count": counts}, schema=schema)


def _compute_edges(low: int, high: int) -> list[int]:
    """Return whole, ascending edges from the lowest value to the highest."""
    if high - low < BINS:
        return list(range(low, high + 1)) if high > low else [low, low]
    if low > 0 and high / low > WIDE_RANGE:
        factor = math.log(high / low) / BINS
        return [low, *(round(low * math.exp(factor * i)) for i in range(1, BINS)), high]
    return [low, *(low + round((high - low) * i / BINS) for i in range(1, BINS)), high]


def sum_by_step(run: Run, look: Look) -> pl.DataFrame:
    """Return phase and total of each step, and its time per token if tokens are known."""
    if not run.has("step"):
        schema = {"step": pl.Int64, "phase": pl.String, "total_ns": pl.Int64, "per_token_ns": pl.Float64}
        return pl.DataFrame(schema=schema)
    rows = select_timed(run, look).filter(pl.col("step").is_not_null())
    sums = rows.group_by("step").agg(pl.col("dur").sum().alias("total_ns")).collect()
    step_facts = build_step_facts(run).select("step", "phase", "tokens")
    per_token = pl.when(pl.col("tokens") > 0).then(pl.col("total_ns") / pl.col("tokens"))
    table = sums.join(step_facts, on="step", how="left").sort("step")
    return table.select("step", "phase", "total_ns", per_token_ns=per_token)


def sum_by_layer(run: Run, look: Look) -> pl.DataFrame:
    """Return the total of each layer."""
    if not run.has("layer"):
        return pl.DataFrame(schema={"layer": pl.Int32, "total_ns": pl.Int64})
    rows = select_timed(run, look).filter(pl.col("layer").is_not_null())
    return rows.group_by("layer").agg(pl.col("dur").sum().alias("total_ns")).sort("layer").collect()
