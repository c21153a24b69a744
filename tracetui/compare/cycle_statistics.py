"""Cycle statistics of functions and metrics between two runs, by the published definitions.

For each (function, metric, device): the mean share of the cycle (β) and the mean of the metric while the
function ran (μ) on both sides, z-scores against the first run's spread, Welch's t-test, the U test and the
suspicion |Δβ|·(|Z(β)| + |Z(log μ)|).
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from capture.loaders.latencyprism.metric_names import find_unit
from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.statistics import Floats, adjust_benjamini_hochberg
from tracetui.compare import params
from tracetui.look import Look

KEY: Final = ("function", "metric", "device")
KERNEL_CLOCKS: Final = re.compile(r"(?i)^(?!.*mem).*(freq|clock|mhz)")  # clocks that kernels run at
_CYCLES_PER_NS: Final = {"hz": 1e-9, "khz": 1e-6, "mhz": 1e-3, "ghz": 1.0}
_SOURCE_COLUMNS: Final = {
    "function_name": "function", "metric_name": "metric", "beta_pct": "beta", "mu_pct": "mu"
}  # fmt: skip


def read_published_statistics(runs: Sequence[Run]) -> pl.DataFrame | None:
    """Read the statistics that a comparison report contains; None if the runs come from no such report."""
    table = next((r.tables["comparison"] for r in runs if "comparison" in r.tables), None)
    return None if table is None else with_levels(table, is_source=True)


def compute_cycle_statistics(a: Run, b: Run, metrics: str = "") -> pl.DataFrame | None:
    """Compute the statistics of both runs' cycles, of metrics that match the pattern; None without cycles."""
    left, right = select_cycle_rows(a, metrics), select_cycle_rows(b, metrics)
    if left is None or right is None:
        return None
    if not _has_own_cycles(a) and not _has_own_cycles(b):
        left, right = left.join(right, on="metric", how="semi"), right.join(left, on="metric", how="semi")
        if left.is_empty():
            return None
    groups, others = _group_samples(left, "a"), _group_samples(right, "b")
    groups = groups.join(others, KEY, "full", coalesce=True, maintain_order="left_right")
    if groups.is_empty():
        return None
    rows = [_compute_statistics(row) for row in groups.iter_rows(named=True)]
    p_adjusted = adjust_benjamini_hochberg(np.array([row["p_mu"] for row in rows], float))
    table = pl.DataFrame(rows).with_columns(p_adjusted=pl.Series(p_adjusted).fill_nan(None))
    table = with_levels(table, is_source=_has_own_cycles(a))
    return _with_moved(table).sort("suspicion", *KEY, descending=[True, False, False, False])


def find_one_sided_counters(a: Run, b: Run) -> list[str]:
    """Find the counters that only one of two recordings sampled, so that their change is unknown."""
    if _has_own_cycles(a) or _has_own_cycles(b):
        return []
    sampled = (run.events.filter(pl.col("kind") == "counter", run.has("value"))["name"] for run in (a, b))
    names_a, names_b = (set(names.cast(pl.String).unique()) for names in sampled)
    return sorted(names_a ^ names_b)


def _has_own_cycles(run: Run) -> bool:
    """True if the source has its own cycles; by its method, absent values count as zero."""
    return "cycles" in run.tables and {"cycle", *_SOURCE_COLUMNS} <= set(run.tables["cycles"].columns)


def select_cycle_rows(run: Run, metrics: str = "") -> pl.DataFrame | None:
    """Select cycle, function, metric, device, beta, mu: the source's, else by overlap in time; or None."""
    if _has_own_cycles(run):
        rows = run.tables["cycles"].select("cycle", "device", *_SOURCE_COLUMNS).rename(_SOURCE_COLUMNS)
        is_match = pl.col("metric").str.contains(f"(?i){metrics}") & (pl.col("metric") != "N/A")
        unknown = (pl.lit(None, pl.Float64).alias(c) for c in ("time", "cycles"))
        return rows.filter(is_match).with_columns(pl.lit(None, pl.String).alias("unit"), *unknown)
    return build_sampled_cycles(run, metrics)


def find_source_unit(metric: str) -> str | None:
    """Find the unit of a metric of the source; None if it is unknown."""
    units = {"cpu_frequency": "% of its maximum", "gpu_mem_used": "% of its capacity"}
    return units.get(metric, find_unit(metric)[0])


