"""Test one run per side: the paired steps of a row against the run-to-run noise.

Each row has one number, its shift: the median over the steps of the log ratio b / a. Its variance has three
parts: the steps, which are autocorrelated, the state that a run keeps from start to end, and the run-to-run
noise, which no pair can show and which therefore comes from outside (`NoiseFloor`).
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
from tracetui.compare.evidence import common_mode
from tracetui.compare.pairing.step_times import SparseTimes
from tracetui.compare.run_sides import NoiseFloor

_QUARTILE: Final = 1 / MAD_TO_SD
# of the MAD beside the SD of normal samples: 8 q² φ(q)², q the quartile (Hampel 1974)
_MAD_EFFICIENCY: Final = 8 * _QUARTILE**2 * NormalDist().pdf(_QUARTILE) ** 2
# variance of a median of normal samples over that of their mean, less 1
_MEDIAN_EXCESS_VARIANCE: Final = math.pi / 2 - 1


def judge_pair(a: Floats, b: Floats, floor: NoiseFloor) -> RowEvidence:
    """Judge each row of two tables, rows × steps or rows × one sum; NaN is an excluded step."""
    return judge_sparse_pair(SparseTimes.from_dense(a, b), floor)[0]


def judge_sparse_pair(cells: SparseTimes, floor: NoiseFloor) -> tuple[RowEvidence, Bools]:
    """Judge each row; also return which rows were judged by what is left without the common mode."""
    evidence, is_relative = _judge_rows(cells, floor), np.zeros(cells.row_count, dtype=bool)
    residual = common_mode.remove_common_mode(cells)
    if residual is not None:
        rows, residual_cells = residual
        residual_evidence = _judge_rows(residual_cells, floor, params.RESIDUAL_SHIFT_MARGIN)
        evidence, is_relative = common_mode.take_stronger_test(evidence, rows, residual_evidence)
    weight = np.nan_to_num(evidence.median_a + evidence.median_b)
    weight = np.sqrt(weight / max(weight.sum(), 1e-300)).clip(params.MIN_ROW_WEIGHT)
    alpha_share = 1 - params.TOTAL_ALPHA_SHARE if cells.row_count > 1 else 1
    adjusted = np.minimum(1.0, adjust_holm(evidence.p, weight) / alpha_share)
    return replace(evidence, p_adjusted=adjusted, cliff=cells.compute_cliffs_delta()), is_relative


def _judge_rows(cells: SparseTimes, floor: NoiseFloor, margin: float = params.SHIFT_MARGIN) -> RowEvidence:
    """Judge each row on its own, without a correction for the number of rows.

    `margin` widens the distances between shifts: of rows that move together, they are by chance too small.
    """
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
    df, error, step_variance = _estimate_shift_error(shift, deviations, floor, state_variance, margin)
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
    shift: Floats, deviations: "StepDeviations", floor: NoiseFloor, state_variance: Floats, margin: float
) -> tuple[Floats, Floats, Floats]:
    """Estimate degrees of freedom and standard error of the shifts, and the variance due to the steps.

    Autocorrelation that outlasts the steps does not show in them, but it spreads the shifts of the rows. Most
    rows of a pair changed like the median row. So the autocorrelation is the smallest of a grid at which
    the shifts are no wider than their errors; if none fits, the rows did change.
    """
    is_known = ~np.isnan(shift)
    distance = np.abs(shift - np.median(shift[is_known])) if is_known.any() else shift

    def estimate(autocorrelation: float, *, reliable: bool = True) -> tuple[Floats, Floats, Floats]:
        variance, df = estimate_median_variance(deviations, autocorrelation, reliable)
        return *_combine_variances(variance, df, floor, state_variance), variance

    def is_consistent(autocorrelation: float) -> bool:
        df, error, variance = estimate(autocorrelation)
        scaled = margin * distance[is_known]
        return _is_consistent_with_noise(scaled, error[is_known], df[is_known], variance[is_known])

    if deviations.step_count < params.MIN_POINTS:
        variance = np.zeros(len(shift))
        return *_combine_variances(variance, np.ones(len(shift)), floor, state_variance), variance
    observed, upper = _estimate_autocorrelation(deviations)
    if is_known.sum() < params.AUTOCORRELATION_MIN_ROWS:
        return estimate(upper, reliable=False)
    grid = [observed, *(r for r in params.AUTOCORRELATION_GRID if r > observed)]
    return estimate(grid[bisect_left(grid[:-1], True, key=is_consistent)])


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
    def _lag_products(self) -> tuple[Ints, Floats, Floats, Floats]:
        """Per row over pairs of successive steps without outliers: count, Σ later², Σ earlier², Σ product."""
        rows = len(self.mad)
        limit = params.SPIKE_SD * MAD_TO_SD * (1 + params.MAD_BIAS_STEPS / np.maximum(self.counts, 1))
        is_inlier = np.abs(self.deviation) <= (limit * self.mad)[self.row]
        means = ragged.compute_means(self.deviation[is_inlier], self.row[is_inlier], rows)
        centered = self.deviation - means[self.row]
        first = np.flatnonzero(self.row[1:] == self.row[:-1])
        row, move = self.row[first], np.abs(centered[first + 1] - centered[first])
        typical_move = ragged.compute_medians(move, row, np.bincount(row, minlength=rows))
        selected = is_inlier[first] & is_inlier[first + 1] & (move <= (limit * typical_move)[row])
        earlier, later, row = centered[first[selected]], centered[first[selected] + 1], row[selected]
        products = later**2, earlier**2, later * earlier
        sums = (np.asarray(np.bincount(row, x, rows), dtype=np.float64) for x in products)
        later_squares, earlier_squares, mixed = sums
        return np.bincount(row, minlength=rows), later_squares, earlier_squares, mixed

    def estimate_innovation_variance(self, autocorrelation: float) -> tuple[Floats, Floats]:
        """Estimate each row's variance from the innovations of its AR(1) series, and their df.

        Few strongly autocorrelated steps stay near their start, so their spread is nearly chance, while their
        innovations are as many independent samples as there are steps.
        """
        count, later, earlier, product = self._lag_products
        is_known = count >= params.MIN_POINTS
        squares = later - 2 * autocorrelation * product + autocorrelation**2 * earlier
        mean_square = squares / np.maximum(count, 1)
        expected = _compute_per_length(self.counts, partial(_compute_innovation_variance, autocorrelation))
        max_df = params.INNOVATION_DF_STEPS / np.maximum(self.counts, 1)
        df = np.minimum(params.INNOVATION_DF_PER_STEP * count, max_df)
        variance = np.maximum(mean_square, 0) / expected
        return np.where(is_known, variance, 0.0), np.where(is_known, df, 0.0)


def estimate_median_variance(
    deviations: StepDeviations, autocorrelation: float, reliable: bool = True
) -> tuple[Floats, Floats]:
    """Estimate the variance of each row's median over its steps, and its degrees of freedom.

    Rows of a run share the states of the machine, so one autocorrelation holds for all. The variance of a row
    is estimated from its MAD and, if the autocorrelation is `reliable`, from its innovations, and then shrunk
    towards that of the other rows, because few steps may by chance vary little.
    """
    n = deviations.counts
    of_mean = _compute_per_length(n, partial(_compute_mean_variance, autocorrelation))
    steps = np.maximum(n, 2)
    unbiased = (1 - of_mean) * steps / (steps - 1)
    from_mad = (MAD_TO_SD * (1 + 1 / steps) * deviations.mad) ** 2 / unbiased
    mad_df = _MAD_EFFICIENCY * steps * (1 - autocorrelation**2) / (1 + autocorrelation**2)
    from_innovations, innovation_df = np.zeros(len(n)), np.zeros(len(n))
    if reliable:
        from_innovations, innovation_df = deviations.estimate_innovation_variance(autocorrelation)
    pooled = (mad_df * from_mad + innovation_df * from_innovations) / (mad_df + innovation_df)
    df = np.maximum(params.MIN_STEP_DF, mad_df + innovation_df)
    variance, prior_df = _shrink_variances(pooled, df, np.asarray(n >= params.MIN_POINTS))
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


def _compute_innovation_variance(autocorrelation: float, n: int) -> float:
    """Compute the mean square of the innovations of the same series after its own mean was subtracted."""
    of_mean = _compute_mean_variance(autocorrelation, n)
    rest = 1 - autocorrelation
    # of the sum of the innovations and the mean
    covariance = rest * n * of_mean - (1 - autocorrelation**n) / n
    return float(1 - autocorrelation**2 + rest**2 * of_mean - 2 * rest * covariance / (n - 1))


def _shrink_variances(variance: Floats, df: Floats, is_usable: Bools) -> tuple[Floats, float]:
    """Shrink variances towards their median as limma does (Smyth 2004); also return the prior's df."""
    from scipy.special import digamma, polygamma

    selected = np.asarray(is_usable & (variance > 0))
    if selected.sum() < params.MIN_POINTS:
        return variance, 0.0
    half_df = df[selected] / 2
    logs = np.log(variance[selected]) - digamma(half_df) + np.log(half_df)
    excess = float(np.var(logs, ddof=1) - polygamma(1, half_df).mean())
    prior_df = params.MAX_PRIOR_DF if excess <= 0 else float(min(params.MAX_PRIOR_DF, 2 * (0.5 + 1 / excess)))
    prior = np.exp(np.median(logs))
    shrunk = (prior_df * prior + df * variance) / (prior_df + df)
    return np.where(is_usable, np.where(variance > 0, shrunk, variance), np.nan), prior_df


