"""Test one run per side: the paired steps of a row against the run-to-run noise.

Each row has one number, its shift: the median over the steps of the log ratio b / a. Its variance has three
parts: the steps, which are autocorrelated, the state that a run keeps from start to end, and the run-to-run
noise, which no pair can show and which therefore comes from outside (`NoiseFloor`). How long the steps
remember is read from the spread of the shifts over the rows. The guide `evidence` has the formulas.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import NormalDist
from typing import Final

import numpy as np

from tracetui.analysis.frames import ragged
from tracetui.analysis.frames.line_fit import MAD_TO_SD
from tracetui.analysis.frames.ragged import Bools, Ints
from tracetui.analysis.frames.statistics import CONFIDENCE, MIN_SAMPLES, Floats, RowEvidence, adjust_holm
from tracetui.compare import params
from tracetui.compare.pairing.step_times import SparseTimes
from tracetui.compare.run_sides import NoiseFloor

_QUARTILE: Final = 1 / MAD_TO_SD
# of the MAD beside the SD of normal samples: 8 q² φ(q)², q the quartile (Hampel 1974)
_MAD_EFFICIENCY: Final = 8 * _QUARTILE**2 * NormalDist().pdf(_QUARTILE) ** 2
# variance of a median of normal samples over that of their mean, less 1
_MEDIAN_EXCESS_VARIANCE: Final = math.pi / 2 - 1


def judge_pair(a: Floats, b: Floats, floor: NoiseFloor) -> RowEvidence:
    """Judge each row of two tables, rows × steps or rows × one sum; NaN is an excluded step."""
    return judge_sparse_pair(SparseTimes.from_dense(a, b), floor)


def judge_sparse_pair(cells: SparseTimes, floor: NoiseFloor) -> RowEvidence:
    """Judge each row, corrected by Holm with weight √(share of the time)."""
    evidence = _judge_rows(cells, floor)
    weight = np.nan_to_num(evidence.median_a + evidence.median_b)
    weight = np.sqrt(weight / max(weight.sum(), 1e-300)).clip(params.FLOAT_NOISE)
    alpha_share = 1 - params.TOTAL_ALPHA_SHARE if cells.row_count > 1 else 1
    adjusted = np.minimum(1.0, adjust_holm(evidence.p, weight) / alpha_share)
    return replace(evidence, p_adjusted=adjusted, cliff=cells.compute_cliffs_delta())


def _judge_rows(cells: SparseTimes, floor: NoiseFloor) -> RowEvidence:
    """Judge each row on its own, without a correction for the number of rows."""
    from scipy.special import stdtr, stdtrit

    has_both = np.asarray((cells.a > 0) & (cells.b > 0))
    log_ratio = np.log(cells.b[has_both]) - np.log(cells.a[has_both])
    row, step, rows = cells.row[has_both], cells.step[has_both], cells.row_count
    counts = np.bincount(row, minlength=rows)
    excluded_a, excluded_b = (
        np.bincount(cells.row[np.isnan(side)], minlength=rows) for side in (cells.a, cells.b)
    )
    valid_a, valid_b = cells.valid_steps - excluded_a, cells.valid_steps - excluded_b
    median_a = ragged.compute_medians(cells.a, cells.row, valid_a)
    median_b = ragged.compute_medians(cells.b, cells.row, valid_b)
    delta = ragged.compute_medians(cells.b - cells.a, cells.row, valid_a - excluded_b)
    center = ragged.compute_medians(log_ratio, row, counts)
    deviation = log_ratio - center[row]
    mad = ragged.compute_medians(np.abs(deviation), row, counts)
    state_variance = np.zeros(rows)  # due to the state that a run keeps from start to end
    if cells.step_count >= MIN_SAMPLES:
        state_variance = np.nan_to_num(params.SINGLE_RUN_STATE_SD * MAD_TO_SD * mad) ** 2
    shift = np.where(2 * counts >= valid_a, center, np.nan)
    deviations = StepDeviations(deviation, row, step, mad, cells.step_count)
    df, error, step_variance = _estimate_shift_error(shift, deviations, floor, state_variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(shift == 0, 0.0, np.abs(shift) / error)
    p = np.asarray(2 * stdtr(df, -t))
    # the 95 % interval of the difference in ns; its width is 0 for rows that are exactly equal
    half_width = np.where((shift == 0) & (step_variance == 0), 0.0, error * stdtrit(df, (1 + CONFIDENCE) / 2))
    scale = 2 * np.sqrt(median_a * median_b)
    low, high = (
        delta + scale * (np.sinh((shift + sign * half_width) / 2) - np.sinh(shift / 2)) for sign in (-1, 1)
    )
    no_cliff = np.full(rows, np.nan)
    return RowEvidence(median_a, median_b, delta, low, high, p, p, no_cliff, counts, counts)


def _estimate_shift_error(
    shift: Floats, deviations: "StepDeviations", floor: NoiseFloor, state_variance: Floats
) -> tuple[Floats, Floats, Floats]:
    """Estimate degrees of freedom and standard error of the shifts, and the variance due to the steps.

    Autocorrelation that outlasts the steps does not show in them, but it spreads the shifts of the rows. Most
    rows of a pair changed like the median row. So the autocorrelation is the smallest hundredth at which
    the shifts are no wider than their errors; if none fits, the rows did change.
    """
    if deviations.step_count < params.MIN_POINTS:
        variance = np.zeros(len(shift))
        return *_combine_variances(variance, np.ones(len(shift)), floor, state_variance), variance
    is_known = ~np.isnan(shift)
    distance = np.abs(shift - np.median(shift[is_known])) if is_known.any() else shift

    def estimate(autocorrelation: float) -> tuple[Floats, Floats, Floats]:
        variance, df = estimate_median_variance(deviations, autocorrelation)
        return *_combine_variances(variance, df, floor, state_variance), variance

    def is_consistent(autocorrelation: float) -> bool:
        df, error, variance = (values[is_known] for values in estimate(autocorrelation))
        return _is_consistent_with_noise(params.SHIFT_MARGIN * distance[is_known], error, df, variance)

    if is_known.sum() < params.MIN_ROWS:
        return estimate(_estimate_autocorrelation(deviations))
    grid = np.arange(0, params.MAX_AUTOCORRELATION, 0.01)
    return estimate([*grid, params.MAX_AUTOCORRELATION][bisect_left(grid, True, key=is_consistent)])


def _is_consistent_with_noise(distance: Floats, error: Floats, df: Floats, step_variance: Floats) -> bool:
    """True if the shifts are no farther from their median than their errors allow.

    Each row is weighted by the share of the steps in its error, because only they are autocorrelated, and its
    distance is clipped, so that up to four in ten rows may have changed.
    """
    from scipy.special import ndtri, stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(distance == 0, 0.0, distance / error)
        weight = np.nan_to_num(step_variance / error**2)
    z = np.minimum(-ndtri(stdtr(df, -t).clip(1e-300)), params.MAX_SHIFT_Z)
    return bool((weight * z**2).sum() <= _compute_clipped_variance(params.MAX_SHIFT_Z) * weight.sum())


def _compute_clipped_variance(limit: float) -> float:
    """Compute E[min(|z|, limit)²] of a standard normal variable."""
    normal = NormalDist()
    beyond = 2 * (1 - normal.cdf(limit))
    return 1 - beyond - 2 * limit * normal.pdf(limit) + limit**2 * beyond


def _combine_variances(
    step_variance: Floats, step_df: Floats, floor: NoiseFloor, state_variance: Floats
) -> tuple[Floats, Floats]:
    """Combine the variances of steps, state and two runs: Satterthwaite's degrees of freedom, and the SD."""
    between = 2 * floor.spread**2
    total = step_variance + between + state_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = step_variance**2 / np.maximum(step_df, 1) + between**2 / floor.freedom
        df = np.where(squares > 0, total**2 / squares, params.MAX_DF).clip(1, params.MAX_DF)
    return df, np.sqrt(total)


