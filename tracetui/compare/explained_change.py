"""Attribute the change of the step time between two runs to sampled clocks and loads.

Work of c cycles takes c / f, so time follows a power of the clock between −1 and 0, shrunk towards −1; the
time of a fixed loop is an inverse clock. What other programs do to the machine (usage, pressure, stolen time)
can only slow a step. One ridge regression with these signs estimates both effects over the steps within each
run, where the code is constant; applied to the difference of the runs, they give the shares. A load counts by
no more than either run alone allows. The machine slows all rows, so no more of a change is explained than
rows have in common: one row that takes longer is the code's. What a program does itself (its own usage, its
memory) is no cause.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.line_fit import MAD_TO_SD
from tracetui.analysis.frames.statistics import MIN_SAMPLES, Floats
from tracetui.analysis.time import step_table
from tracetui.compare import params
from tracetui.compare.cycle_statistics import (
    compute_welch_p,
    find_source_unit,
    select_cycle_rows,
    with_levels,
)
from tracetui.compare.pairing.step_times import compute_step_totals, drop_warm_up
from tracetui.look import Look

CLOCK_METRICS: Final = re.compile(r"(?i)freq|clock|mhz|fixed_loop_time")
LOOP_COUNTER: Final = "fixed_loop_time"
LOAD_METRICS: Final = re.compile(r"(?i)pressure|host_cpu|steal|swap|throttl|major_fault")
_TIMES: Final = ("number", "step", "kernels")
_SCHEMA: Final = dict.fromkeys(("metric", "unit"), pl.String) | dict.fromkeys(
    ("before", "after", "share"), pl.Float64
)


@dataclass(frozen=True, eq=False)
class ExplainedChange:
    """The change of the step time, and the metrics that moved, largest share first."""

    phase: str | None
    what: str  # step or kernels, whichever changed more
    before_ns: float
    after_ns: float
    metrics: pl.DataFrame  # metric, unit, before, after, share
    metric_count: int  # metrics that could have been a cause

    @property
    def unexplained_share(self) -> float:
        """Share of the change that no metric explains."""
        return 1 - float(self.metrics["share"].sum())


def explain_change(a: Run, b: Run, look: Look) -> ExplainedChange | None:
    """Attribute the change of the step time in the look's phase, else in the phase that takes longest.

    None if the step time did not change, or if both runs did not sample the same metrics.
    """
    phase = look.phase or _find_longest_phase(a, b)
    left, right = (_tabulate_levels(run, phase) for run in (a, b))
    if left is None or right is None or min(left.height, right.height) < MIN_SAMPLES:
        return None
    names = sorted({*left.columns} & {*right.columns} - {*_TIMES})
    what = max(("step", "kernels"), key=lambda c: abs(_compute_change(c, left, right)))
    if not names or abs(_compute_change(what, left, right)) < params.NEGLIGIBLE:
        return None
    before, after = (float(np.exp(_compute_median(what, side))) for side in (left, right))
    shares = _compute_shares(what, left, right, names, a)
    common = _compute_common_share(a, b, phase, _compute_change(what, left, right))
    shares = shares.with_columns(pl.col("share") * min(1.0, common / max(float(shares["share"].sum()), 1e-9)))
    return ExplainedChange(phase, what, before, after, shares, len(names))


def _compute_shares(
    what: str, left: pl.DataFrame, right: pl.DataFrame, names: list[str], a: Run
) -> pl.DataFrame:
    """Compute for each metric that moved the share of the change that it explains."""
    moved = [m for m in _deduplicate_metrics(left, right, names) if _has_moved(m, left, right)]
    effects = _estimate_effects(what, left, right, moved)
    shares = np.clip(effects / _compute_change(what, left, right), 0.0, 1.0)
    shares = shares / max(1.0, float(shares.sum()))
    before, after = ([float(np.mean(side[m].to_numpy())) for m in moved] for side in (left, right))
    units = [_find_unit(m, a) for m in moved]
    columns = {"metric": moved, "unit": units, "before": before, "after": after, "share": shares}
    return pl.DataFrame(columns, schema=_SCHEMA).sort("share", "metric", descending=[True, False])


def _compute_common_share(a: Run, b: Run, phase: str | None, change: float) -> float:
    """Compute the largest share of a log change that rows may have in common; 1 with too few rows.

    It is their median, and the error that the scatter of the rows leaves it.
    """
    left, right = (_compute_row_medians(run, phase) for run in (a, b))
    rows = left.join(right, on="name", suffix="_b").filter((pl.col("ns") > 0) & (pl.col("ns_b") > 0))
    rows = rows.filter(pl.col("ns") >= params.NEGLIGIBLE * pl.col("ns").sum())
    if rows.height < params.MIN_ROWS:
        return 1.0
    shifts = rows.select((pl.col("ns_b") / pl.col("ns")).log()).to_series().to_numpy() / change
    center = float(np.median(shifts))
    error = MAD_TO_SD * float(np.median(np.abs(shifts - center))) * np.sqrt(np.pi / 2 / len(shifts))
    return float(np.clip(center + params.EFFECT_LIMIT_SE * error, 0.0, 1.0))


def _compute_row_medians(run: Run, phase: str | None) -> pl.DataFrame:
    """Compute the median time per token of each row over the steps in which it runs: name, ns."""
    steps, _ = drop_warm_up(compute_step_totals(run, phase))
    rows = selection.select_timed(run, Look(phase=phase)).filter(
        pl.col("step").is_in(steps["step"].implode())
    )
    sums = rows.group_by(pl.col("name").cast(pl.String), "step").agg(pl.col("dur").sum()).collect()
    per_token = sums.join(steps.select("step", "tokens"), on="step", maintain_order="left")
    return per_token.group_by("name").agg(ns=(pl.col("dur") / pl.col("tokens")).median())


def _compute_median(what: str, side: pl.DataFrame) -> float:
    return float(np.median(side[what].to_numpy()))


def _compute_change(what: str, left: pl.DataFrame, right: pl.DataFrame) -> float:
    return _compute_median(what, right) - _compute_median(what, left)


def _find_longest_phase(a: Run, b: Run) -> str | None:
    shared = [p for p in selection.list_phases(a) if p in selection.list_phases(b)]
    facts = step_table.build_step_facts(a)
    walls = {p: facts.filter(pl.col("phase") == p)["wall_ns"].sum() for p in shared} if shared else {}
    return max(walls, key=lambda p: int(walls[p] or 0), default=None)


def _tabulate_levels(run: Run, phase: str | None) -> pl.DataFrame | None:
    """Tabulate per step: number, log ns per token of step and kernels, metrics; None without metrics."""
    pattern = f"{CLOCK_METRICS.pattern[4:]}|{LOAD_METRICS.pattern[4:]}"
    table = select_cycle_rows(run, pattern)
    if table is None or table.is_empty():
        return None
    both = table.rename({"mu": "mu_a"}).with_columns(mu_b="mu_a")
    levels = with_levels(both, is_source="cycles" in run.tables)
    levels = levels.filter(pl.col("metric").str.contains(f"(?i){pattern}"))
    wide = levels.pivot("metric", index="cycle", values="level_a", aggregate_function="mean")
    wide = wide.select(pl.col("cycle").cast(pl.Int64).alias("number"), pl.exclude("cycle"))
    measured, _ = drop_warm_up(compute_step_totals(run, phase))
    walls = step_table.build_step_facts(run).select("step", "wall_ns").unique("step")
    rows = selection.select_timed(run, Look(phase=phase)).filter(pl.col("step").is_not_null())
    sums = rows.group_by("step").agg(kernels=pl.col("dur").sum()).collect()
    joined = measured.join(walls, on="step", how="left", maintain_order="left")
    joined = joined.join(sums, on="step", how="left", maintain_order="left")
    table = joined.select(
        number=pl.col("step").cast(pl.Int64),
        step=(pl.coalesce("wall_ns", "kernels") / pl.col("tokens")).log(),
        kernels=(pl.col("kernels") / pl.col("tokens")).log(),
    ).join(wide, on="number", how="left", maintain_order="left")
    metrics = [c for c in wide.columns if c != "number" and table[c].is_not_null().any()]
    filled = (pl.col(c).interpolate().forward_fill().backward_fill() for c in metrics)
    is_finite = pl.col("step").is_finite() & pl.col("kernels").is_finite()
    return table.filter(is_finite).select("number", "step", "kernels", *filled)


def _deduplicate_metrics(left: pl.DataFrame, right: pl.DataFrame, names: list[str]) -> list[str]:
    """Deduplicate metrics that are equal in all steps, keeping the first by name."""
    by_values: dict[tuple[Any, ...], str] = {}
    for name in sorted(names):
        by_values.setdefault((*left[name], *right[name]), name)
    return list(by_values.values())


def _has_moved(metric: str, left: pl.DataFrame, right: pl.DataFrame) -> bool:
    """True if a metric evidently differs between the runs, and by enough to be a cause."""
    x, y = (side[metric].to_numpy() for side in (left, right))
    change = _to_time_driver(metric, y).mean() - _to_time_driver(metric, x).mean()
    p = compute_welch_p((x, y), (len(x), len(y)))
    return bool(abs(change) >= params.MIN_CHANGE and (np.isnan(p) or p < params.CAUSE_ALPHA))


def _to_time_driver(metric: str, values: Floats) -> Floats:
    """Convert a metric to what log time depends on linearly: the log of a clock, the share of a load."""
    if metric == LOOP_COUNTER:
        return np.asarray(-np.log(np.maximum(values, 1e-9)))
    return np.log(np.maximum(values, 1e-9)) if CLOCK_METRICS.search(metric) else values / 100


def _estimate_effects(what: str, left: pl.DataFrame, right: pl.DataFrame, moved: list[str]) -> Floats:
    """Estimate by how much each metric changed a log time from one run to the other."""
    from scipy.optimize import lsq_linear

    if not moved:
        return np.zeros(0)
    before, after = (
        np.column_stack([_to_time_driver(m, side[m].to_numpy()) for m in moved]) for side in (left, right)
    )
    drivers = _remove_trend(before), _remove_trend(after)
    times = [_remove_trend(side[what].to_numpy()[:, None])[:, 0] for side in (left, right)]
    noise = max(float(np.std(np.concatenate(times))), params.FLOAT_NOISE)
    is_clock = np.array([bool(CLOCK_METRICS.search(m)) for m in moved])
    prior = np.where(is_clock, -1.0, 0.0)
    prior_sd = np.where(is_clock, params.CLOCK_POWER_SD, params.LOAD_EFFECT_SD)
    bounds = np.where(is_clock, -1.0, 0.0), np.where(is_clock, 0.0, np.inf)
    system = np.vstack([np.concatenate(drivers) / noise, np.diag(1 / prior_sd)])
    values = np.concatenate([np.concatenate(times) / noise, prior / prior_sd])
    coefficients = lsq_linear(system, values, bounds).x
    for driver, time in zip(drivers, times, strict=True):
        limits = _compute_upper_limits(driver / noise, time / noise, prior, prior_sd)
        coefficients = np.where(is_clock, coefficients, np.minimum(coefficients, limits))
    return np.asarray(coefficients * (after.mean(axis=0) - before.mean(axis=0)))


def _compute_upper_limits(driver: Floats, time: Floats, prior: Floats, prior_sd: Floats) -> Floats:
    """Compute the largest effects that the steps of one run allow; driver and time are in SDs of noise."""
    covariance = np.linalg.inv(driver.T @ driver + np.diag(prior_sd**-2))
    mean = covariance @ (driver.T @ time + prior / prior_sd**2)
    return np.asarray(np.maximum(0.0, mean + params.EFFECT_LIMIT_SE * np.sqrt(np.diag(covariance))))


def _remove_trend(values: Floats) -> Floats:
    """Subtract mean and linear trend over the run from steps × columns."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    flat = values - values.mean(axis=0)
    return np.asarray(flat - np.outer(x, x @ flat) / (x @ x))


def _find_unit(metric: str, run: Run) -> str | None:
    if "cycles" in run.tables:
        return find_source_unit(metric)
    rows = run.events.filter((pl.col("kind") == "counter") & (pl.col("name").cast(pl.String) == metric))
    units = rows["unit"].drop_nulls() if run.has("unit") else pl.Series([])
    return str(units[0]) if len(units) else None