def with_levels(table: pl.DataFrame, *, is_source: bool) -> pl.DataFrame:
    """Add `level_a` and `level_b`: μ in its unit, because a source may print it a hundredfold.

    They are null on a side where the function never ran; the source counts μ as zero there.
    """
    if is_source:
        units = [find_source_unit(m) for m in table["metric"]]
        table = table.with_columns(pl.Series("unit", units, dtype=pl.String))
    scale = pl.Series([find_unit(m)[1] if is_source else 1.0 for m in table["metric"]], dtype=pl.Float64)
    ran = {s: pl.col(f"n_{s}") > 0 if f"n_{s}" in table.columns else pl.lit(True) for s in "ab"}
    return table.with_columns(**{f"level_{s}": pl.when(ran[s]).then(pl.col(f"mu_{s}") / scale) for s in "ab"})


def build_sampled_cycles(run: Run, metrics: str = "") -> pl.DataFrame | None:
    """Build the cycle rows of a recording, whose steps are the cycles; None if it has no counters.

    A counter is averaged over the time in which the function ran. Each row also has the function's time and,
    for a clock, its cycles: a throttled clock changes the time only, a change of code changes both.
    """
    if not all(run.has(c) for c in ("step", "value", "t", "dur")):
        return None
    group = "op" if run.has("op") else "name"
    kernels = selection.select_timed(run, Look()).select("step", "t", "dur", pl.col(group).alias("function"))
    work = kernels.drop_nulls().collect()
    samples = run.events.filter(pl.col("kind") == "counter").drop_nulls(["t", "value"])
    samples = samples.with_columns(pl.col("name").cast(pl.String)).sort("t")
    counters = {str(name): rows for (name,), rows in samples.group_by("name", maintain_order=True)}
    names = [name for name in sorted(counters) if re.search(metrics, name, re.IGNORECASE)]
    if work.is_empty() or not names:
        return None
    begin, end = work["t"], work["t"] + work["dur"]
    spans = work.group_by("step").agg(span=(pl.col("t") + pl.col("dur")).max() - pl.col("t").min())
    tables = []
    for name in names:
        rows = counters[name]
        units = rows["unit"].drop_nulls().cast(pl.String) if run.has("unit") else pl.Series([])
        integrals = work.with_columns(integral=pl.Series(integrate_counter(rows, begin, end)))
        by_step = integrals.group_by("step", "function", maintain_order=True)
        sums = by_step.agg(pl.col("dur", "integral").sum()).join(spans, "step", maintain_order="left")
        tables.append(sums.select(*_make_cycle_columns(name, units)))
    return pl.concat(tables)


def _make_cycle_columns(metric: str, units: pl.Series) -> list[pl.Expr]:
    """Make the columns of a cycle row from `dur`, the `span` of the step and a counter's `integral`."""
    unit = str(units[0]) if len(units) else None
    rate = _CYCLES_PER_NS.get((unit or "").lower()) if KERNEL_CLOCKS.search(metric) else None
    mean = pl.col("integral") / pl.col("dur").clip(1)
    return [
        pl.col("step").alias("cycle"),
        pl.lit("Host").alias("device"),
        pl.col("function").cast(pl.String),
        pl.lit(metric).alias("metric"),
        pl.lit(unit, pl.String).alias("unit"),
        (100 * pl.col("dur") / pl.col("span").clip(1)).alias("beta"),
        mean.alias("mu"),
        pl.col("dur").cast(pl.Float64).alias("time"),
        (pl.col("integral") * rate if rate else pl.lit(None, pl.Float64)).alias("cycles"),
    ]


def integrate_counter(samples: pl.DataFrame, begin: pl.Series, end: pl.Series) -> Floats:
    """Integrate a counter over each kernel, in value × ns, linearly between samples."""
    t, value = samples["t"].to_numpy().astype(float), samples["value"].to_numpy()
    area = np.concatenate([[0.0], np.cumsum((value[1:] + value[:-1]) / 2 * np.diff(t))])
    return _integrate_until(t, value, area, end) - _integrate_until(t, value, area, begin)


def _integrate_until(t: Floats, value: Floats, area: Floats, instants: pl.Series) -> Floats:
    """Integrate up to each instant; the first and the last value extend beyond the samples."""
    x = instants.to_numpy().astype(float)
    i = np.clip(np.searchsorted(t, x, "right") - 1, 0, len(t) - 1)
    return np.asarray(area[i] + (value[i] + np.interp(x, t, value)) / 2 * (x - t[i]))


