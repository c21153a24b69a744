"""Cycle statistics of functions and metrics between two runs, by the published definitions.

Of each (function, metric, device): the mean share of the cycle (β) and the mean of the metric while the
function ran (μ) on both sides, z-scores against the first run's spread, Welch's t-test, the U test and the
suspicion |Δβ|·(|Z(β)| + |Z(log μ)|).
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from capture.loaders.latencyprism.vocabulary import unit_of
from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.statistics import Floats, benjamini_hochberg
from tracetui.look import Look

KEY: Final = ("function", "metric", "device")
CLOCKS: Final = re.compile(r"(?i)^(?!.*mem).*(freq|clock|mhz)")  # those that kernels run at
_TICKS: Final = {"hz": 1e-9, "khz": 1e-6, "mhz": 1e-3, "ghz": 1.0}  # cycles in a ns
CONSTANT: Final = 1e-9  # a spread below this is float noise of a constant series

_NAMES: Final = {
    "function_name": "function",
    "metric_name": "metric",
    "beta_pct": "beta",
    "mu_pct": "mu",
}


def published(runs: Sequence[Run]) -> pl.DataFrame | None:
    """Return the rows as a comparison report states them; None where the runs come from none."""
    table = next((r.tables["comparison"] for r in runs if "comparison" in r.tables), None)
    return None if table is None else with_levels(table, stated=True)


def cycle_statistics(a: Run, b: Run, metrics: str = "") -> pl.DataFrame | None:
    """Return the rows computed from both runs' cycles, of metrics that fit; None without any."""
    left, right = cycle_rows(a, metrics), cycle_rows(b, metrics)
    if left is None or right is None:
        return None
    if not _stated(a) and not _stated(b):
        left, right = left.join(right, on="metric", how="semi"), right.join(left, on="metric", how="semi")
        if left.is_empty():
            return None
    groups = _grouped(left, "a").join(_grouped(right, "b"), on=KEY, how="full", coalesce=True)
    if groups.is_empty():
        return None
    rows = [_statistics(row) for row in groups.iter_rows(named=True)]
    table = pl.DataFrame(rows).with_columns(
        p_adjusted=pl.Series(benjamini_hochberg(_column(rows, "p_mu"))).fill_nan(None),
    )
    table = with_levels(table, stated=_stated(a))
    return _with_companions(table).sort("suspicion", *KEY, descending=[True, False, False, False])


def lone_counters(a: Run, b: Run) -> list[str]:
    """Counters that one of two recordings sampled and the other did not: nothing is known of their change."""
    if _stated(a) or _stated(b):
        return []
    names = [set(_counters(run)) for run in (a, b)]
    return sorted(names[0] ^ names[1])


def _counters(run: Run) -> list[str]:
    rows = run.events.filter(pl.col("kind") == "counter") if run.has("value") else run.events.head(0)
    return rows["name"].cast(pl.String).unique().to_list()


def _stated(run: Run) -> bool:
    """Tell whether the source has cycles of its own; by its method what is absent there counts as zero."""
    return "cycles" in run.tables and {"cycle", *_NAMES} <= set(run.tables["cycles"].columns)


def cycle_rows(run: Run, metrics: str = "") -> pl.DataFrame | None:
    """Return cycle, function, metric, device, beta, mu: stated, or by overlap in time; None without both."""
    if _stated(run):
        rows = run.tables["cycles"].select("cycle", "device", *_NAMES).rename(_NAMES)
        stated = pl.col("metric").str.contains(f"(?i){metrics}") & (pl.col("metric") != "N/A")
        unknown = (pl.lit(None, pl.Float64).alias(c) for c in ("time", "cycles"))
        return rows.filter(stated).with_columns(pl.lit(None, pl.String).alias("unit"), *unknown)
    return sampled(run, metrics)


def stated_unit(metric: str) -> str | None:
    """Return the unit of a metric of the source; None where that is not known."""
    of = {"cpu_frequency": "% of its maximum", "gpu_mem_used": "% of its capacity"}
    return of.get(metric, unit_of(metric)[0])


