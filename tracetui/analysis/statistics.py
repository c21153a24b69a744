"""Test whether two series differ: medians, intervals, tests and effect sizes under autocorrelation.

Steps of one run follow each other, so a slow moment slows several of them. The interval bootstraps whole
blocks of steps, and the variance of the rank test is widened by the series' autocorrelation time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEWEST: Final = 6  # samples on each side below which nothing is concluded
LEVEL: Final = 0.95
ALPHA: Final = 0.05


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the samples of many rows say; one array element a row, NaN where there is too little."""

    median_a: Floats
    median_b: Floats
    delta: Floats  # median difference b − a
    low: Floats  # 95 % interval of delta
    high: Floats
    p: Floats  # chance of so large a difference, by the test of whoever judged, if there is none
    p_adjusted: Floats  # the same, corrected for the rows being many
    cliff: Floats  # P(b > a) − P(b < a)
    n_a: NDArray[np.int64]
    n_b: NDArray[np.int64]


def paired(a: Floats, b: Floats) -> Evidence:
    """Judge rows × steps on both sides, step i of one aligned with step i of the other."""
    difference = b - a
    tau = autocorrelation_time(difference)
    low, high = block_interval(difference, tau)
    p = signed_rank(difference, tau)
    delta = np.median(difference, axis=1)
    n = np.full(len(a), a.shape[1])
    return _evidence(a, b, delta, low, high, p, n, n)


def _evidence(
    a: Floats, b: Floats, delta: Floats, low: Floats, high: Floats, p: Floats, n_a: Floats, n_b: Floats
) -> Evidence:
    few = (n_a < FEWEST) | (n_b < FEWEST)
    low, high, p = (np.where(few, np.nan, x) for x in (low, high, p))
    median_a, median_b = np.median(a, axis=1), np.median(b, axis=1)
    adjusted, cliff = benjamini_hochberg(p), cliffs_delta(a, b)
    counts = n_a.astype(np.int64), n_b.astype(np.int64)
    return Evidence(median_a, median_b, delta, low, high, p, adjusted, cliff, *counts)


def autocorrelation_time(rows: Floats) -> Floats:
    """Return how many following steps carry the information of one independent step, at least 1.

    Rows of one run live through the same moments, so no row's time is taken below that of their common
    autocorrelation: one row alone is too short a witness, and the luckiest of many rows would be believed.
    """
    n = rows.shape[1]
    if n < 8:
        return np.ones(len(rows))
    own = _autocorrelations(rows)
    common = own.mean(axis=0)
    floor = max(1.0, float(_first_order(common[1], n)), _windowed(common, n), _masked(common, n))
    return np.clip(_first_order(own[:, 1], n), floor, n / 2)


def _autocorrelations(rows: Floats) -> Floats:
    """Return rows × lags, with a linear trend taken out; a constant row has none."""
    n = rows.shape[1]
    x = np.arange(n) - (n - 1) / 2
    flat = rows - rows.mean(axis=1, keepdims=True)
    flat = flat - np.outer(flat @ x / (x @ x), x)
    spectrum = np.fft.rfft(flat, 2 * n, axis=1)
    sums = np.fft.irfft(spectrum * spectrum.conj(), axis=1)[:, :n]
    return np.divide(sums, sums[:, :1], out=np.zeros_like(sums), where=sums[:, :1] > 0)


def _first_order(correlation: Floats, n: int) -> Floats:
    """Return the time of an AR(1) series, its first autocorrelation freed of the bias of detrending."""
    freed = np.clip(correlation + (2 + 4 * correlation) / n, 0.0, 0.98)
    return np.asarray((1 + freed) / (1 - freed))


