"""The row of a view that the user opened: its launches, their histogram, its time over steps and layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import (
    find_start_ns,
    is_unfolded,
    launch_count,
    select_timed,
    select_unfolded,
)
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
    return _describe_launches(run, select_timed(run, look).filter(is_unfolded(run)))


def select_numbered_launches(run: Run, look: Look, numbers: Sequence[int] = ()) -> pl.DataFrame:
    """Return the launches that the look selects, or those of some numbers, with their `number` in the run.

    Empty without start times.
    """
    if not run.has("t"):
        return pl.DataFrame()
    events = run.events.with_columns(number=_number_launches(run))
    rows = select_timed(run, look, events=events).filter(is_unfolded(run)) if not numbers else events.lazy()
    return _describe_launches(
        run, rows.filter(pl.col("number").is_in(numbers)) if numbers else rows, "number"
    )


def _describe_launches(run: Run, rows: pl.LazyFrame, *first: str) -> pl.DataFrame:
    columns = [c for c in COLUMNS if run.has(c)]
    start = [(pl.col("t") - find_start_ns(run)).alias("at_ns")] if run.has("t") else []
    delay = [(pl.col("t") - pl.col("launch")).alias("delay_ns")] if run.has("launch") else []
    launcher = [c for c in ("line", "launcher") if run.has(c)]
    config = [pl.col(c).alias(name) for c, name in _CONFIG_NAMES.items() if run.has(c)]
    rows = rows.select(*first, *start, pl.col("dur").alias("dur_ns"), *columns, *delay, *config, *launcher)
    return (rows.sort("at_ns", maintain_order=True, nulls_last=True) if start else rows).collect()


@cache_per_run
def _number_launches(run: Run) -> pl.Series:
    """Return for each event its place among the launches of the run, by time; null if it is none.

    Launches that were folded away count, so that numbers stay in a growing run.
    """
    is_kernel = (pl.col("kind") == "kernel") & pl.col("dur").is_not_null()
    count = launch_count(run)
    folded = run.events.lazy().filter(is_kernel, ~is_unfolded(run)).select(count.sum()).collect().item()
    order = pl.when(is_kernel & is_unfolded(run)).then(pl.col("t")).rank("ordinal").cast(pl.Int64)
    return run.events.select(order + int(folded or 0)).to_series()


def compare_launches(run: Run, a: Mapping[str, Any], b: Mapping[str, Any]) -> pl.DataFrame:
    """Return in which times two launches differ: what, name, a_ns, b_ns, delta_ns, ratio_times.

    The duration comes first; then the wait from the launching call, the time in which its track was idle
    before it, and the time in which kernels of other tracks ran beside it, by falling difference.
    """
    times = [_measure_launch(run, launch) for launch in (a, b)]
    rows = [
        (what, name, *(of_one.get((what, name), 0) for of_one in times))
        for what, name in dict.fromkeys(key for of_one in times for key in of_one)
    ]
    schema = {"what": pl.String, "name": pl.String, "a_ns": pl.Int64, "b_ns": pl.Int64}
    table = pl.DataFrame(rows, schema, orient="row").with_columns(delta_ns=pl.col("b_ns") - pl.col("a_ns"))
    ratio = pl.when(pl.col("a_ns") > 0).then(pl.col("b_ns") / pl.col("a_ns"))
    falling = table[1:].sort(pl.col("delta_ns").abs(), "what", "name", descending=[True, False, False])
    falling = falling.filter((pl.col("a_ns") > 0) | (pl.col("b_ns") > 0))
    columns = ("what", "name", "a_ns", "b_ns", "delta_ns")
    return pl.concat([table[:1], falling]).select(*columns, ratio_times=ratio)


def _measure_launch(run: Run, launch: Mapping[str, Any]) -> dict[tuple[str, str | None], int]:
    """Return the duration of a launch, and the times before and beside it, by what and kernel."""
    start = launch["at_ns"] + find_start_ns(run)
    end = start + launch["dur_ns"]
    times: dict[tuple[str, str | None], int] = {("took", None): launch["dur_ns"]}
    if launch.get("delay_ns") is not None:
        times["from its call to its start", None] = launch["delay_ns"]
    kernels = select_unfolded(run, select_timed(run, Look())).with_columns(end=pl.col("t") + pl.col("dur"))
    same_track = pl.lit(value=True)
    if run.has("track"):
        same_track = pl.col("track").cast(pl.String).eq_missing(pl.lit(launch["track"], pl.String))
    before = kernels.filter(same_track, pl.col("t") < start).select(pl.col("end").max()).collect().item()
    if before is not None:
        times["track idle before it", None] = max(0, start - before)
    overlap = pl.min_horizontal("end", end) - pl.max_horizontal("t", start)
    others = kernels.filter(~same_track, pl.col("t") < end, pl.col("end") > start)
    for name, ns in others.group_by(pl.col("name").cast(pl.String)).agg(overlap.sum()).collect().iter_rows():
        times["beside it", name] = ns
    return times


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
