"""Slow steps: each step against its like, and in what a slow one differs from them.

The like of a step are the steps of its phase and number of tokens nearest to it: a decode step gets longer
with its context, so far ones are no measure.
"""

from dataclasses import replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui.analysis.frames.line_fit import MAD_TO_SD
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import build_totals, select_kind, select_timed, select_unfolded
from tracetui.analysis.time.step_table import (
    compute_step_durations,
    compute_step_table,
    find_profiled_steps,
)
from tracetui.look import Look

NEIGHBOURS: Final = 12  # steps on either side that a step is compared with
MIN_LIKE: Final = 6  # fewer are no measure
SLOW_RATIO: Final = 1.25  # to the median of its like, from which a step may be slow
SLOW_DEVIATIONS: Final = 5.0  # robust standard deviations of this ratio over the phase, likewise
MIN_COUNTER_CHANGE: Final = 0.15  # of a counter's median, from which its value is told
IDLE, OUTSIDE, UNMEASURED = "idle", "outside of the device's time", "outside of kernels"

_GAPS: Final = dict.fromkeys(("what", "by"), pl.String()) | dict.fromkeys(
    ("step_ns", "median_ns", "count", "median_count"), pl.Int64()
)
_NO_STEPS: Final = {
    "step": pl.Int64(), "took_ns": pl.Int64(), "like_times": pl.Float64(), "slow": pl.Boolean(),
}  # fmt: skip


class StepDifference(Struct, frozen=True, eq=False):
    """A step against the median of its like."""

    rows: pl.DataFrame  # what, step_ns, median_ns, delta_ns, ratio_times, count, median_count, by
    took_ns: int
    median_ns: int
    like: int  # how many steps it is compared with; 1: a step that the user named
    phase: str | None
    counters: pl.DataFrame  # name, value, median, unit: those that differ
    unequal: tuple[str, ...] = ()  # in what work a step that the user named differs: phase, batch, tokens


@cache_per_run
def compare_steps(run: Run) -> pl.DataFrame:
    """Return each step with its time, its ratio to the median of its like, and whether it is `slow`.

    The ratio is null with fewer than MIN_LIKE of them. Steps under the program's own profiler are compared
    with each other.
    """
    table = compute_step_table(run, Look())
    if "steps" in table.columns:  # of a folded row no single step is known
        table = table.filter(pl.col("steps") == 1)
    if table.is_empty():
        return pl.DataFrame(schema=_NO_STEPS)
    like, took = [*_choose_like(table), "is_inside"], _step_time(table)
    table = table.join(find_profiled_steps(run), on="step", how="left", maintain_order="left")
    table = table.with_columns(took_ns=took).filter(pl.col("took_ns") > 0)
    median = pl.col("took_ns").map_batches(_compute_median_of_others, return_dtype=pl.Int64).over(like)
    table = table.with_columns(like_times=pl.col("took_ns") / median)
    off = (pl.col("like_times") - 1).abs()
    spread = off.median().over(like) * MAD_TO_SD
    slow = (pl.col("like_times") >= SLOW_RATIO) & (off > SLOW_DEVIATIONS * spread)
    return table.select("step", "took_ns", "like_times", slow=slow.fill_null(value=False))


