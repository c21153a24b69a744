"""Compare two groups of files row by row: each file is one sample of the log time per step.

A file contributes three sums per row (files, logs, squares of the logs), so that merged results stay as small
as that of one file. They give mean and variance of both sides, and Welch's t-test.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.frames import statistics
from tracetui.analysis.frames.statistics import CONFIDENCE, Floats, RowEvidence
from tracetui.analysis.kernels import compute_divisor, compute_total_table
from tracetui.look import Look

ROW: Final = "row"


def collect_row_moments(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Collect the sums of a run; the side is filled in by the job."""
    group = look.group or "name"
    table = compute_total_table(run, replace(look, per="total"))
    log = (pl.col("total_ns") / compute_divisor(run, replace(look, per="step"))).log()
    sums = table.filter(pl.col("total_ns") > 0).select(
        pl.col(group).cast(pl.String).alias(ROW),
        side=pl.lit(0, pl.Int64),
        files=pl.lit(1, pl.Int64),
        logs=log,
        squares=log**2,
    )
    return {"sides": sums.sort(ROW, nulls_last=True)}


def compare_sides(sums: pl.DataFrame, look: Look) -> pl.DataFrame:
    """Compare the rows that both sides have, largest change first, by the sums of all files."""
    a, b = (sums.filter(pl.col("side") == side).drop("side") for side in (0, 1))
    both = a.join(b, on=ROW, suffix="_b", nulls_equal=True)
    (n_a, mean_a, var_a), (n_b, mean_b, var_b) = (_compute_moments(both, suffix) for suffix in ("", "_b"))
    shift = mean_b - mean_a
    p, half_width = _compute_welch(shift, var_a / n_a, var_b / n_b, n_a, n_b)
    level_a, level_b = np.exp(mean_a), np.exp(mean_b)
    change, low, high = (np.expm1(x) for x in (shift, shift - half_width, shift + half_width))
    adjusted, no_cliff = statistics.adjust_benjamini_hochberg(p), np.full(len(p), np.nan)
    delta, counts = level_b - level_a, (n_a.astype(np.int64), n_b.astype(np.int64))
    interval = level_a * low, level_a * high
    evidence = RowEvidence(level_a, level_b, delta, *interval, p, adjusted, no_cliff, *counts)
    columns = {
        ROW: both[ROW],
        "mean_a_ns": level_a,
        "mean_b_ns": level_b,
        "delta_ns": delta,
        "change_pct": 100 * change,
        "change_low_pct": 100 * low,
        "change_high_pct": 100 * high,
        "p": p,
        "p_adjusted": adjusted,
        "verdict": statistics.judge_evidence(evidence, look.terms.threshold * level_a),
        "files_a": counts[0],
        "files_b": counts[1],
    }
    table = pl.DataFrame(columns).with_columns(pl.col("^.*_ns$").round().cast(pl.Int64))
    table = table.with_columns(pl.col(pl.Float64).fill_nan(None))
    table = table.sort(pl.col("delta_ns").abs(), ROW, descending=[True, False], nulls_last=True)
    return table.rename({ROW: look.group or "name"})


def _compute_moments(both: pl.DataFrame, suffix: str) -> tuple[Floats, Floats, Floats]:
    """Compute number, mean and variance of the logs; the variance of a single file is NaN."""
    n, logs, squares = (both[f"{c}{suffix}"].to_numpy().astype(float) for c in ("files", "logs", "squares"))
    spread = np.maximum(squares - logs**2 / n, 0.0)
    return n, logs / n, np.divide(spread, n - 1, out=np.full_like(n, np.nan), where=n > 1)


def _compute_welch(shift: Floats, a: Floats, b: Floats, n_a: Floats, n_b: Floats) -> tuple[Floats, Floats]:
    """Compute p of Welch's t-test and the half-width of the 95 % interval; `a`, `b`: variances of means."""
    from scipy.special import stdtr, stdtrit

    error = np.sqrt(a + b)
    terms = a**2 / np.maximum(n_a - 1, 1) + b**2 / np.maximum(n_b - 1, 1)
    df = np.divide((a + b) ** 2, terms, out=np.maximum(n_a + n_b - 2, 1.0), where=terms > 0)
    t = np.divide(np.abs(shift), error, out=np.where(shift == 0, 0.0, np.inf), where=error > 0)
    p = np.where(np.isnan(error), np.nan, 2 * stdtr(df, -t))
    return p, error * stdtrit(df, (1 + CONFIDENCE) / 2)
