"""Test whether two series differ: medians, intervals, tests and effect sizes under autocorrelation.

Steps of one run follow each other, so one slow instant slows several of them. The interval bootstraps whole
blocks of steps, and the variance of the rank test is widened by the series' autocorrelation time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_SAMPLES: Final = 6  # samples per side, below which nothing is concluded
CONFIDENCE: Final = 0.95
ALPHA: Final = 0.05
_LONGEST_NS: Final = 2.0**62  # of an interval; more does not fit into a column


@dataclass(frozen=True, eq=False)
class RowEvidence:
    """Evidence on many rows: one array element per row, NaN if there are too few samples."""

    median_a: Floats
    median_b: Floats
    delta: Floats  # median of b − a
    low: Floats  # 95 % interval of delta; swapping the sides swaps and negates its ends
    high: Floats
    p: Floats  # chance of so large a difference if there is none, by the caller's test
    p_adjusted: Floats  # corrected for the number of rows
    cliff: Floats  # P(b > a) − P(b < a)
    n_a: NDArray[np.int64]
    n_b: NDArray[np.int64]


def compute_interval_from_a(evidence: RowEvidence) -> tuple[Floats, Floats]:
    """Return the interval as changes of side a, in ns: never below −a, since no time falls below zero.

    An end is 2 √(ab) sinh(x / 2) around the geometric mean of both sides, x being its place on the log scale;
    from side a the same end is a (exp(x) − 1).
    """
    scale = 2 * np.sqrt(evidence.median_a * evidence.median_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (
            np.where(end == 0, 0.0, evidence.median_a * np.expm1(2 * np.arcsinh(end / scale)))
            for end in (evidence.low, evidence.high)
        )
    return np.minimum(low, _LONGEST_NS), np.minimum(high, _LONGEST_NS)


def compute_paired_evidence(a: Floats, b: Floats) -> RowEvidence:
    """Return the evidence on rows × steps of two sides whose steps are aligned."""
    difference, n = b - a, np.full(len(a), a.shape[1])
    tau = estimate_autocorrelation_time(difference)
    tests = (*compute_median_interval(difference, tau), compute_signed_rank_p(difference, tau))
    low, high, p = (np.where(n < MIN_SAMPLES, np.nan, x) for x in tests)
    median_a, median_b, delta = (np.median(x, axis=1) for x in (a, b, difference))
    adjusted, cliff = adjust_benjamini_hochberg(p), compute_cliffs_delta(a, b)
    return RowEvidence(median_a, median_b, delta, low, high, p, adjusted, cliff, n, n)


def estimate_autocorrelation_time(rows: Floats) -> Floats:
    """Return the steps of each row that carry the information of one independent step, at least 1.

    Rows of one run share its slow instants, so no row's time is taken below that of their mean
    autocorrelation: a single row is too short to estimate it, and the smallest of many estimates would be
    believed.
    """
    n = rows.shape[1]
    if n < 8:
        return np.ones(len(rows))
    by_row = _compute_autocorrelations(rows)
    mean_row = by_row.mean(axis=0)
    estimates = _estimate_sokal_time(mean_row, n), _estimate_masked_ar1_time(mean_row, n)
    lowest = max(1.0, float(_estimate_ar1_time(mean_row[1], n)), *estimates)
    return np.clip(_estimate_ar1_time(by_row[:, 1], n), lowest, n / 2)


def _compute_autocorrelations(rows: Floats) -> Floats:
    """Return rows × lags after removing a linear trend; zeros for a constant row."""
    n = rows.shape[1]
    x = np.arange(n) - (n - 1) / 2
    residuals = rows - rows.mean(axis=1, keepdims=True)
    residuals = residuals - np.outer(residuals @ x / (x @ x), x)
    spectrum = np.fft.rfft(residuals, 2 * n, axis=1)
    covariances = np.fft.irfft(spectrum * spectrum.conj(), axis=1)[:, :n]
    variances = covariances[:, :1]
    return np.divide(covariances, variances, out=np.zeros_like(covariances), where=variances > 0)


def _estimate_ar1_time(correlation: Floats, n: int) -> Floats:
    """Return the time of an AR(1) series, its first autocorrelation corrected for the bias of detrending."""
    unbiased = np.clip(correlation + (2 + 4 * correlation) / n, 0.0, 0.98)
    return np.asarray((1 + unbiased) / (1 - unbiased))


def _estimate_sokal_time(correlation: Floats, n: int) -> float:
    """Return Sokal's time: the sum of autocorrelations stops at the first lag of five times itself."""
    lags = min(n // 4, 200)
    time_by_lag = 1 + 2 * np.cumsum(correlation[1 : lags + 1])
    enough = np.flatnonzero(np.arange(1, lags + 1) >= 5 * time_by_lag)
    tau = float(time_by_lag[enough[0] if len(enough) else lags - 1])
    return tau * (1 + 4 * tau / n)


def _estimate_masked_ar1_time(correlation: Floats, n: int) -> float:
    """Return the time of an AR(1) series hidden by white noise, from its decay between the first two lags."""
    first, second = correlation[1:3]
    if first <= 2 / np.sqrt(n):
        return 1.0
    decay = second / first
    unbiased = float(np.clip(decay + (2 + 4 * decay) / n, 0.0, 0.98))
    return float(1 + 2 * first / (1 - unbiased))


def compute_median_interval(rows: Floats, tau: Floats) -> tuple[Floats, Floats]:
    """Return the 95 % interval of each row's median under a circular block bootstrap, without draws.

    A median is known as well as the number of steps below it. The bootstrap's spread of this number has a
    closed form, and the interval extends as many ranks to either side (Woodruff's interval).
    """
    n = rows.shape[1]
    median = np.median(rows, axis=1, keepdims=True)
    below = (rows < median) + (rows == median) / 2
    ranks = np.empty(len(rows))
    for block, members in _group_by_block_length(tau, n):
        spread = _compute_block_spread(below[members], block)
        ranks[members] = _compute_half_width(tau[members], n, block) * spread
    ordered = np.sort(rows, axis=1)
    middle = (n - 1) / 2
    return _interpolate_at_rank(ordered, middle - ranks), _interpolate_at_rank(ordered, middle + ranks)


def _compute_block_spread(rows: Floats, block: int) -> Floats:
    """Return the standard deviation of each row's sum over all resamples of circular blocks."""
    n = rows.shape[1]
    sums = np.cumsum(np.concatenate([np.zeros((len(rows), 1)), rows, rows[:, :block]], axis=1), axis=1)
    return np.asarray(np.std(sums[:, block : block + n] - sums[:, :n], axis=1) * np.sqrt(n / block))


def _compute_half_width(tau: Floats, n: int, block: int) -> Floats:
    """Return the half-width of a 95 % interval in standard deviations, above 1.96 for short blocks.

    For an AR(1) series of time τ, blocks of b steps miss (τ² − 1) / 2τb of its variance; τ itself is
    uncertain.
    """
    from scipy.special import stdtrit

    missed = np.minimum((tau**2 - 1) / (2 * tau * block), 0.5)
    return np.asarray(stdtrit(_compute_freedom(tau, n), (1 + CONFIDENCE) / 2) / np.sqrt(1 - missed))


def _compute_freedom(tau: Floats, n: int) -> Floats:
    """Return the degrees of freedom: the longer the autocorrelation time, the less is known of it."""
    return np.maximum(1.0, np.divide(n, tau - 1, out=np.full_like(tau, np.inf), where=tau > 1))


def _interpolate_at_rank(ordered: Floats, rank: Floats) -> Floats:
    """Return for each row the value at a rank, interpolated between two ranks."""
    rank = np.clip(rank, 0, ordered.shape[1] - 1)
    row, floor, ceiling = np.arange(len(rank)), np.floor(rank).astype(int), np.ceil(rank).astype(int)
    near, far = ordered[row, floor], ordered[row, ceiling]
    return np.asarray(near + (rank - floor) * (far - near))


def _group_by_block_length(tau: Floats, n: int) -> list[tuple[int, NDArray[np.int64]]]:
    """Return rows by block length: a power of two, at least twice their autocorrelation time."""
    lengths = np.clip(2 ** np.ceil(np.log2(2 * tau)), 1, max(1, n // 4)).astype(np.int64)
    return [(int(size), np.flatnonzero(lengths == size)) for size in np.unique(lengths)]


def compute_signed_rank_p(difference: Floats, tau: Floats) -> Floats:
    """Return p of Wilcoxon's signed-rank test, its variance widened by the autocorrelation time.

    That time is itself an estimate, so the longer it is, the heavier the tails; at 1 they are normal.
    """
    from scipy.special import stdtr
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(difference), axis=1)
    ranks = np.where(difference == 0, 0.0, ranks)
    statistic = (np.sign(difference) * ranks).sum(axis=1)
    spread = np.sqrt((ranks**2).sum(axis=1) * tau)
    z = np.divide(np.abs(statistic), spread, out=np.zeros_like(statistic), where=spread > 0)
    return np.asarray(2 * stdtr(_compute_freedom(tau, difference.shape[1]), -z))


def compute_cliffs_delta(a: Floats, b: Floats) -> Floats:
    """Return P(b > a) − P(b < a) over all pairs of samples, −1 to 1."""
    from scipy.stats import rankdata

    n, m = a.shape[1], b.shape[1]
    if not n or not m:
        return np.full(len(a), np.nan)
    both = rankdata(np.concatenate([a, b], axis=1), axis=1)
    u = both[:, n:].sum(axis=1) - m * (m + 1) / 2
    return np.asarray(2 * u / (n * m) - 1)


def adjust_benjamini_hochberg(p: Floats) -> Floats:
    """Return p-values with the false discovery rate controlled; NaN stays NaN."""
    adjusted = np.full_like(p, np.nan)
    valid = np.flatnonzero(~np.isnan(p))
    order = valid[np.argsort(p[valid], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return adjusted


def adjust_holm(p: Floats, weight: Floats) -> Floats:
    """Return p-values with the family-wise error rate controlled; NaN stays NaN.

    A row with more weight needs less evidence.
    """
    adjusted = np.full_like(p, np.nan)
    valid = np.flatnonzero(~np.isnan(p))
    weighted = p[valid] / weight[valid]
    order = np.argsort(weighted, kind="stable")
    remaining_weight = np.cumsum(weight[valid][order][::-1])[::-1]
    adjusted[valid[order]] = np.minimum(1.0, np.maximum.accumulate(weighted[order] * remaining_weight))
    return adjusted


def judge_evidence(evidence: RowEvidence, floor: Floats, *, alpha: float = ALPHA) -> list[str]:
    """Return slower, faster, same or ~ (undecided) for each row.

    `floor` is the smallest difference that matters, in ns. A row is slower or faster if its interval excludes
    zero, its corrected p is below alpha and its median difference reaches the floor; it is the same if the
    whole interval lies within the floor.
    """
    delta, low, high, p = evidence.delta, evidence.low, evidence.high, evidence.p_adjusted
    is_changed = ((low > 0) | (high < 0)) & (p < alpha) & (np.abs(delta) >= floor)
    is_unknown, is_equal = np.isnan(low) | np.isnan(p), (low == 0) & (high == 0) & (delta == 0)
    is_within = np.maximum(np.abs(low), np.abs(high)) < floor
    conditions = [is_unknown, is_equal, is_changed & (delta > 0), is_changed, is_within]
    return [str(word) for word in np.select(conditions, ["~", "same", "slower", "faster", "same"], "~")]


def invert_by_blocks(matrix: Floats, size: int) -> Floats:
    """Invert a positive definite matrix by blocks of a size, each too small for threads of BLAS.

    These wait for each other: on a busy machine numpy's inverse of 120 series took up to 1.5 s, this 3 ms.
    """
    swept = matrix.copy()
    for begin in range(0, len(matrix), size):
        block = slice(begin, begin + size)
        pivot = np.linalg.inv(swept[block, block])
        columns = swept[:, block] @ pivot
        swept -= columns @ swept[block]
        swept[:, block], swept[block], swept[block, block] = columns, columns.T, -pivot
    return -swept