@dataclass(frozen=True, eq=False)
class StepDeviations:
    """Deviations of the steps from the median of their row, sorted by row and step."""

    deviation: Floats
    row: Ints
    step: Ints
    mad: Floats  # per row: median absolute deviation
    step_count: int

    @cached_property
    def counts(self) -> Ints:
        """Number of steps of each row."""
        return np.bincount(self.row, minlength=len(self.mad))

    @cached_property
    def typical_moves(self) -> Floats:
        """Median absolute difference of successive steps of each row."""
        first = np.flatnonzero(self.row[1:] == self.row[:-1])
        row, moves = self.row[first], np.abs(np.diff(self.deviation)[first])
        return ragged.compute_medians(moves, row, np.bincount(row, minlength=len(self.mad)))


def estimate_median_variance(deviations: StepDeviations, autocorrelation: float) -> tuple[Floats, Floats]:
    """Estimate the variance of each row's median over its steps, and its degrees of freedom.

    Rows of a run share the states of the machine, so one autocorrelation holds for all. The variance of a row
    is the larger of two estimates: from the distances of its steps from their median, and from its moves from
    step to step, because few strongly autocorrelated steps stay near their start. It is then shrunk towards
    that of the other rows, because few steps may by chance vary little.
    """
    n = deviations.counts
    of_mean = _compute_per_length(n, partial(_compute_mean_variance, autocorrelation))
    steps = np.maximum(n, 2)
    to_sd = MAD_TO_SD * (1 + 1 / steps)
    within = (1 - of_mean) * steps / (steps - 1)  # share of the variance that shows around the own mean
    from_distances = (to_sd * deviations.mad) ** 2 / within
    from_moves = (to_sd * deviations.typical_moves) ** 2 / (2 * (1 - autocorrelation))
    df = _MAD_EFFICIENCY * steps
    is_usable = np.asarray(n >= params.MIN_POINTS)
    variance, prior_df = _shrink_variances(np.fmax(from_distances, from_moves), df, is_usable)
    of_median = variance * of_mean * (1 + _MEDIAN_EXCESS_VARIANCE * (1 - autocorrelation))
    return of_median, df + prior_df


