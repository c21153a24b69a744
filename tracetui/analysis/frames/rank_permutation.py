"""Test which rank is late: a permutation test over ranks and steps, from three steps on.

The lateness of a rank in a step is the log of its time over the median rank's. If no rank is special, the
ranks of each step can be exchanged: to be the latest of R ranks in all n steps has the chance R^(1 − n), so
more ranks and more steps both give evidence.

A state that a rank keeps over all steps cannot be exchanged step by step. So a late rank must also lie apart
from the means of the other ranks; of fewer than MIN_RANKS_APART ranks these are no reference, and it must be
later than its own steps vary.
"""

from typing import Final

import numpy as np

from tracetui.analysis.frames.ragged import Bools
from tracetui.analysis.frames.statistics import ALPHA, Floats, estimate_autocorrelation_time

MIN_STEPS: Final = 3
MIN_RANKS_APART: Final = 5
FEW_RANKS_SD: Final = 3.0  # states that last for some steps pass it in 1 of 20 jobs or fewer
MAX_REFERENCE_MAD: Final = 20.0  # from the median rank: ranks farther away are no reference for others
MIN_BLOCKS: Final = 6  # of two ranks: one is the latest in all of six by a chance of 3 %
DRAWS: Final = 999  # permutations
MAX_DRAWN_VALUES: Final = 8_000_000  # of all permutations, in large jobs
MIN_DRAWS: Final = 199
DETECTABLE_SHARES: Final = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def compute_late_p(times: Floats) -> Floats:
    """Return for each row of ranks × steps the chance that some rank is as late if none is special.

    NaN for a single rank, for fewer than MIN_STEPS steps, or with times of zero.
    """
    return compute_late_and_early_p(times)[0]


def compute_late_and_early_p(times: Floats) -> tuple[Floats, Floats]:
    """Return the chance of `compute_late_p`, and the same of being as early, from the same permutations."""
    if not _has_test(times):
        unknown = np.full(len(times), np.nan)
        return unknown, unknown
    lateness = compute_lateness(times)
    least_late, least_early = _compute_least_p(lateness), _compute_least_p(-lateness)
    if (least_late == 1).all() and (least_early == 1).all():
        return least_late, least_early  # whatever the permutations say
    latest, earliest = _draw_extreme_means(lateness)
    late, early = _compute_drawn_p(lateness, latest), _compute_drawn_p(-lateness, -earliest)
    return np.maximum(late, least_late), np.maximum(early, least_early)


def _has_test(times: Floats) -> bool:
    ranks, steps = times.shape
    return bool(ranks > 1 and steps >= MIN_STEPS and (times > 0).all())


def _compute_least_p(lateness: Floats) -> Floats:
    """Return for each rank what its p is at least, by how far it lies apart from the other ranks."""
    if len(lateness) >= MIN_RANKS_APART:
        return _compute_apart_p(lateness.mean(axis=1))
    return np.where(_exceeds_own_variation(lateness), 0.0, 1.0)


def _compute_drawn_p(lateness: Floats, latest: Floats) -> Floats:
    """Return p of each rank by the means of the latest rank in all permutations."""
    by_rank = lateness.mean(axis=1)
    tied = 1e-9 * np.abs(by_rank)  # sums in another order differ in their last digits
    as_late = len(latest) - np.searchsorted(np.sort(latest), by_rank - tied)
    p: Floats = (1 + as_late) / (len(latest) + 1)
    return p


def compute_lateness(times: Floats) -> Floats:
    """Return the log of each time over that of the median rank of its step."""
    logs = np.log(times)
    return np.asarray(logs - np.median(logs, axis=0))


def _draw_extreme_means(lateness: Floats) -> tuple[Floats, Floats]:
    """Return the means of the latest and earliest rank in permutations of the ranks within blocks of steps.

    Successive steps of one state are exchanged as a block.
    """
    steps = lateness.shape[1]
    length = np.ceil(estimate_autocorrelation_time(lateness).min())
    length = int(np.clip(length, 1, max(1, steps // MIN_BLOCKS)))
    blocks = np.add.reduceat(lateness, np.arange(0, steps, length), axis=1) / steps
    rng = np.random.default_rng(0)
    draws = int(np.clip(MAX_DRAWN_VALUES // blocks.size, MIN_DRAWS, DRAWS))
    means = (rng.permuted(blocks, axis=0).sum(axis=1) for _ in range(draws))
    latest, earliest = np.array([(mean.max(), mean.min()) for mean in means]).T
    return latest, earliest


def _exceeds_own_variation(lateness: Floats) -> Bools:
    """Return whether each rank is later than the others by FEW_RANKS_SD times the spread of its steps."""
    others = (lateness.sum(axis=0) - lateness) / (len(lateness) - 1)
    difference = lateness - others
    spread = np.sqrt(difference.var(axis=1, ddof=1).mean())
    return np.asarray(difference.mean(axis=1) >= FEW_RANKS_SD * spread)


def _compute_apart_p(by_rank: Floats) -> Floats:
    """Return p of Student's t of each mean among the others', corrected for the number of ranks."""
    from scipy.special import stdtr

    ranks = len(by_rank)
    off = np.abs(by_rank - np.median(by_rank))
    is_reference = off <= MAX_REFERENCE_MAD * np.median(off)
    count = is_reference.sum() - is_reference  # without the rank itself
    total = (by_rank * is_reference).sum() - by_rank * is_reference
    squares = (by_rank**2 * is_reference).sum() - by_rank**2 * is_reference
    mean = total / np.maximum(count, 1)
    variance = np.maximum(squares - count * mean**2, 0) / np.maximum(count - 1, 1)
    error = np.sqrt(variance * (1 + 1 / np.maximum(count, 1)))
    t = np.divide(by_rank - mean, error, out=np.where(by_rank > mean, np.inf, 0.0), where=error > 0)
    return np.asarray(np.minimum(1.0, ranks * stdtr(np.maximum(count - 1, 1), -t)))


def find_detectable_share(times: Floats) -> float | None:
    """Return the smallest of DETECTABLE_SHARES by which a typical rank would be late; None if none shows."""
    if not _has_test(times):
        return None
    typical = int(np.argsort(times.sum(axis=1))[len(times) // 2])
    low, high = 0, len(DETECTABLE_SHARES)
    while low < high:
        middle = (low + high) // 2
        slowed = times.copy()
        slowed[typical] *= 1 + DETECTABLE_SHARES[middle]
        is_apart = _compute_least_p(compute_lateness(slowed))[typical] < ALPHA
        if is_apart and compute_late_p(slowed)[typical] < ALPHA:
            high = middle
        else:
            low = middle + 1
    return DETECTABLE_SHARES[low] if low < len(DETECTABLE_SHARES) else None
