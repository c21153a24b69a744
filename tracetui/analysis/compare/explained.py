"""What was sampled beside, weighed together: how much of the change of a step's time each metric explains.

A clock is known to act: what takes c cycles takes c / f, so time follows it by a power between −1 and 0,
drawn to −1 where the runs themselves do not tell; the time of a fixed loop acts as a clock turned round. What
others do to a machine (its usage, pressure, stolen time) can only slow a step: by how much is told by the
steps inside the runs, whose code does not change. Both come from one ridge regression with these signs; the
effects on the difference of the runs are the shares.
What a program does itself (its own usage, the memory it holds) is no cause.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis import select, steps
from tracetui.analysis.compare.align import settled
from tracetui.analysis.compare.align import steps as steps_of
from tracetui.analysis.compare.cycles import cycle_rows, welch, with_levels
from tracetui.analysis.statistics import FEWEST, Floats
from tracetui.look import Look

CLOCK: Final = re.compile(r"(?i)freq|clock|mhz|fixed_loop_time")
LOOP: Final = "fixed_loop_time"
LOAD: Final = re.compile(r"(?i)pressure|host_cpu|steal|swap|throttl|major_fault")
BY_CLOCK: Final = 0.25  # how far a power of the clock may lie from −1, one standard deviation
BY_LOAD: Final = 2.0  # logarithm of time that all of a machine may cost, the same
MOVED: Final = 0.05  # of a clock, or five points of a load: less is no cause
EVIDENT: Final = 0.01
WORTH: Final = 0.02  # change of a step's time below which no cause is looked for


@dataclass(frozen=True, eq=False)
class Explained:
    """The change of a step's time, and the metrics that moved, from the one that explains most."""

    phase: str | None
    what: str  # step or kernels, whichever changed more
    before_ns: float
    after_ns: float
    metrics: pl.DataFrame  # metric, unit, before, after, share
    seen: int  # metrics that could have been a cause

    @property
    def rest(self) -> float:
        """Return the share that nothing explains."""
        return 1 - float(self.metrics["share"].sum())


def explained(a: Run, b: Run, look: Look) -> Explained | None:
    """Return what explains how long a step of the phase that takes longest took; None where it did not
    change, or nothing was sampled beside.
    """
    phase = look.phase or _longest(a, b)
    left, right = (_levels(run, phase) for run in (a, b))
    if left is None or right is None or min(left.height, right.height) < FEWEST:
        return None
    names = sorted({*left.columns} & {*right.columns} - {*_TIMES})
    what = max(("step", "kernels"), key=lambda c: abs(_change(c, left, right)))
    if not names or abs(_change(what, left, right)) < WORTH:
        return None
    before, after = (float(np.exp(_middle(what, side))) for side in (left, right))
    return Explained(phase, what, before, after, _shares(what, left, right, names, a), len(names))


def _shares(what: str, left: pl.DataFrame, right: pl.DataFrame, names: list[str], a: Run) -> pl.DataFrame:
    """Return the metrics that moved, with the share of the change of a time that each explains."""
    moved = [m for m in _apart(left, right, names) if _moved(m, left, right)]
    shares = np.clip(_effects(what, left, right, moved) / _change(what, left, right), 0.0, 1.0)
    shares = shares / max(1.0, float(shares.sum()))
    rows = [_row(m, s, left, right, a) for m, s in zip(moved, shares, strict=True)]
    return pl.DataFrame(rows, schema=_SCHEMA).sort("share", "metric", descending=[True, False])


_TIMES: Final = ("number", "step", "kernels")


def _middle(what: str, side: pl.DataFrame) -> float:
    return float(np.median(side[what].to_numpy()))


def _change(what: str, left: pl.DataFrame, right: pl.DataFrame) -> float:
    return _middle(what, right) - _middle(what, left)


_SCHEMA: Final = {
    "metric": pl.String,
    "unit": pl.String,
    "before": pl.Float64,
    "after": pl.Float64,
    "share": pl.Float64,
}


def _longest(a: Run, b: Run) -> str | None:
    shared = [p for p in select.phases(a) if p in select.phases(b)]
    marks = steps.marks(a)
    walls = {p: marks.filter(pl.col("phase") == p)["wall_ns"].sum() for p in shared} if shared else {}
    return max(walls, key=lambda p: int(walls[p] or 0), default=None)