def _compute_per_length(counts: Ints, compute: Callable[[int], float]) -> Floats:
    """Compute a value for each row from its number of steps; NaN for fewer than two."""
    lengths, index = np.unique(counts, return_inverse=True)
    return np.array([compute(int(n)) if n > 1 else np.nan for n in lengths])[index]


def _compute_mean_variance(autocorrelation: float, n: int) -> float:
    """Compute the variance of the mean of n steps of an AR(1) series of variance 1."""
    lags = np.arange(1, n)
    return float((1 + 2 * ((1 - lags / n) * autocorrelation**lags).sum()) / n)


def _shrink_variances(variance: Floats, df: Floats, is_usable: Bools) -> tuple[Floats, float]:
    """Shrink variances towards their median as limma does (Smyth 2004); also return the prior's df."""
    from scipy.special import digamma, polygamma

    selected = np.asarray(is_usable & (variance > 0))
    if selected.sum() < params.MIN_POINTS:
        return variance, 0.0
    half_df = df[selected] / 2
    logs = np.log(variance[selected]) - digamma(half_df) + np.log(half_df)
    excess = float(np.var(logs, ddof=1) - polygamma(1, half_df).mean())
    prior_df = params.MAX_DF if excess <= 0 else float(min(params.MAX_DF, 2 * (0.5 + 1 / excess)))
    prior = np.exp(np.median(logs))
    shrunk = (prior_df * prior + df * variance) / (prior_df + df)
    return np.where(is_usable, np.where(variance > 0, shrunk, variance), np.nan), prior_df


def _estimate_autocorrelation(deviations: StepDeviations) -> float:
    """Estimate the upper end of the 95 % interval of the mean lag-1 autocorrelation of the rows."""
    rows, row, step = len(deviations.mad), deviations.row, deviations.step
    pairs = np.flatnonzero((row[1:] == row[:-1]) & (np.diff(step) == 1))
    values = deviations.deviation
    products = ragged.compute_means(values[pairs] * values[pairs + 1], row[pairs], rows)
    variance = ragged.compute_means(values**2, row, rows)
    is_known = (variance > 0) & ~np.isnan(products)
    if not is_known.any():
        return 0.0
    steps = deviations.counts[is_known]
    # around their own mean n independent steps have an autocorrelation of −1 / n
    unbiased = products[is_known] / variance[is_known] * (steps - 1) / steps + 1 / steps
    error = 1 / np.sqrt(steps.sum())
    upper = float(unbiased.mean() + NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error)
    return min(max(upper, 0.0), params.MAX_AUTOCORRELATION)
