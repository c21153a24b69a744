"""Find where the level of a series of runs changes: binary segmentation by a robust CUSUM.

Each value counts as at most OUTLIER_SDS from the running median around it, so one odd run is no change. The
best split of a segment is judged by its z: the distance of both means over its standard error, from the
spread within both sides, and finally also from their autocorrelation. Its chance is that of the largest z of
a segment of this length without a change, from simulations. A split stays if it holds between its neighbours
at the end, as in E-divisive (Matteson and James 2014) and Apache Otava.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis.frames.statistics import Floats

Ints = NDArray[np.int64]

MIN_RUNS: Final = 4  # on either side of a change
OUTLIER_SDS: Final = 2.5
ALPHA: Final = 0.001  # chance of a change in a series without one, before other rows are considered
TAIL_P: Final = 0.1  # chance from which the tail is known
# (runs, distance that the largest z of Gaussian runs has with TAIL_P, rate of its tail): 2,000 simulations
# each; tests/tracetui/history/test_change_points.py repeats some
NULL_TAIL: Final = (
    (8, 3.07, 0.54), (12, 5.25, 0.464), (16, 5.48, 0.443), (24, 6.75, 0.425), (32, 6.73, 0.452),
    (64, 7.6, 0.449), (128, 7.99, 0.452), (256, 8.56, 0.393),
)  # fmt: skip
RANK_TAIL_P: Final = 0.001
# the same of the normal scores of ranks with RANK_TAIL_P, 400,000 simulations each: few runs have no large z
RANK_TAIL: Final = (
    (16, 13.7, 1.18), (20, 14.5, 0.7), (24, 15.17, 0.655), (32, 15.85, 0.568), (64, 16.69, 0.555),
    (256, 17.95, 0.504),
)  # fmt: skip
_MAD_TO_SD: Final = 1.4826
CHI_SQUARE_95: Final = 3.84  # of one degree of freedom
MAX_AUTOCORRELATION: Final = 0.8


@dataclass(frozen=True)
class ChangePoint:
    """A change of level before the run `at`: sizes in the unit of the values."""

    at: int
    earliest: int  # runs before which the change may be as well, at 95 %
    latest: int
    begin: int  # of the segment before it, and the end of the one after it
    end: int
    size: float
    error: float  # standard error of the size
    p: float
    is_drift: bool  # a line through both segments fits better than a step
    is_under_one_load: bool = False  # found among runs under one load of the host

    @property
    def sides(self) -> tuple[slice, slice]:
        """Return the places of the runs before and after it."""
        return slice(self.begin, self.at), slice(self.at, self.end)

    def place(self, runs: Ints, count: int) -> "ChangePoint":
        """Return a change found in some of so many runs, at its place among all."""
        at, earliest, latest, begin = (
            int(runs[place]) if place else 0 for place in (self.at, self.earliest, self.latest, self.begin)
        )
        end = count if self.end == len(runs) else int(runs[self.end])
        return replace(
            self, at=at, earliest=earliest, latest=latest, begin=begin, end=end, is_under_one_load=True
        )


def find_change_points(values: Floats, starts: Ints | None = None, alpha: float = ALPHA) -> list[ChangePoint]:
    """Return the changes of a series, in order; none at all in fewer than two times MIN_RUNS.

    `starts` are the places at which a change may be: the first runs of each commit, for instance.
    """
    n = len(values)
    if n < 2 * MIN_RUNS:
        return []
    places = np.arange(1, n) if starts is None else np.unique(starts)
    clipped = clip_outliers(values)
    splits: list[int] = []
    todo = [(0, n)]
    while todo:
        begin, end = todo.pop()
        change = _find_split(clipped, begin, end, places)
        if change is not None and change.p < alpha:
            splits.append(change.at)
            todo += [(begin, change.at), (change.at, end)]
    return _retest(clipped, sorted(splits), places, alpha)


def _retest(values: Floats, splits: list[int], places: Ints, alpha: float) -> list[ChangePoint]:
    """Return the splits that hold between their neighbours, at their best places; the weakest leave first.

    Only now is it known how much the runs hang together: before, each change not yet found looked like it.
    """
    while splits:
        ends = [0, *splits, len(values)]
        widened = _estimate_widening(values, ends)
        changes = [_find_split(values, ends[i], ends[i + 2], places, widened) for i in range(len(splits))]
        p = [1.0 if change is None else change.p for change in changes]
        worst = int(np.argmax(p))
        if p[worst] < alpha:
            return [change for change in changes if change is not None]
        del splits[worst]
    return []


def _estimate_widening(values: Floats, ends: Sequence[int]) -> float:
    """Return the factor by which errors of means grow because neighbouring runs are alike, at least 1."""
    residuals = np.concatenate([values[a:b] - values[a:b].mean() for a, b in pairwise(ends)])
    n, squares = len(residuals), float(residuals @ residuals)
    if not squares:
        return 1.0
    correlation = float(residuals[1:] @ residuals[:-1]) / squares + (len(ends) - 1) / n  # less by each mean
    correlation = min(MAX_AUTOCORRELATION, max(0.0, correlation - 1 / np.sqrt(n)))
    return float(np.sqrt((1 + correlation) / (1 - correlation)))


def clip_outliers(values: Floats) -> Floats:
    """Return the values with those far from the running median of five drawn towards it."""
    padded = np.pad(values, 2, mode="edge")
    padded[:2], padded[-2:] = values[1:3][::-1], values[-3:-1][::-1]
    local = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=-1)
    sd = _estimate_step_sd(values)
    return np.clip(values, local - OUTLIER_SDS * sd, local + OUTLIER_SDS * sd)


def _estimate_step_sd(values: Floats) -> float:
    """Return the spread of single runs by the differences of neighbours: a change of level hardly counts."""
    steps = np.abs(np.diff(values))
    return float(_MAD_TO_SD * np.median(steps) / np.sqrt(2)) or float(steps.max())


def _find_split(
    values: Floats, begin: int, end: int, places: Ints, widened: float = 1.0
) -> ChangePoint | None:
    """Return the best split of a segment; None if it is too short, or constant."""
    n = end - begin
    candidates = places[(places >= begin + MIN_RUNS) & (places <= end - MIN_RUNS)] - begin
    if not len(candidates):
        return None
    segment = values[begin:end]
    sums = np.cumsum(segment)[candidates - 1]
    size = (segment.sum() - sums) / (n - candidates) - sums / candidates
    score = np.abs(size) * np.sqrt(candidates * (n - candidates) / n)
    best = int(score.argmax())
    at = int(candidates[best])
    residuals = segment - np.where(np.arange(n) < at, segment[:at].mean(), segment[at:].mean())
    sd = widened * _estimate_spread(residuals, values)
    if not sd > 0:
        return None
    z = score / sd
    close = candidates[z**2 >= z[best] ** 2 - CHI_SQUARE_95]
    slope = np.polyfit(np.arange(n), segment, 1)
    drifts = float(((segment - np.polyval(slope, np.arange(n))) ** 2).sum()) < float((residuals**2).sum())
    error = sd * np.sqrt(n / (at * (n - at)))
    return ChangePoint(
        begin + at, begin + int(close.min()), begin + int(close.max()), begin, end,
        float(size[best]), float(error), compute_p(float(z[best]), n), drifts,
    )  # fmt: skip


def confirm_by_ranks(values: Floats, change: ChangePoint) -> ChangePoint:
    """Return a change with its chance by the normal scores of its runs, if that is larger; 1 if no discovery.

    Its null distribution is the same for runs of any distribution, also one of long tails or two modes.
    """
    n, at = change.end - change.begin, change.at - change.begin
    order = np.argsort(np.argsort(values[change.begin : change.end]))
    scores = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])[order]
    before, after = scores[:at], scores[at:]
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    error = np.sqrt(squares / (n - 2) * n / (at * (n - at)))
    z = abs(float(after.mean() - before.mean())) / float(error)
    return replace(change, p=max(change.p, _extrapolate(z, n, RANK_TAIL, RANK_TAIL_P)))


def _estimate_spread(residuals: Floats, values: Floats) -> float:
    """Return the standard deviation within both sides; of constant ones what rounding leaves."""
    plain = float(np.sqrt((residuals**2).sum() / max(1, len(residuals) - 2)))
    return max(plain, 1e-9 * float(np.abs(values).max()))


def compute_p(z: float, n: int) -> float:
    """Return the chance that the largest z of n runs without a change is at least this, up to TAIL_P.

    From there on it falls as that of Student's t, by the rate that simulations have.
    """
    return _extrapolate(z, n, NULL_TAIL, TAIL_P)


def _extrapolate(z: float, n: int, tail: Sequence[tuple[int, float, float]], anchor_p: float) -> float:
    """Return the chance of a z by a tail whose anchors have the chance anchor_p; 1 before them."""
    lengths, anchors, rates = zip(*tail, strict=True)
    anchor, rate = (float(np.interp(np.log(n), np.log(lengths), values)) for values in (anchors, rates))
    distance = measure_distance(z, n) - anchor
    return float(anchor_p * np.exp(-rate * distance)) if distance > 0 else 1.0


def measure_distance(z: float, n: int) -> float:
    """Return a z of n runs on the scale on which the chance of larger ones falls at a steady rate."""
    return float((n - 2) * np.log1p(z * z / (n - 2)))


def select_discoveries(
    changes: Sequence[Sequence[ChangePoint]], alpha: float = ALPHA
) -> list[list[ChangePoint]]:
    """Return the changes of many rows of which a share of alpha is expected to be false (Benjamini-Hochberg).

    A row without a change counts as one that has none.
    """
    p = sorted(change.p for row in changes for change in row)
    tests = sum(max(1, len(row)) for row in changes)
    passing = [chance for rank, chance in enumerate(p, 1) if chance <= alpha * rank / tests]
    limit = max(passing, default=0.0)
    return [[change for change in row if change.p <= limit] for row in changes]
