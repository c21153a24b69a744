"""Several runs a side: the run is the sample, so what happens to one run alone is no difference.

Each run gives each row one number: the logarithm of its time, the median over the steps that all runs have.
How these numbers spread among runs of the same thing is what a difference of the sides is measured by.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis.compare.shared_moments import Own, own_shift
from tracetui.analysis.statistics import (
    ALPHA,
    Evidence,
    Floats,
    benjamini_hochberg,
    cliffs_delta,
    holm,
)

BIG: Final = 0.01  # rows of this share of the time say whether all of them changed
ENOUGH: Final = 5  # rows that are read against each other
ALL: Final = 0.2  # of the level goes to the question whether all rows changed
LEAST: Final = 0.07  # the smallest weight of a row
LENT: Final = 3.0  # degrees of freedom that the other rows lend to one
FEW_RUNS: Final = 1.0  # by which the logarithm of a variance of one degree of freedom is too small, about
POWER: Final = 0.8
LONE: Final = 0.1  # spread of one run a side, which may be in another state from its start to its end
BUSY: Final = 0.7  # spread of runs beside which other programs had the processor: a factor of two


@dataclass(frozen=True, eq=False)
class Levels:
    """Rows × runs, in logarithms of ns; NaN where a run lacks the row."""

    time: Floats
    steps: Floats  # rows × runs × steps: distance of each step from its run's level
    weight: Floats  # rows: share of the time


@dataclass(frozen=True, eq=False)
class Judged:
    """The evidence between the sides, and what it rests on."""

    evidence: Evidence
    spread: Floats  # of each row: by what part identical runs differ, one standard deviation
    freed: bool  # whether rows were judged against the others of their run
    noise: float  # the typical spread, as a part
    time_noise: float  # that of times, which are not in use where rows are freed


def judge(
    times: Floats, groups: NDArray[np.int64], *, alpha: float = ALPHA, busy: NDArray[np.bool_] | None = None
) -> Judged:
    """Return the evidence from rows × runs × steps of time; `groups` says of each run: a (0), b (1), neither
    (2).

    A busy machine slows all rows of a run at once. Rows are therefore read against the others of their run;
    but not where all rows evidently changed, for then one that did not would seem to. That question is a test
    too: the rows have the rest of the level. A row's weight among the many tests is the root of its share of
    the time. `alpha` is the chance of error that is allowed; `busy` says beside which runs other programs
    had the processors.
    """
    crowded = busy is not None and busy.any()
    rows = levels(times)
    evidence, spread = between(rows.time, groups, alpha)
    noise = time_noise = _typical(spread, rows.weight)
    judged = np.asarray(~np.isnan(rows.time).any(axis=1))
    single = np.bincount(groups, minlength=2)[:2].min() == 1
    everything = _all_rows(rows, groups, judged, BUSY if crowded else LONE if single else 0.0)
    freed = bool(everything >= ALL * alpha)
    if freed:
        own = own_shift(rows.time[judged], rows.steps[judged], groups, busy)
        evidence = _of_own(evidence, judged, own, alpha)
        spread = spread.copy()
        spread[judged] = np.expm1(own.spread)
        noise = _typical(spread, rows.weight)
    adjusted = holm(evidence.p, np.sqrt(np.nan_to_num(rows.weight)).clip(LEAST))
    if not np.isnan(everything):
        adjusted = np.minimum(1.0, adjusted / (1 - ALL))
    return Judged(replace(evidence, p_adjusted=adjusted), spread, freed, noise, time_noise)


def _all_rows(rows: Levels, groups: NDArray[np.int64], judged: NDArray[np.bool_], doubt: float) -> float:
    """Return p of the middle of all rows that matter; NaN where too few rows are there to be compared.

    `doubt` is by what part a whole run may be off for another reason, one standard deviation.
    """
    from scipy.special import stdtr

    big = judged & (np.nan_to_num(rows.weight) >= BIG)
    if min(big.sum(), judged.sum()) < ENOUGH:
        return np.nan
    middle = np.median(rows.time[big] - rows.time[big].mean(axis=1, keepdims=True), axis=0)
    spread, freedom = _pooled(middle[None, :], groups)
    left, right = (middle[groups == g] for g in (0, 1))
    shift = abs(right.mean() - left.mean())
    if not shift or not (freedom[0] and spread[0] + doubt):
        return 0.0 if shift else 1.0
    whole = np.hypot(spread[0], doubt)
    error = whole * np.sqrt(1 / len(left) + 1 / len(right))
    sure = freedom[0] * (whole / max(spread[0], 1e-9)) ** 4  # the doubt itself is stated, not measured
    return float(2 * stdtr(sure, -shift / error))


def _of_own(evidence: Evidence, judged: NDArray[np.bool_], own: Own, alpha: float) -> Evidence:
    """Return the evidence with the changes that rows made on their own, around the middle of their times."""
    from scipy.special import stdtr, stdtrit

    middle = np.sqrt(evidence.median_a * evidence.median_b)[judged]
    reach = own.error * stdtrit(own.freedom, 1 - alpha / 2)
    figures = {
        "median_a": middle * np.exp(-own.shift / 2),
        "median_b": middle * np.exp(own.shift / 2),
        "p": 2 * stdtr(own.freedom, -np.abs(own.shift) / own.error),
    }
    shifts = (("delta", own.shift), ("low", own.shift - reach), ("high", own.shift + reach))
    figures |= {name: 2 * middle * np.sinh(shift / 2) for name, shift in shifts}
    out = {}
    for name, values in figures.items():
        out[name] = getattr(evidence, name).copy()
        out[name][judged] = values
    return replace(evidence, **out)


def levels(times: Floats) -> Levels:
    """Return one number for each row and run, on the steps that all runs have."""
    log = np.log(np.where(times > 0, times, np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row that a run lacks has no mean: it stays NaN
        course = _course(log)
        level = _medians(course)[:, None]
        off = log - course[:, None, :]
        middle = _medians(off)
        weight = np.exp(level[:, 0]) / np.nansum(np.exp(level))
    return Levels(level + middle, off - middle[:, :, None], weight)


def _medians(values: Floats) -> Floats:
    """Return the medians over the last axis without NaN; a look for any is far cheaper than to mask them."""
    last = values.ndim - 1
    return np.asarray((np.nanmedian if np.isnan(values).any() else np.median)(values, axis=last))


def _course(log: Floats) -> Floats:
    """Return rows × steps: the mean over the runs, freed of how slow the runs are that a step lacks."""
    if not np.isnan(log).any():
        return np.asarray(log.mean(axis=1))
    course = np.nanmean(log, axis=1)
    for _ in range(2):
        slow = _medians(log - course[:, None, :])
        slow -= np.nanmean(slow, axis=1, keepdims=True)
        course = np.nanmean(log - slow[:, :, None], axis=1)
    return np.asarray(course)


def between(values: Floats, groups: NDArray[np.int64], alpha: float = ALPHA) -> tuple[Evidence, Floats]:
    """Return Student's t-test with the spread within groups, ratios as ns around their middle, and the
    spread.
    """
    from scipy.special import stdtr, stdtrit

    a, b = (np.where(groups == g, values, np.nan) for g in (0, 1))
    n_a, n_b = int((groups == 0).sum()), int((groups == 1).sum())
    spread, freedom = _pooled(values, groups)
    mean_a, mean_b = np.nansum(a, axis=1) / n_a, np.nansum(b, axis=1) / n_b
    judged = ~np.isnan(values[:, groups < 2]).any(axis=1) & (freedom > 0)
    shift = np.where(judged, mean_b - mean_a, np.nan)
    error = spread * np.sqrt(1 / n_a + 1 / n_b)
    t = np.divide(np.abs(shift), error, out=np.where(shift == 0, 0.0, np.inf), where=error > 0)
    p = np.where(judged, 2 * stdtr(np.maximum(freedom, 1), -t), np.nan)
    reach = error * stdtrit(np.maximum(freedom, 1), 1 - alpha / 2)
    middle = 2 * np.exp((mean_a + mean_b) / 2)
    delta, low, high = (middle * np.sinh(x / 2) for x in (shift, shift - reach, shift + reach))
    counts = np.full(len(values), n_a), np.full(len(values), n_b)
    median_a, median_b = (np.where(judged, np.exp(mean), np.nan) for mean in (mean_a, mean_b))
    cliff = cliffs_delta(values[:, groups == 0], values[:, groups == 1])
    adjusted = benjamini_hochberg(p)
    evidence = Evidence(median_a, median_b, delta, low, high, p, adjusted, cliff, *counts)
    return evidence, np.where(judged, np.expm1(spread), np.nan)


def _pooled(values: Floats, groups: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return for each row the standard deviation within groups, and its degrees of freedom.

    Few runs tell a deviation badly, and one of many rows shows hardly any by luck: each is drawn a little
    towards what the rows have in common.
    """
    squares, freedom = np.zeros(len(values)), np.zeros(len(values))
    for group in np.unique(groups):
        members = values[:, groups == group]
        n = (~np.isnan(members)).sum(axis=1)
        mean = np.divide(np.nansum(members, axis=1), n, out=np.zeros(len(values)), where=n > 0)
        squares += np.nansum((members - mean[:, None]) ** 2, axis=1)
        freedom += np.maximum(n - 1, 0)
    variance = np.divide(squares, freedom, out=np.full(len(values), np.nan), where=freedom > 0)
    some = variance[variance > 0]
    if len(some) < ENOUGH:
        return np.sqrt(variance), freedom
    common = np.exp(np.log(some).mean() + FEW_RUNS / freedom.max())
    drawn = (LENT * common + freedom * variance) / (LENT + freedom)
    return np.sqrt(np.where(variance > 0, drawn, variance)), np.where(freedom > 0, freedom + LENT, 0)