def with_levels(table: pl.DataFrame, *, stated: bool) -> pl.DataFrame:
    """Return the table with `level_a` and `level_b`: μ in its unit, where the source prints a hundredfold.

    A side without a cycle in which the function ran has none; there the source counts μ as zero.
    """
    if stated:
        units = [stated_unit(m) for m in table["metric"]]
        table = table.with_columns(pl.Series("unit", units, dtype=pl.String))
    scale = [unit_of(m)[1] if stated else 1.0 for m in table["metric"]]
    by = pl.Series(scale, dtype=pl.Float64)
    ran = {s: pl.col(f"n_{s}") > 0 if f"n_{s}" in table.columns else pl.lit(True) for s in "ab"}
    return table.with_columns(pl.when(ran[s]).then(pl.col(f"mu_{s}") / by).alias(f"level_{s}") for s in "ab")


def sampled(run: Run, metrics: str = "") -> pl.DataFrame | None:
    """Return the cycle rows of a recording, whose steps are the cycles; None where it has no counters. A
    counter counts for a function by their common time.

    Beside it stand the function's time and, for a clock, its cycles: a throttled clock changes the one and
    not the other, a change of code changes both.
    """
    needed = ("step", "value", "t", "dur")
    if not all(run.has(c) for c in needed):
        return None
    group = "op" if run.has("op") else "name"
    kernels = select.timed(run, Look()).select("step", "t", "dur", pl.col(group).alias("function"))
    work = kernels.drop_nulls().collect()
    samples = run.events.filter(pl.col("kind") == "counter").drop_nulls(["t", "value"])
    by_counter = [
        (name, rows) for name, rows in _by_counter(samples) if re.search(metrics, name, re.IGNORECASE)
    ]
    if work.is_empty() or not by_counter:
        return None
    begin, end = work["t"], work["t"] + work["dur"]
    whole = work.group_by("step").agg(whole=(pl.col("t") + pl.col("dur")).max() - pl.col("t").min())
    parts = [
        work.with_columns(swept=pl.Series(swept(rows, begin, end)))
        .group_by("step", "function")
        .agg(pl.col("dur", "swept").sum())
        .join(whole, on="step")
        .select(*_row(name, rows["unit"].drop_nulls().cast(pl.String) if run.has("unit") else pl.Series([])))
        for name, rows in by_counter
    ]
    return pl.concat(parts)


def _row(metric: str, units: pl.Series) -> list[pl.Expr]:
    """Return a function in a cycle beside a counter; `swept` is the counter's integral over its time."""
    unit = str(units[0]) if len(units) else None
    ticks = _TICKS.get((unit or "").lower()) if CLOCKS.search(metric) else None
    mean = pl.col("swept") / pl.col("dur").clip(1)
    return [
        pl.col("step").alias("cycle"),
        pl.lit("Host").alias("device"),
        pl.col("function").cast(pl.String),
        pl.lit(metric).alias("metric"),
        pl.lit(unit, pl.String).alias("unit"),
        (100 * pl.col("dur") / pl.col("whole").clip(1)).alias("beta"),
        mean.alias("mu"),
        pl.col("dur").cast(pl.Float64).alias("time"),
        (pl.col("swept") * ticks if ticks else pl.lit(None, pl.Float64)).alias("cycles"),
    ]