def _windowed(correlation: Floats, n: int) -> float:
    """Return Sokal's time: the sum of autocorrelations stops at the first lag of five times itself."""
    lags = min(n // 4, 200)
    times = 1 + 2 * np.cumsum(correlation[1 : lags + 1])
    far = np.flatnonzero(np.arange(1, lags + 1) >= 5 * times)
    tau = float(times[far[0] if len(far) else lags - 1])
    return tau * (1 + 4 * tau / n)


def _masked(correlation: Floats, n: int) -> float:
    """Return the time of an AR(1) series below white noise, by its decay from the first lag to the second."""
    first, second = correlation[1:3]
    if first <= 2 / np.sqrt(n):
        return 1.0
    decay = second / first
    freed = float(np.clip(decay + (2 + 4 * decay) / n, 0.0, 0.98))
    return float(1 + 2 * first / (1 - freed))


def block_interval(rows: Floats, tau: Floats) -> tuple[Floats, Floats]:
    """Return the 95 % interval of each row's median under a circular block bootstrap, without draws.

    A median is known as well as the number of steps below it; the spread that the bootstrap gives to this
    number has a closed form, and the interval reaches as many ranks to either side (Woodruff's interval).
    """
    n = rows.shape[1]
    median = np.median(rows, axis=1, keepdims=True)
    below = (rows < median) + (rows == median) / 2
    ranks = np.empty(len(rows))
    for block, members in _by_block(tau, n):
        ranks[members] = _distance(tau[members], n, block) * _block_spread(below[members], block)
    ordered = np.sort(rows, axis=1)
    return _at_rank(ordered, (n - 1) / 2 - ranks), _at_rank(ordered, (n - 1) / 2 + ranks)


def _block_spread(rows: Floats, block: int) -> Floats:
    """Return the standard deviation of each row's sum over all its resamples of circular blocks."""
    n = rows.shape[1]
    sums = np.cumsum(np.concatenate([np.zeros((len(rows), 1)), rows, rows[:, :block]], axis=1), axis=1)
    return np.asarray(np.std(sums[:, block : block + n] - sums[:, :n], axis=1) * np.sqrt(n / block))


def _distance(tau: Floats, n: int, block: int) -> Floats:
    """Return how many standard deviations make 95 %: above 1.96 as blocks miss a part and τ is uncertain.

    For an AR(1) series of time τ, blocks of b steps see its variance too small by the part (τ² − 1) / 2τb.
    """
    from scipy.special import stdtrit

    missed = np.minimum((tau**2 - 1) / (2 * tau * block), 0.5)
    return np.asarray(stdtrit(_freedom(tau, n), (1 + LEVEL) / 2) / np.sqrt(1 - missed))


def _freedom(tau: Floats, n: int) -> Floats:
    """Return degrees of freedom: a longer autocorrelation time is known worse; at 1 it is not in use."""
    return np.maximum(1.0, np.divide(n, tau - 1, out=np.full_like(tau, np.inf), where=tau > 1))


def _at_rank(ordered: Floats, rank: Floats) -> Floats:
    """Return for each row the value at a rank, between two ranks a part of both."""
    rank = np.clip(rank, 0, ordered.shape[1] - 1)
    first = np.floor(rank).astype(np.int64)
    near, far = (
        np.take_along_axis(ordered, places[:, None], axis=1)[:, 0]
        for places in (first, np.ceil(rank).astype(np.int64))
    )
    return np.asarray(near + (rank - first) * (far - near))


def _by_block(tau: Floats, n: int) -> list[tuple[int, NDArray[np.int64]]]:
    """Return rows by block length: a power of two not below twice their autocorrelation time."""
    wanted = np.clip(2 ** np.ceil(np.log2(2 * tau)), 1, max(1, n // 4)).astype(np.int64)
    return [(int(size), np.flatnonzero(wanted == size)) for size in np.unique(wanted)]


def signed_rank(difference: Floats, tau: Floats) -> Floats:
    """Return p of Wilcoxon's signed-rank test, its variance widened by the autocorrelation time.

    That time is itself an estimate, so the longer it is, the heavier the tails; without it they are normal.
    """
    from scipy.special import stdtr
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(difference), axis=1)
    ranks = np.where(difference == 0, 0.0, ranks)
    statistic = (np.sign(difference) * ranks).sum(axis=1)
    spread = np.sqrt((ranks**2).sum(axis=1) * tau)
    z = np.divide(np.abs(statistic), spread, out=np.zeros_like(statistic), where=spread > 0)
    return np.asarray(2 * stdtr(_freedom(tau, difference.shape[1]), -z))


def cliffs_delta(a: Floats, b: Floats) -> Floats:
    """Return P(b > a) − P(b < a) over all pairs of samples, −1 to 1."""
    from scipy.stats import rankdata

    n, m = a.shape[1], b.shape[1]
    if not n or not m:
        return np.full(len(a), np.nan)
    both = rankdata(np.concatenate([a, b], axis=1), axis=1)
    u = both[:, n:].sum(axis=1) - m * (m + 1) / 2
    return np.asarray(2 * u / (n * m) - 1)


def benjamini_hochberg(p: Floats, weight: Floats | None = None) -> Floats:
    """Return p-values corrected for being many; NaN stays NaN, more weight needs less evidence."""
    out = np.full_like(p, np.nan)
    valid = np.flatnonzero(~np.isnan(p))
    if weight is not None and len(valid):
        p = p * weight[valid].mean() / weight
    order = valid[np.argsort(p[valid], kind="stable")]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    out[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return out


def holm(p: Floats, weight: Floats) -> Floats:
    """Return p-values corrected so that any wrong row is rare; NaN stays NaN, more weight needs less."""
    out = np.full_like(p, np.nan)
    valid = np.flatnonzero(~np.isnan(p))
    each = p[valid] / weight[valid]
    order = np.argsort(each, kind="stable")
    left = np.cumsum(weight[valid][order][::-1])[::-1]
    out[valid[order]] = np.minimum(1.0, np.maximum.accumulate(each[order] * left))
    return out


def verdicts(evidence: Evidence, floor: Floats, *, alpha: float = ALPHA) -> list[str]:
    """Return slower, faster, same or ~ for each row.

    `floor` is the difference that matters, in ns: a row is slower or faster when its interval excludes zero,
    its corrected p is below alpha and its median difference reaches the floor; it is the same when the whole
    interval lies within the floor; anything else is not decided.
    """
    delta, low, high, p = evidence.delta, evidence.low, evidence.high, evidence.p_adjusted
    changed = ((low > 0) | (high < 0)) & (p < alpha) & (np.abs(delta) >= floor)
    cases = {
        "unknown": np.isnan(low) | np.isnan(p),
        "equal": (low == 0) & (high == 0) & (delta == 0),
        "slower": changed & (delta > 0),
        "faster": changed,
        "within": np.maximum(np.abs(low), np.abs(high)) < floor,
    }
    words = ["~", "same", "slower", "faster", "same"]
    return [str(word) for word in np.select(list(cases.values()), words, "~")]
