"""Cycle statistics of functions and metrics between two runs, by the published definitions.

Of each (function, metric, device): the mean share of the cycle (β) and the mean of the metric while the
function ran (μ) on both sides, z-scores against the first run's spread, Welch's t-test, the U test and the
suspicion |Δβ|·(|Z(β)| + |Z(log μ)|).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.evidence import Floats, benjamini_hochberg

KEY: Final = ("function", "metric", "device")
CONSTANT: Final = 1e-9  # a spread below this is float noise of a constant series

_NAMES: Final = {
    "function_name": "function", "metric_name": "metric", "beta_pct": "beta", "mu_pct": "mu",
}  # fmt: skip


def published(runs: Sequence[Run]) -> pl.DataFrame | None:
    """The rows as a comparison report states them, where the runs come from one."""
    return next((r.tables["comparison"] for r in runs if "comparison" in r.tables), None)


def cycle_statistics(a: Run, b: Run) -> pl.DataFrame | None:
    """The rows recomputed from both runs' cycles; none where a run has no cycles with metrics."""
    left, right = cycle_rows(a), cycle_rows(b)
    if left is None or right is None:
        return None
    groups = _grouped(left, "a").join(_grouped(right, "b"), on=KEY, how="full", coalesce=True)
    rows = [_statistics(row) for row in groups.iter_rows(named=True)]
    table = pl.DataFrame(rows).with_columns(
        p_adjusted=pl.Series(benjamini_hochberg(_column(rows, "p_mu"))).fill_nan(None),
    )
    return _with_companions(table).sort("suspicion", *KEY, descending=[True, False, False, False])


def cycle_rows(run: Run) -> pl.DataFrame | None:
    """cycle, function, metric, device, beta, mu: as the source has them, or from counters by overlap."""
    if "cycles" in run.tables and {"cycle", *_NAMES} <= set(run.tables["cycles"].columns):
        rows = run.tables["cycles"].select("cycle", "device", *_NAMES).rename(_NAMES)
        return rows.filter(pl.col("metric").is_not_null() & (pl.col("metric") != "N/A"))
    return sampled(run)


def sampled(run: Run) -> pl.DataFrame | None:
    """Of a recording: the step is the cycle, and a counter counts for a function by their common time."""
    needed = ("step", "value", "t", "dur")
    if not all(run.has(c) for c in needed):
        return None
    kernels = run.events.filter(
        (pl.col("kind") == "kernel") & pl.col("t").is_not_null() & pl.col("step").is_not_null()
    )
    samples = run.events.filter((pl.col("kind") == "counter") & pl.col("t").is_not_null())
    if kernels.is_empty() or samples.is_empty():
        return None
    group = "op" if run.has("op") else "name"
    work = kernels.group_by("step", pl.col(group).cast(pl.String).alias("function")).agg(
        pl.col("dur").sum(), first=pl.col("t").min(), last=(pl.col("t") + pl.col("dur")).max()
    ).drop_nulls("function")  # fmt: skip
    length = kernels.group_by("step").agg(whole=(pl.col("t") + pl.col("dur")).max() - pl.col("t").min())
    work = work.join(length, on="step").with_columns(beta=100 * pl.col("dur") / pl.col("whole").clip(1))
    parts = [_overlapping(work, name, rows) for name, rows in _by_counter(samples)]
    return pl.concat(parts) if parts else None