def _group_samples(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    columns = {
        "n": pl.col("cycle").n_unique(),
        "betas": pl.col("beta"),
        "mus": pl.col("mu").fill_null(0.0),
        "time": pl.col("time").drop_nulls(),
        "cycles": pl.col("cycles").drop_nulls(),
        "unit": pl.col("unit").first(),
    }
    columns = {f"{name}_{side}": column for name, column in columns.items()}
    return rows.group_by(KEY, maintain_order=True).agg(**columns)


def _compute_statistics(row: dict[str, Any]) -> dict[str, Any]:
    beta = [np.asarray(row[f"betas_{s}"] or [], float) for s in "ab"]
    mu = [np.asarray(row[f"mus_{s}"] or [], float) for s in "ab"]
    n = row["n_a"] or 0, row["n_b"] or 0
    (d_beta, z_beta), (d_mu, z_mu) = _compute_shift(beta), _compute_shift(mu)
    z_log_mu = _compute_shift([np.log1p(x) for x in mu])[1]
    statistics = {
        "suspicion": abs(d_beta) * (abs(z_beta) + abs(z_log_mu)),
        "beta_a": _compute_mean(beta[0]),
        "beta_b": _compute_mean(beta[1]),
        "d_beta": d_beta,
        "z_beta": z_beta,
        "p_beta": compute_welch_p(beta, n),
        "u_beta": compute_u_test_p(*beta),
        "mu_a": _compute_mean(mu[0]),
        "mu_b": _compute_mean(mu[1]),
        "d_mu": d_mu,
        "z_mu": z_mu,
        "z_log_mu": z_log_mu,
        "p_mu": compute_welch_p(mu, n),
        "u_mu": compute_u_test_p(*mu),
    }
    is_constant = all(_compute_sd(side) < params.FLOAT_NOISE for side in mu)
    labels = {k: row[k] for k in KEY} | {"unit": row["unit_a"] or row["unit_b"]}
    counts = {"n_a": n[0], "n_b": n[1], "constant": is_constant}
    return labels | statistics | _compute_work(row, n) | counts


def _compute_work(row: dict[str, Any], n: tuple[int, int]) -> dict[str, float | None]:
    """Compute time and clock cycles of a function on both sides, with tests; None if one side lacks them."""
    columns: dict[str, float | None] = {}
    for name, unit in (("time", "_ns"), ("cycles", "")):
        sides = [np.asarray(row[f"{name}_{s}"] or [], float) for s in "ab"]
        is_complete = all(len(x) for x in sides)
        for s, x in zip("ab", sides, strict=True):
            columns[f"{name}_{s}{unit}"] = _compute_mean(x) if is_complete else None
        columns[f"p_{name}"] = compute_welch_p(sides, n) if is_complete else None
    return columns


def _compute_mean(x: Floats) -> float:
    return float(x.mean()) if len(x) else 0.0


def _compute_sd(x: Floats) -> float:
    return float(x.std(ddof=1)) if len(x) > 1 else 0.0


def _compute_shift(sides: Sequence[Floats]) -> tuple[float, float]:
    """Compute the difference of means, and the same in standard deviations of the first side."""
    delta = _compute_mean(sides[1]) - _compute_mean(sides[0])
    spread = _compute_sd(sides[0])
    return delta, delta / spread if spread > params.FLOAT_NOISE else 0.0


def compute_welch_p(sides: Sequence[Floats], n: tuple[int, int]) -> float:
    """Compute p of Welch's t-test; `n` counts distinct cycles. 1 for fewer than two, NaN for constants."""
    from scipy.stats import ttest_ind_from_stats

    if min(n) <= 1:
        return 1.0
    (mean_a, s_a), (mean_b, s_b) = ((_compute_mean(x), _compute_sd(x)) for x in sides)
    if s_a < params.FLOAT_NOISE and s_b < params.FLOAT_NOISE:
        return float("nan")
    return float(ttest_ind_from_stats(mean_a, s_a, n[0], mean_b, s_b, n[1], equal_var=False).pvalue)


def compute_u_test_p(a: Floats, b: Floats) -> float:
    """Compute two-sided p of Mann–Whitney's U; 1 for fewer than two samples per side, or if all are equal."""
    from scipy.stats import mannwhitneyu

    if len(a) <= 1 or len(b) <= 1 or np.ptp(np.concatenate((a, b))) == 0:  # later SciPy has NaN for ties
        return 1.0
    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def _with_moved(table: pl.DataFrame) -> pl.DataFrame:
    """Add to each function and device the metrics that evidently moved, largest shift first."""
    is_evident = pl.col("p_adjusted") < params.CAUSE_ALPHA
    moved = table.filter(is_evident & (pl.col("d_mu").abs() > params.FLOAT_NOISE))
    moved = moved.sort(pl.col("z_mu").abs(), "metric", descending=[True, False])
    names = pl.col("metric").unique(maintain_order=True).head(5).str.join(", ")
    moved = moved.group_by("function", "device", maintain_order=True).agg(moved=names)
    return table.join(moved, on=("function", "device"), how="left", maintain_order="left")