def _compute_median_of_others(times: pl.Series) -> pl.Series:
    """Return for each time the median of those beside it, without itself; null for fewer than MIN_LIKE."""
    values = times.to_list()
    windows = (
        sorted(values[max(0, at - NEIGHBOURS) : at] + values[at + 1 : at + 1 + NEIGHBOURS])
        for at in range(len(values))
    )
    medians = [
        round((near[(len(near) - 1) // 2] + near[len(near) // 2]) / 2) if len(near) >= MIN_LIKE else None
        for near in windows
    ]
    return pl.Series(medians, dtype=pl.Int64)


def _choose_like(table: pl.DataFrame) -> list[str]:
    """Return the columns in which a step equals its like: phase, and tokens unless most steps differ."""
    sizes = table.select(pl.len().over("phase", "tokens").median()).item()
    return ["phase", "tokens"] if sizes > MIN_LIKE else ["phase"]


def _step_time(table: pl.DataFrame) -> pl.Expr:
    """Return the time of a step by one clock for all: wall, else device, else the sum of its kernels."""
    for column in ("wall_ns", "busy_ns"):
        if column in table.columns and not table[column].has_nulls():
            return pl.col("wall_ns") if column == "wall_ns" else pl.col("busy_ns") + pl.col("idle_ns")
    return pl.col("total_ns").fill_null(0)


def explain_step(run: Run, step: int, reference: int | None = None) -> StepDifference | None:
    """Return in what a step differs from the median of its like, or from one other step.

    None if it has no like, or one of the steps is unknown.
    """
    table = compute_step_table(run, Look())
    if "steps" in table.columns:  # of a folded row no single step is known
        table = table.filter(pl.col("steps") == 1)
    one = table.filter(step=step)
    if one.is_empty():
        return None
    if reference is None:
        near = _select_near(table.filter((_step_time(table) > 0) | (pl.col("step") == step)), one)
        if near.height <= MIN_LIKE:
            return None
    else:
        near = table.filter(pl.col("step").is_in([step, reference]))
        if near.height < 2:
            return None
    is_step = pl.col("step") == step
    unequal = () if reference is None else _list_unequal_work(near, reference, step)
    times = near.select("step", took_ns=_step_time(table))
    rows = pl.concat([_compare_rows(run, near["step"], step), _compare_gaps(near, step)])
    delta = pl.col("step_ns") - pl.col("median_ns")
    rows = rows.with_columns(
        delta_ns=delta,
        ratio_times=pl.when(pl.col("median_ns") > 0).then(pl.col("step_ns") / pl.col("median_ns")),
    )
    order = ["what", "step_ns", "median_ns", "delta_ns", "ratio_times", "count", "median_count", "by"]
    return StepDifference(
        rows.select(order).sort(pl.col("delta_ns").abs(), "what", descending=[True, False]),
        took_ns=int(times.filter(is_step)["took_ns"][0]),
        median_ns=round(float(times.filter(~is_step)["took_ns"].median() or 0)),  # type: ignore[arg-type]
        like=near.height - 1,
        phase=one["phase"][0],
        counters=_compare_counters(run, near["step"], step),
        unequal=unequal,
    )


def sum_step(run: Run, step: int) -> pl.DataFrame:
    """Return time and launches of each op in one step, the longest first; no rows for an unknown step."""
    rows = _compare_rows(run, pl.Series("step", [step]), step)
    return rows.select("what", "step_ns", "count", "by").sort("step_ns", "what", descending=[True, False])


def _list_unequal_work(table: pl.DataFrame, a: int, b: int) -> tuple[str, ...]:
    """List the facts of what two steps compute that differ, from a to b."""
    facts = [c for c in ("phase", "batch", "tokens") if c in table.columns]
    before, after = (table.filter(step=step).select(facts).row(0) for step in (a, b))
    sides = zip(facts, before, after, strict=True)
    return tuple(f"{fact} {x} → {y}" for fact, x, y in sides if x != y and None not in (x, y))


def _select_near(table: pl.DataFrame, one: pl.DataFrame) -> pl.DataFrame:
    """Return the row of a step and those of its like next to it."""
    step, like = one["step"][0], _choose_like(table)
    table = table.join(one.select(like), on=like, how="semi", nulls_equal=True, maintain_order="left")
    at = int((table["step"] < step).sum())
    return table.slice(max(0, at - NEIGHBOURS), min(at, NEIGHBOURS) + 1 + NEIGHBOURS)


def _compare_rows(run: Run, steps: pl.Series, step: int) -> pl.DataFrame:
    """Return time and launches of each op in the step, and their medians in the others; `by` its column."""
    window = int(steps[0]), int(steps[-1])
    rows = select_unfolded(run, select_timed(run, replace(Look(), window=window)))
    rows = rows.filter(pl.col("step").is_in(steps.implode()))
    name = pl.col("name").cast(pl.String)
    op = pl.col("op").cast(pl.String) if run.has("op") else pl.lit(None, pl.String)
    by = pl.when(op.is_null()).then(pl.lit("name")).otherwise(pl.lit("op"))
    sums = rows.group_by(what=pl.coalesce(op, name), by=by, step="step").agg(build_totals(run)).collect()
    return _against_median(sums, steps, step, "total_ns", "count")


def _against_median(sums: pl.DataFrame, steps: pl.Series, step: int, value: str, count: str) -> pl.DataFrame:
    """Return `what` with value and count in the step, and their medians in the others; absent rows are 0."""
    grid = sums.select("what", "by").unique().join(steps.to_frame("step"), how="cross")
    full = grid.join(sums, on=["what", "by", "step"], how="left", nulls_equal=True)
    full = full.with_columns(pl.col(value, count).fill_null(0))
    here = pl.col("step") == step
    table = full.group_by("what", "by").agg(
        step_ns=pl.col(value).filter(here).first(),
        median_ns=pl.col(value).filter(~here).median().round().cast(pl.Int64),
        count=pl.col(count).filter(here).first(),
        median_count=pl.col(count).filter(~here).median().round().cast(pl.Int64),
    )
    return table.filter((pl.col("step_ns") > 0) | (pl.col("median_ns") > 0))


def _compare_gaps(near: pl.DataFrame, step: int) -> pl.DataFrame:
    """Return the same for time in which no kernel ran: idle by its causes, and outside of the device."""
    names = {"host_late_ns": "idle: host late", "sync_ns": "idle: synchronisation"}
    causes = {c: name for c, name in names.items() if c in near.columns}
    named = pl.sum_horizontal(pl.col(c).fill_null(0) for c in causes) if causes else pl.lit(0)
    table = near
    if "idle_ns" in near.columns:
        table = near.with_columns(idle_ns=pl.col("idle_ns").fill_null(0) - named)
    columns = {**causes, "idle_ns": IDLE, "outside_ns": OUTSIDE, "gap_ns": UNMEASURED}
    present = {c: name for c, name in columns.items() if c in table.columns and not table[c].has_nulls()}
    parts = [
        table.select(
            "step",
            what=pl.lit(name),
            by=pl.lit(None, pl.String),
            ns=pl.col(c).cast(pl.Int64),
            count=pl.lit(None, pl.Int64),
        )
        for c, name in present.items()
    ]
    if not parts:
        return pl.DataFrame(schema=_GAPS)
    gaps = _against_median(pl.concat(parts), near["step"], step, "ns", "count")
    return gaps.with_columns(pl.lit(None, pl.Int64).alias(c) for c in ("count", "median_count"))


def _compare_counters(run: Run, steps: pl.Series, step: int) -> pl.DataFrame:
    """Return the counters whose mean in the step differs from the median of the others."""
    schema = {"name": pl.String, "value": pl.Float64, "median": pl.Float64, "unit": pl.String}
    spans = compute_step_durations(run).filter(pl.col("step").is_in(steps.implode()))
    spans = spans.select("step", "t", end=pl.col("t") + pl.col("took_ns")).drop_nulls().sort("t")
    if spans.is_empty() or not {"value", "t"} <= set(run.events.columns):
        return pl.DataFrame(schema=schema)
    columns = ("name", "t", "value", "unit")
    samples = select_kind(run, "counter", columns).drop_nulls(["t", "value"]).sort("t")
    if samples.is_empty():
        return pl.DataFrame(schema=schema)
    placed = samples.join_asof(spans, on="t", strategy="backward").filter(pl.col("t") <= pl.col("end"))
    unit = pl.col("unit").first().cast(pl.String) if "unit" in placed.columns else pl.lit("")
    means = placed.group_by(pl.col("name").cast(pl.String), "step").agg(pl.col("value").mean(), unit=unit)
    here = pl.col("step") == step
    table = means.group_by("name").agg(
        pl.col("value").filter(here).first(),
        median=pl.col("value").filter(~here).median(),
        unit=pl.col("unit").first(),
        others=(~here).sum(),
    )
    change = (pl.col("value") / pl.col("median") - 1).abs()
    enough = pl.col("others") >= min(MIN_LIKE, steps.len() - 1)
    differs = enough & (pl.col("median") != 0) & (change > MIN_COUNTER_CHANGE)
    return table.filter(differs).sort(change, descending=True).select(schema.keys())