def _by_counter(samples: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    grouped = (
        samples.with_columns(pl.col("name").cast(pl.String)).sort("t").group_by("name", maintain_order=True)
    )
    return sorted((str(key[0]), rows) for key, rows in grouped)


def _overlapping(work: pl.DataFrame, metric: str, samples: pl.DataFrame) -> pl.DataFrame:
    """The counter's time-weighted mean between a function's first and last moment in each step."""
    t, value = samples["t"].to_numpy().astype(float), samples["value"].to_numpy()
    area = np.concatenate([[0.0], np.cumsum((value[1:] + value[:-1]) / 2 * np.diff(t))])
    first, last = work["first"].to_numpy().astype(float), work["last"].to_numpy().astype(float)
    span = np.maximum(np.clip(last, t[0], t[-1]) - np.clip(first, t[0], t[-1]), 0)
    swept = _area(t, value, area, last) - _area(t, value, area, first)
    mean = np.where(span > 0, swept / np.maximum(span, 1), np.interp((first + last) / 2, t, value))
    return work.select(
        cycle="step", device=pl.lit("Host"), function="function", metric=pl.lit(metric), beta="beta"
    ).with_columns(mu=pl.Series(mean))


def _area(t: Floats, value: Floats, area: Floats, x: Floats) -> Floats:
    """The integral of a sampled curve up to x."""
    x = np.clip(x, t[0], t[-1])
    i = np.clip(np.searchsorted(t, x, "right") - 1, 0, len(t) - 1)
    here = np.interp(x, t, value)
    return np.asarray(area[i] + (value[i] + here) / 2 * (x - t[i]))


def _grouped(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    return rows.with_columns(pl.col("mu").fill_null(0.0)).group_by(KEY).agg(
        pl.col("cycle").n_unique().alias(f"n_{side}"),
        pl.col("beta").alias(f"betas_{side}"),
        pl.col("mu").alias(f"mus_{side}"),
    )  # fmt: skip


def _statistics(row: dict[str, Any]) -> dict[str, Any]:
    beta = [np.asarray(row[f"betas_{s}"] or [], float) for s in "ab"]
    mu = [np.asarray(row[f"mus_{s}"] or [], float) for s in "ab"]
    n = row["n_a"] or 0, row["n_b"] or 0
    log_mu = [np.log1p(x) for x in mu]
    d_beta, z_beta = _shift(beta)
    d_mu, z_mu = _shift(mu)
    z_log_mu = _shift(log_mu)[1]
    figures = {
        "suspicion": abs(d_beta) * (abs(z_beta) + abs(z_log_mu)),
        "beta_a": _mean(beta[0]), "beta_b": _mean(beta[1]), "d_beta": d_beta, "z_beta": z_beta,
        "p_beta": welch(beta, n), "u_beta": u_test(*beta),
        "mu_a": _mean(mu[0]), "mu_b": _mean(mu[1]), "d_mu": d_mu, "z_mu": z_mu, "z_log_mu": z_log_mu,
        "p_mu": welch(mu, n), "u_mu": u_test(*mu),
    }  # fmt: skip
    constant = _spread(mu[0]) < CONSTANT and _spread(mu[1]) < CONSTANT
    return {k: row[k] for k in KEY} | figures | {"n_a": n[0], "n_b": n[1], "constant": constant}


def _mean(x: Floats) -> float:
    return float(x.mean()) if len(x) else 0.0


def _spread(x: Floats) -> float:
    return float(x.std(ddof=1)) if len(x) > 1 else 0.0


def _shift(sides: Sequence[Floats]) -> tuple[float, float]:
    """The difference of means, and the same in standard deviations of the first side."""
    delta = _mean(sides[1]) - _mean(sides[0])
    spread = _spread(sides[0])
    return delta, delta / spread if spread > CONSTANT else 0.0


def welch(sides: Sequence[Floats], n: tuple[int, int]) -> float:
    """Welch's t-test with n counted in distinct cycles; 1 without two cycles a side, NaN for constants."""
    from scipy.stats import ttest_ind_from_stats

    if min(n) <= 1:
        return 1.0
    (mean_a, s_a), (mean_b, s_b) = ((_mean(x), _spread(x)) for x in sides)
    if s_a < CONSTANT and s_b < CONSTANT:
        return float("nan")
    return float(ttest_ind_from_stats(mean_a, s_a, n[0], mean_b, s_b, n[1], equal_var=False).pvalue)


def u_test(a: Floats, b: Floats) -> float:
    """Mann–Whitney's U, two-sided; 1 without two samples a side."""
    from scipy.stats import mannwhitneyu

    if len(a) <= 1 or len(b) <= 1:
        return 1.0
    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def _column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    return np.array([r[name] for r in rows], float)


def _with_companions(table: pl.DataFrame) -> pl.DataFrame:
    """Beside each function and device, the metrics that moved with evidence, largest shift first."""
    moved = (
        table.filter((pl.col("p_adjusted") < 0.05) & (pl.col("d_mu").abs() > 1e-6))
        .sort(pl.col("z_mu").abs(), "metric", descending=[True, False])
        .group_by("function", "device", maintain_order=True)
        .agg(moved=pl.col("metric").unique(maintain_order=True).head(5).str.join(", "))
    )
    return table.join(moved, on=("function", "device"), how="left", maintain_order="left")
