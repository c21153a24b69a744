"""Two sides of many files: the file is the sample; what a row takes in a step is compared between the sides.

A file contributes three sums of each row (how many files, the logarithm of its time in a step, the square of
that), so what is merged stays as small as for one file. Two means and spreads follow, and Welch's t-test.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.kernels import divisor, total_table
from tracetui.analysis.partial.algebra import Partial, Shape
from tracetui.analysis.statistics import Evidence, Floats, benjamini_hochberg, verdicts
from tracetui.look import Look

ROW: Final = "row"
SHAPES: Final = {
    "sides": Shape((ROW, "side"), dict.fromkeys(("files", "logs", "squares"), "sum")),
}
ALPHA: Final = 0.05


def partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return the sums of a run; its side is filled in by whoever knows it."""
    group = look.group or "name"
    table = total_table(run, replace(look, per="total"))
    log = (pl.col("total_ns") / divisor(run, replace(look, per="step"))).log()
    sums = table.filter(pl.col("total_ns") > 0).select(
        pl.col(group).cast(pl.String).alias(ROW),
        side=pl.lit(0, pl.Int64),
        files=pl.lit(1, pl.Int64),
        logs=log,
        squares=log**2,
    )
    return {"sides": sums.sort(ROW, nulls_last=True)}


def compared(whole: Partial, look: Look) -> pl.DataFrame:
    """Return one row a kernel that both sides have, the largest change of time first."""
    sums = whole.frames["sides"]
    a, b = (sums.filter(pl.col("side") == side).drop("side") for side in (0, 1))
    both = a.join(b, on=ROW, suffix="_b", nulls_equal=True)
    (n_a, mean_a, var_a), (n_b, mean_b, var_b) = (_moments(both, suffix) for suffix in ("", "_b"))
    shift = mean_b - mean_a
    p, reach = _welch(shift, var_a / n_a, var_b / n_b, n_a, n_b)
    level_a, level_b = np.exp(mean_a), np.exp(mean_b)
    low, high = level_a * np.expm1(shift - reach), level_a * np.expm1(shift + reach)
    adjusted = benjamini_hochberg(p)
    unknown = np.full(len(p), np.nan)
    counts = n_a.astype(np.int64), n_b.astype(np.int64)
    seen = Evidence(level_a, level_b, level_b - level_a, low, high, p, adjusted, unknown, *counts)
    table = pl.DataFrame(
        {
            ROW: both[ROW],
            "mean_a_ns": level_a,
            "mean_b_ns": level_b,
            "delta_ns": level_b - level_a,
            "change_pct": 100 * np.expm1(shift),
            "change_low_pct": 100 * np.expm1(shift - reach),
            "change_high_pct": 100 * np.expm1(shift + reach),
            "p": p,
            "p_adjusted": adjusted,
            "verdict": verdicts(seen, look.terms.threshold * level_a),
            "files_a": counts[0],
            "files_b": counts[1],
        }
    )
    whole_ns = [pl.col(c).round().cast(pl.Int64) for c in ("mean_a_ns", "mean_b_ns", "delta_ns")]
    table = table.with_columns(whole_ns).with_columns(pl.col(pl.Float64).fill_nan(None))
    return table.sort(pl.col("delta_ns").abs(), ROW, descending=[True, False], nulls_last=True).rename(
        {ROW: look.group or "name"}
    )


def _moments(both: pl.DataFrame, suffix: str) -> tuple[Floats, Floats, Floats]:
    """Return number, mean and variance of the logarithms; no variance is known of one file."""
    n, logs, squares = (both[f"{c}{suffix}"].to_numpy().astype(float) for c in ("files", "logs", "squares"))
    spread = np.maximum(squares - logs**2 / n, 0.0)
    return n, logs / n, np.divide(spread, n - 1, out=np.full_like(n, np.nan), where=n > 1)


def _welch(shift: Floats, a: Floats, b: Floats, n_a: Floats, n_b: Floats) -> tuple[Floats, Floats]:
    """Return p of Welch's t-test and the reach of the 95 % interval; `a` and `b` are variances of means."""
    from scipy.special import stdtr, stdtrit

    error = np.sqrt(a + b)
    parts = a**2 / np.maximum(n_a - 1, 1) + b**2 / np.maximum(n_b - 1, 1)
    freedom = np.divide((a + b) ** 2, parts, out=np.maximum(n_a + n_b - 2, 1.0), where=parts > 0)
    t = np.divide(np.abs(shift), error, out=np.where(shift == 0, 0.0, np.inf), where=error > 0)
    p = np.where(np.isnan(error), np.nan, 2 * stdtr(freedom, -t))
    return p, error * stdtrit(freedom, 1 - ALPHA / 2)