def spread(times: Floats) -> float:
    """Return how far runs of the same lie apart (rows × runs × steps), as one standard deviation."""
    groups = np.zeros(times.shape[1], dtype=np.int64)
    rows = levels(times)
    return _typical(_pooled(rows.time, groups)[0], rows.weight)


def _typical(spread: Floats, weight: Floats) -> float:
    """Return the mean spread of the rows, weighted by their time; NaN where none is known."""
    usable = ~np.isnan(spread) & ~np.isnan(weight)
    return float(np.average(spread[usable], weights=weight[usable])) if usable.any() else np.nan


def needed(effect: float, spread: float, alpha: float, most: int = 50) -> int | None:
    """Return how many runs a side show an effect in four of five attempts; None: more than `most`."""
    from scipy.special import ndtri, stdtrit

    for n in range(2, most + 1):
        reached = abs(np.log1p(effect)) / (np.log1p(spread) * np.sqrt(2 / n)) if spread > 0 else np.inf
        if reached - ndtri(POWER) >= stdtrit(2 * n - 2, 1 - alpha / 2):
            return n
    return None


def middle(totals: Sequence[int]) -> int:
    """Return the place of the run in the middle, which represents its side where one run must."""
    return sorted(range(len(totals)), key=lambda i: (totals[i], i))[(len(totals) - 1) // 2]