def _levels(run: Run, phase: str | None) -> pl.DataFrame | None:
    """Return number, step and kernels (logarithms of ns a token) and what may be a cause; None without it."""
    table = cycle_rows(run, f"{CLOCK.pattern[4:]}|{LOAD.pattern[4:]}")
    if table is None or table.is_empty():
        return None
    stated = "cycles" in run.tables
    wide = (
        with_levels(table.rename({"mu": "mu_a"}).with_columns(mu_b="mu_a"), stated=stated)
        .filter(pl.col("metric").str.contains(f"{CLOCK.pattern}|{LOAD.pattern[4:]}"))
        .pivot("metric", index="cycle", values="level_a", aggregate_function="mean")
        .select(pl.col("cycle").cast(pl.Int64).alias("number"), pl.exclude("cycle"))
    )
    kept, _ = settled(steps_of(run, phase))
    walls = steps.marks(run).select("step", "wall_ns").unique("step")
    rows = select.timed(run, Look(phase=phase)).filter(pl.col("step").is_not_null())
    sums = rows.group_by("step").agg(kernels=pl.col("dur").sum()).collect()
    joined = kept.join(walls, on="step", how="left", maintain_order="left")
    joined = joined.join(sums, on="step", how="left", maintain_order="left")
    found = joined.select(
        number=pl.col("step").cast(pl.Int64),
        step=(pl.coalesce("wall_ns", "kernels") / pl.col("tokens")).log(),
        kernels=(pl.col("kernels") / pl.col("tokens")).log(),
    ).join(wide, on="number", how="left", maintain_order="left")
    metrics = [c for c in wide.columns if c != "number" and found[c].is_not_null().any()]
    level = (pl.col(c).interpolate().forward_fill().backward_fill() for c in metrics)
    finite = pl.col("step").is_finite() & pl.col("kernels").is_finite()
    return found.filter(finite).select("number", "step", "kernels", *level)


def _apart(left: pl.DataFrame, right: pl.DataFrame, names: list[str]) -> list[str]:
    """Return the metrics, of those that are the same in all steps one alone."""
    seen: dict[tuple[Any, ...], str] = {}
    for name in sorted(names):
        seen.setdefault((*left[name], *right[name]), name)
    return list(seen.values())


def _moved(metric: str, left: pl.DataFrame, right: pl.DataFrame) -> bool:
    """Tell whether a metric evidently differs between the runs, and by enough to be a cause."""
    x, y = (side[metric].to_numpy() for side in (left, right))
    apart = _effective(metric, y).mean() - _effective(metric, x).mean()
    p = welch((x, y), (len(x), len(y)))
    return bool(abs(apart) >= MOVED and (np.isnan(p) or p < EVIDENT))


def _effective(metric: str, values: Floats) -> Floats:
    """Return what time follows: the logarithm of a clock, the share of a load."""
    if metric == LOOP:
        return np.asarray(-np.log(np.maximum(values, 1e-9)))
    return np.log(np.maximum(values, 1e-9)) if CLOCK.search(metric) else values / 100


def _effects(what: str, left: pl.DataFrame, right: pl.DataFrame, moved: list[str]) -> Floats:
    """Return by how much each metric moved the logarithm of a time from one run to the other."""
    from scipy.optimize import lsq_linear

    if not moved:
        return np.zeros(0)
    sides = [np.column_stack([_effective(m, side[m].to_numpy()) for m in moved]) for side in (left, right)]
    inside = np.concatenate([_inside(x) for x in sides])
    time = np.concatenate([_inside(side[what].to_numpy()[:, None])[:, 0] for side in (left, right)])
    noise = max(float(np.std(time)), 1e-3)
    clock = np.array([bool(CLOCK.search(m)) for m in moved])
    middle, width = np.where(clock, -1.0, 0.0), np.where(clock, BY_CLOCK, BY_LOAD)
    bounds = np.where(clock, -1.0, 0.0), np.where(clock, 0.0, np.inf)
    system = np.vstack([inside / noise, np.diag(1 / width)])
    power = lsq_linear(system, np.concatenate([time / noise, middle / width]), bounds).x
    return np.asarray(power * (sides[1].mean(axis=0) - sides[0].mean(axis=0)))


def _inside(values: Floats) -> Floats:
    """Return steps × columns freed of their mean and of their growth over the run."""
    x = np.arange(len(values)) - (len(values) - 1) / 2
    flat = values - values.mean(axis=0)
    return np.asarray(flat - np.outer(x, x @ flat) / (x @ x))


def _row(metric: str, share: float, left: pl.DataFrame, right: pl.DataFrame, a: Run) -> dict[str, Any]:
    before, after = (float(np.mean(side[metric].to_numpy())) for side in (left, right))
    return {"metric": metric, "unit": _unit(metric, a), "before": before, "after": after, "share": share}


def _unit(metric: str, run: Run) -> str | None:
    if "cycles" in run.tables:
        from tracetui.analysis.compare.cycles import stated_unit

        return stated_unit(metric)
    rows = run.events.filter((pl.col("kind") == "counter") & (pl.col("name").cast(pl.String) == metric))
    known = rows["unit"].drop_nulls() if run.has("unit") else pl.Series([])
    return str(known[0]) if len(known) else None