def _by_counter(samples: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    grouped = (
        samples.with_columns(pl.col("name").cast(pl.String)).sort("t").group_by("name", maintain_order=True)
    )
    return sorted(((str(key[0]), rows) for key, rows in grouped), key=lambda pair: pair[0])


def swept(samples: pl.DataFrame, begin: pl.Series, end: pl.Series) -> Floats:
    """Return the integral of a counter over each kernel, in value × ns, as a line from sample to sample."""
    t, value = samples["t"].to_numpy().astype(float), samples["value"].to_numpy()
    area = np.concatenate([[0.0], np.cumsum((value[1:] + value[:-1]) / 2 * np.diff(t))])
    return _area(t, value, area, end) - _area(t, value, area, begin)


def _area(t: Floats, value: Floats, area: Floats, moments: pl.Series) -> Floats:
    """Return the integral up to each moment; before the first sample and after the last their values hold."""
    x = moments.to_numpy().astype(float)
    i = np.clip(np.searchsorted(t, x, "right") - 1, 0, len(t) - 1)
    here = np.interp(x, t, value)
    return np.asarray(area[i] + (value[i] + here) / 2 * (x - t[i]))


def _grouped(rows: pl.DataFrame, side: str) -> pl.DataFrame:
    return (
        rows.with_columns(pl.col("mu").fill_null(0.0))
        .group_by(KEY)
        .agg(
            pl.col("cycle").n_unique().alias(f"n_{side}"),
            pl.col("beta").alias(f"betas_{side}"),
            pl.col("mu").alias(f"mus_{side}"),
            pl.col("time").drop_nulls().alias(f"time_{side}"),
            pl.col("cycles").drop_nulls().alias(f"cycles_{side}"),
            pl.col("unit").first().alias(f"unit_{side}"),
        )
    )


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
        "beta_a": _mean(beta[0]),
        "beta_b": _mean(beta[1]),
        "d_beta": d_beta,
        "z_beta": z_beta,
        "p_beta": welch(beta, n),
        "u_beta": u_test(*beta),
        "mu_a": _mean(mu[0]),
        "mu_b": _mean(mu[1]),
        "d_mu": d_mu,
        "z_mu": z_mu,
        "z_log_mu": z_log_mu,
        "p_mu": welch(mu, n),
        "u_mu": u_test(*mu),
    }
    constant = _spread(mu[0]) < CONSTANT and _spread(mu[1]) < CONSTANT
    unit = {"unit": row["unit_a"] or row["unit_b"]}
    return (
        {k: row[k] for k in KEY}
        | unit
        | figures
        | _work(row, n)
        | {"n_a": n[0], "n_b": n[1], "constant": constant}
    )


def _work(row: dict[str, Any], n: tuple[int, int]) -> dict[str, float | None]:
    """Return time and clock cycles of a function on both sides, with their tests; None where one side lacks
    them.
    """
    figures: dict[str, float | None] = {}
    for name, unit in (("time", "_ns"), ("cycles", "")):
        sides = [np.asarray(row[f"{name}_{s}"] or [], float) for s in "ab"]
        complete = all(len(x) for x in sides)
        figures |= {
            f"{name}_{s}{unit}": _mean(x) if complete else None for s, x in zip("ab", sides, strict=True)
        }
        figures |= {f"p_{name}": welch(sides, n) if complete else None}
    return figures


def _mean(x: Floats) -> float:
    return float(x.mean()) if len(x) else 0.0


def _spread(x: Floats) -> float:
    return float(x.std(ddof=1)) if len(x) > 1 else 0.0


def _shift(sides: Sequence[Floats]) -> tuple[float, float]:
    """Return the difference of means, and the same in standard deviations of the first side."""
    delta = _mean(sides[1]) - _mean(sides[0])
    spread = _spread(sides[0])
    return delta, delta / spread if spread > CONSTANT else 0.0


def welch(sides: Sequence[Floats], n: tuple[int, int]) -> float:
    """Return p of Welch's t-test, n being distinct cycles; 1 without two a side, NaN for constants."""
    from scipy.stats import ttest_ind_from_stats

    if min(n) <= 1:
        return 1.0
    (mean_a, s_a), (mean_b, s_b) = ((_mean(x), _spread(x)) for x in sides)
    if s_a < CONSTANT and s_b < CONSTANT:
        return float("nan")
    return float(ttest_ind_from_stats(mean_a, s_a, n[0], mean_b, s_b, n[1], equal_var=False).pvalue)


def u_test(a: Floats, b: Floats) -> float:
    """Return p of Mann–Whitney's U, two-sided; 1 without two samples a side, or where all are equal."""
    from scipy.stats import mannwhitneyu

    if len(a) <= 1 or len(b) <= 1 or np.ptp(np.concatenate((a, b))) == 0:  # later SciPy has NaN for ties
        return 1.0
    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def _column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    return np.array([r[name] for r in rows], float)


def _with_companions(table: pl.DataFrame) -> pl.DataFrame:
    """Add to each function and device the metrics that moved with evidence, largest shift first."""
    moved = (
        table.filter((pl.col("p_adjusted") < 0.05) & (pl.col("d_mu").abs() > 1e-6))
        .sort(pl.col("z_mu").abs(), "metric", descending=[True, False])
        .group_by("function", "device", maintain_order=True)
        .agg(moved=pl.col("metric").unique(maintain_order=True).head(5).str.join(", "))
    )
    return table.join(moved, on=("function", "device"), how="left", maintain_order="left")
