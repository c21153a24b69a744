"""What the rows of a run share, taken out: how far each row moved against the others of its run.

A machine has moments that slow some rows more than others: a lower clock, a full memory bus, a cold cache.
Which rows move together, and by how much, shows within a run, where the code is the same: among stretches of
steps, since what moves whole runs lasts, while single steps scatter by much that does not. What a run's rows
make of these moments is fitted to the levels of its rows; what is left of a row is its own. Rows that
evidently changed are left out of the fit.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis.statistics import FEWEST, Floats

STRETCHES: Final = 24  # of a run, whose means show which rows move together
MOMENTS: Final = 3  # ways in which rows move together, beside all by the same
ROWS_EACH: Final = 4  # rows that it takes to tell one more such way
FAR: Final = 3.5  # standard errors from which a row is none that tells what is shared
MOST_FAR: Final = 4  # of so many rows one at most
SPIKE: Final = 4.0  # deviations to which a step's distance is cut
TO_SIGMA: Final = 1.4826  # of a median deviation
LENT: Final = 2.0  # degrees of freedom that the other rows lend to one
LEAST: Final = 0.12  # of a row's spread over steps: what its runs differ by at least
LEAST_BUSY: Final = 0.3  # where other programs had the processor
ALONE: Final = 0.32  # the same, of a side that is one run, which may have been in another state throughout
FEW: Final = 7.0  # steps, whose scatter tells as little of such a side as one degree of freedom
DOUBT: Final = 0.05  # of what all rows share, by which a row may take part in it more or less than it did
DOUBT_BUSY: Final = 0.6  # where other programs had the processor
DOUBT_ALONE: Final = 0.2  # of a side that is one run
APART: Final = 0.4  # by which a row may move by itself on a side that alone had others on the processor
DOUBT_FREEDOM: Final = 5.0
LEAST_STEPS: Final = 1e-3  # spread over steps that is told from none
PASSES: Final = 4
MOST_LEVER: Final = 0.95  # share that a row has in the fit of itself


@dataclass(frozen=True, eq=False)
class Own:
    """How far each row moved on its own between two sides, as logarithms."""

    shift: Floats
    error: Floats  # standard error
    freedom: Floats
    spread: Floats  # of runs of the same: one standard deviation


def own_shift(
    level: Floats, steps: Floats, groups: NDArray[np.int64], busy: NDArray[np.bool_] | None = None
) -> Own:
    """Return how far rows moved from runs of group 0 to those of group 1, beside what all of them share.

    `level` is rows × runs, `steps` rows × runs × steps of distances from it; NaN is a step left out. `busy`
    says beside which runs other programs had the processor.
    """
    busy = np.zeros(len(groups), dtype=bool) if busy is None else busy
    over_steps = _over_steps(steps)
    scale = over_steps if over_steps is not None else np.ones(len(level))
    ways = _ways(steps, scale) if over_steps is not None else np.ones((len(level), 1))
    least = (LEAST_BUSY if busy.any() else LEAST) if over_steps is not None else LEAST_STEPS
    variance, freedom = _variance(level, groups, ways, scale, least)
    left, right = (level[:, groups == g] for g in (0, 1))
    each = 1 / left.shape[1] + 1 / right.shape[1]
    between = variance * each
    single = (left.shape[1] == 1) + (right.shape[1] == 1)
    alone = single * (ALONE * scale) ** 2 if over_steps is not None else np.zeros(len(level))
    change = right.mean(axis=1) - left.mean(axis=1)
    shift, shared, lever = _beside(change, ways, between + alone)
    part = DOUBT_BUSY if busy.any() else DOUBT_ALONE if single else DOUBT
    apart = sum(busy[groups == g].all() for g in (0, 1)) if not busy.all() else 0
    doubt = part**2 * float(np.mean(shared**2)) + apart * APART**2
    whole = between + alone + doubt
    known = (steps.shape[2] / FEW) ** 2
    unsure = between**2 / freedom + alone**2 / known + doubt**2 / DOUBT_FREEDOM
    return Own(shift, np.sqrt(whole * lever), whole**2 / unsure, np.sqrt(variance))


def _over_steps(steps: Floats) -> Floats | None:
    """Return how far each row scatters over the steps of its runs; None where there are too few steps."""
    return None if steps.shape[2] < FEWEST else _scatter(steps)


def _scatter(steps: Floats) -> Floats:
    """Return the spread of each row over steps or stretches, as its middle distance tells it."""
    middle = np.nanmedian if np.isnan(steps).any() else np.median
    return np.asarray(np.fmax(TO_SIGMA * middle(np.abs(steps), axis=(1, 2)), LEAST_STEPS))


def _stretches(steps: Floats) -> Floats:
    """Return the means of rows × runs over stretches of equally many steps, beside the mean of their run."""
    rows, runs, count = steps.shape
    each = count // STRETCHES
    if each < 2:
        return steps
    parts = steps[:, :, : each * (count // each)].reshape(rows, runs, -1, each)
    known = ~np.isnan(parts)
    number = known.sum(axis=3)
    sums = np.where(known, parts, 0.0).sum(axis=3)
    means = np.divide(sums, number, out=np.full(sums.shape, np.nan), where=number > 0)
    of_run = sums.sum(axis=2, keepdims=True) / np.maximum(number.sum(axis=2, keepdims=True), 1)
    return np.asarray(means - of_run)


def _ways(steps: Floats, scale: Floats) -> Floats:
    """Return rows × ways: all by the same, and the main ways in which rows move together over steps."""
    from scipy.linalg import eigh

    rows = len(steps)
    ways = min(MOMENTS, (rows - 1) // ROWS_EACH)
    if ways < 1:
        return np.ones((rows, 1))
    means = _stretches(steps)
    over = scale if means.shape[2] == steps.shape[2] else _scatter(means)
    off = np.clip(np.nan_to_num(means / over[:, None, None]), -SPIKE, SPIKE).reshape(rows, -1)
    vectors = eigh(off @ off.T, subset_by_index=(rows - ways, rows - 1))[1] * over[:, None]
    return np.hstack([np.ones((rows, 1)), vectors / np.abs(vectors).mean(axis=0)])


def _variance(
    level: Floats, groups: NDArray[np.int64], ways: Floats, scale: Floats, least: float
) -> tuple[Floats, float]:
    """Return the variance of each row's own level among runs of the same, and its degrees of freedom.

    Few runs tell it badly, so it is drawn towards what the rows have in common, each by how it scatters,
    which is not taken below `least` of that scatter.
    """
    from scipy.special import digamma

    inside, freedom = _inside(level, groups)
    variance = scale**2
    for _ in range(PASSES):
        shared, lever = fit(ways, variance, inside)
        own = inside - shared
        seen = (own**2).sum(axis=1) / freedom / np.maximum(1 - lever, 1 - MOST_LEVER)
        some = seen[seen > 0] / scale[seen > 0] ** 2
        low = np.log(freedom / 2) - digamma(freedom / 2)  # by which the logarithm of a variance is too small
        typical = np.exp(np.median(np.log(some)) + low) if len(some) else 0.0
        common = max(typical, least**2)
        variance = (LENT * common * scale**2 + freedom * seen) / (LENT + freedom)
    return variance, freedom + LENT


def _inside(level: Floats, groups: NDArray[np.int64]) -> tuple[Floats, int]:
    """Return the levels freed of the mean of their group, and how many of them are free of each other."""
    out = level.copy()
    for group in np.unique(groups):
        members = groups == group
        out[:, members] -= level[:, members].mean(axis=1, keepdims=True)
    return out, len(groups) - len(np.unique(groups))


def fit(
    ways: Floats, variance: Floats, moved: Floats, used: NDArray[np.bool_] | None = None
) -> tuple[Floats, Floats]:
    """Return what the used rows tell of what is shared in each column, and each row's part in its own fit.

    Of a row that is not used it is minus the variance of its fit, as a part of its own variance.
    """
    weighted = ways * ((1.0 if used is None else used) / variance)[:, None]
    inverse = np.linalg.pinv(weighted.T @ ways)
    part = ((ways @ inverse) * ways).sum(axis=1) / variance
    return ways @ (inverse @ (weighted.T @ moved)), part if used is None else np.where(used, part, -part)


def _beside(change: Floats, ways: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Return each row's own change, what is shared, and by what the fit widens the variance of the first."""
    shared, part = fit(ways, variance, change, unchanged(change, ways, variance))
    part = np.minimum(part, MOST_LEVER)
    own = (change - shared) / np.where(part > 0, 1 - part, 1.0)
    return own, shared, np.where(part > 0, 1 / (1 - part), 1 - part)


def unchanged(change: Floats, ways: Floats, variance: Floats) -> NDArray[np.bool_]:
    """Tell which rows did not evidently change by themselves, and so tell what is shared."""
    used = np.ones(len(change), dtype=bool)
    for _ in range(len(change) // MOST_FAR):
        shared, part = fit(ways, variance, change, used)
        own = np.sqrt(variance * (1 - np.minimum(part, MOST_LEVER)))
        far = np.where(used, np.abs(change - shared) / own, 0.0)
        if far.max() < FAR:
            break
        used[far.argmax()] = False
    return used