def _estimate_autocorrelation(deviations: StepDeviations) -> tuple[float, float]:
    """Estimate the lag-1 autocorrelation over all rows: as observed, and an upper value for few steps."""
    n = int((np.bincount(deviations.step) > 0).sum())
    if n < params.MIN_POINTS + 1:
        return 0.0, 0.0
    limit = params.SPIKE_SD * MAD_TO_SD * deviations.mad[deviations.row]
    is_inlier = np.abs(deviations.deviation) <= limit
    row, step = deviations.row[is_inlier], deviations.step[is_inlier]
    rows, inliers = len(deviations.mad), deviations.deviation[is_inlier]
    inliers = inliers - ragged.compute_means(inliers, row, rows)[row]
    shape = rows, deviations.step_count
    first, second = (_compute_autocorrelations(inliers, row, step, shape, lag) + 1 / n for lag in (1, 2))
    if np.isnan(first).all():
        return 0.0, 0.0
    known_rows = max(1, int((~np.isnan(first)).sum()))
    error = max(float(np.nanstd(first)), 1 / np.sqrt(n)) / np.sqrt(known_rows)
    observed = float(np.nanmean(first))
    bias_factor = max(params.MIN_AUTOCORRELATION_BIAS_FACTOR, 1 - params.AUTOCORRELATION_BIAS_STEPS / n)
    unbiased = (observed + params.AUTOCORRELATION_UPPER_SE * error) / bias_factor
    known_second, decay = second[~np.isnan(second)], 0.0
    if observed > params.AUTOCORRELATION_DECAY_SE * error and len(known_second):
        decay = float(known_second.mean()) / observed
    upper = float(np.clip(max(unbiased, decay), 0.0, params.MAX_AUTOCORRELATION))
    widened = 1 - (1 - upper) * (1 - params.AUTOCORRELATION_MARGIN * upper**2)
    return float(np.clip(observed, 0.0, params.MAX_AUTOCORRELATION)), widened


def _compute_autocorrelations(
    values: Floats, row: Ints, step: Ints, shape: tuple[int, int], lag: int
) -> Floats:
    """Compute each row's autocorrelation at a lag, biased by few steps; NaN for a constant row."""
    (rows, steps), products, rows_of_products = shape, [], []
    for offset in range(1, lag + 1):  # excluded steps may lie between two steps that are `lag` apart
        pairs = np.flatnonzero((row[offset:] == row[:-offset]) & (step[offset:] - step[:-offset] == lag))
        products.append(values[pairs] * values[pairs + offset])
        rows_of_products.append(row[pairs])
    means = ragged.compute_means(np.concatenate(products), np.concatenate(rows_of_products), rows)
    covariance = means * (steps - lag) / steps
    variance = ragged.compute_means(values**2, row, rows)
    return np.asarray(np.divide(covariance, variance, out=np.full(rows, np.nan), where=variance > 0))
