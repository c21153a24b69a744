"""Find where the level of a series of runs changes: binary segmentation by a robust CUSUM.

Each value counts as at most OUTLIER_SDS from the running median around it, so one odd run is no change. The
best split of a segment is judged by its z: the distance of both means over its standard error, from the
spread within both sides, and finally also from their autocorrelation. Its chance is that of the largest z of
a segment of this length without a change, from simulations. A split stays if it holds between its neighbours
at the end, as in E-divisive (Matteson and James 2014) and Apache Otava.

Runs may be of several states of their host, each with a level and a spread of its own. A change moves all of
them alike: its size is the estimate of weighted least squares beside free levels (Quandt 1958).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
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
RANKS_TELL_P: Final = 5e-5  # chance of runs of separate ranks, from which these may tell: among 20 rows
_ROUNDING: Final = 1e-9  # of the largest value, of constant series
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
    is_under_one_load: bool = False  # by runs under the same load before and after it

    @property
    def sides(self) -> tuple[slice, slice]:
        """Return the places of the runs before and after it."""
        return slice(self.begin, self.at), slice(self.at, self.end)


@dataclass(frozen=True, eq=False)
class StateSeries:
    """Values of runs whose host was in some states, each with a level and a spread of its own."""

    values: Floats
    state: Ints  # of each run: 0, 1 …; -1 tells nothing
    spread: Floats  # of each state, relative to that of all

    @classmethod
    def of(cls, values: Floats, state: Ints | None = None) -> "StateSeries":
        """Return a series, of one state by default, with its outliers clipped within each state.

        Spreads are moderated, as if each state had MIN_RUNS runs of the typical one.
        """
        state = np.zeros(len(values), dtype=np.int64) if state is None else state
        clipped = values.copy()
        runs_of_states = [np.flatnonzero(state == code) for code in range(int(state.max()) + 1)]
        for runs in runs_of_states:
            clipped[runs] = clip_outliers(values[runs])
        counts = np.array([len(runs) for runs in runs_of_states])
        squares = np.array([_estimate_step_sd(values[runs]) ** 2 for runs in runs_of_states])
        typical = float(counts @ squares) / counts.sum() or 1.0
        return cls(clipped, state, np.sqrt((counts * squares / typical + MIN_RUNS) / (counts + MIN_RUNS)))

    @property
    def masks(self) -> Floats:
        """Return states × runs: 1 where the run is of the state."""
        return np.asarray(self.state == np.arange(len(self.spread))[:, None], dtype=np.float64)

    def cut(self, begin: int, end: int) -> "StateSeries":
        """Return the series of the runs from begin to before end."""
        return replace(self, values=self.values[begin:end], state=self.state[begin:end])

    def count_levels(self) -> int:
        """Count the states of which there is a run: as many levels are estimated."""
        return len(np.unique(self.state[self.state >= 0]))

    def compute_residuals(self) -> Floats:
        """Return the values less the mean of their state, over its spread; 0 of runs that tell nothing."""
        masks = self.masks
        levels = masks @ self.values / np.maximum(masks.sum(axis=1), 1)
        return np.asarray(((self.values - levels[:, None]) / self.spread[:, None] * masks).sum(axis=0))

    def compute_steps(self, places: Ints) -> tuple[Floats, Floats]:
        """Return the step at each place that all states share, by weighted least squares.

        Also return its precision, states × places. Both are 0 where too few runs tell of it, as fewer than
        MIN_RUNS on either side would.
        """
        masks = self.masks
        count, total = masks.sum(axis=1, keepdims=True), masks @ self.values
        before = masks.cumsum(axis=1)[:, places - 1]
        sums = (masks * self.values).cumsum(axis=1)[:, places - 1]
        after = count - before
        steps = (total[:, None] - sums) / np.maximum(after, 1) - sums / np.maximum(before, 1)
        weight = before * after / np.maximum(count, 1)
        is_enough = weight.sum(axis=0) >= MIN_RUNS / 2
        precision = np.where(is_enough, weight / self.spread[:, None] ** 2, 0.0)
        return (precision * steps).sum(axis=0) / np.where(is_enough, precision.sum(axis=0), 1.0), precision


def find_change_points(
    values: Floats, starts: Ints | None = None, alpha: float = ALPHA, state: Ints | None = None
) -> list[ChangePoint]:
    """Return the changes of a series, in order; none at all in fewer than two times MIN_RUNS.

    `starts` are the places at which a change may be: the first runs of each commit, for instance. `state` is
    that of the host in each run, -1 of runs that tell nothing: each state has a level of its own.
    """
    n = len(values)
    if n < 2 * MIN_RUNS:
        return []
    places = np.arange(1, n) if starts is None else np.unique(starts)
    series = StateSeries.of(values, state)
    splits: list[int] = []
    todo = [(0, n)]
    while todo:
        begin, end = todo.pop()
        change = _find_split(series, begin, end, places)
        if change is not None and change.p < alpha:
            splits.append(change.at)
            todo += [(begin, change.at), (change.at, end)]
    return _retest(series, sorted(splits), places, alpha)


def _retest(series: StateSeries, splits: list[int], places: Ints, alpha: float) -> list[ChangePoint]:
    """Return the splits that hold between their neighbours, at their best places; the weakest leave first.

    Only now is it known how much the runs hang together: before, each change not yet found looked like it.
    """
    while splits:
        ends = [0, *splits, len(series.values)]
        widened = _estimate_widening(series, ends)
        changes = [_find_split(series, ends[i], ends[i + 2], places, widened) for i in range(len(splits))]
        p = [1.0 if change is None else change.p for change in changes]
        worst = int(np.argmax(p))
        if p[worst] < alpha:
            return [change for change in changes if change is not None]
        del splits[worst]
    return []


def _estimate_widening(series: StateSeries, ends: Sequence[int]) -> float:
    """Return the factor by which errors of means grow because neighbouring runs are alike, at least 1."""
    parts = [series.cut(a, b) for a, b in pairwise(ends)]
    residuals = np.concatenate([part.compute_residuals()[part.state >= 0] for part in parts])
    means = sum(part.count_levels() for part in parts)
    n, squares = len(residuals), float(residuals @ residuals)
    if not squares:
        return 1.0
    correlation = float(residuals[1:] @ residuals[:-1]) / squares + means / n  # less by each mean
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
    series: StateSeries, begin: int, end: int, places: Ints, widened: float = 1.0
) -> ChangePoint | None:
    """Return the best split of a segment; None if it is too short, or constant."""
    candidates = places[(places >= begin + MIN_RUNS) & (places <= end - MIN_RUNS)] - begin
    if not len(candidates):
        return None
    segment = series.cut(begin, end)
    size, precision = segment.compute_steps(candidates)
    score = np.abs(size) * np.sqrt(precision.sum(axis=0))
    best = int(score.argmax())
    if not score[best] > 0:
        return None
    at, step, time = int(candidates[best]), float(size[best]), np.arange(end - begin)
    residuals = replace(segment, values=segment.values - step * (time >= at)).compute_residuals()
    share = precision[:, best] / precision[:, best].sum()  # of each state in what the step rests on
    count = segment.masks.sum(axis=1)
    squares = segment.masks @ residuals**2 / np.maximum(count - 1 - share, 1)
    sd = widened * max(float(np.sqrt(share @ squares)), _ROUNDING * float(np.abs(series.values).max()))
    if not sd > 0:
        return None
    z = score / sd
    close = candidates[z**2 >= z[best] ** 2 - CHI_SQUARE_95]
    return ChangePoint(
        begin + at, begin + int(close.min()), begin + int(close.max()), begin, end, step,
        abs(step) / float(z[best]), compute_p(float(z[best]), int(count[share > 0].sum())),
        _drifts(segment, float(residuals @ residuals)),
    )  # fmt: skip


def _drifts(segment: StateSeries, squares: float) -> bool:
    """Return whether a line fits better than a step that leaves these squares."""
    time = np.arange(len(segment.values), dtype=np.float64)
    line, values = replace(segment, values=time).compute_residuals(), segment.compute_residuals()
    return float(values @ values) - float(line @ values) ** 2 / float(line @ line) < squares


def confirm_by_ranks(
    values: Floats, change: ChangePoint, state: Ints | None = None, widening: Floats | None = None
) -> ChangePoint:
    """Return a change with its chance by the normal scores of its runs, if that is larger; 1 if no discovery.

    Its null distribution is the same for runs of any distribution, also one of long tails or two modes. Ranks
    of the few runs between a change and one of the state tell nothing: there the chance is that of the z of
    all runs, outliers as they are, if it is as small as theirs must be. Errors are widened by a factor for
    each state.
    """
    series = StateSeries.of(values, state)
    segment = replace(series, values=values).cut(change.begin, change.end)
    at = change.at - change.begin
    sides = [
        _Sides(segment.values[mask], int(mask[:at].sum()), spread)
        for mask, spread in zip(segment.masks > 0, series.spread, strict=True)
    ]
    weights = np.array([side.weight / side.spread**2 for side in sides])
    factor = float(np.sqrt(weights @ widening**2 / weights.sum())) if widening is not None else 1.0
    change = replace(change, error=factor * change.error)
    sides = [side for side in sides if side.weight]
    runs = np.flatnonzero(series.state >= 0)
    turns = runs[1:][np.diff(series.state[runs]) != 0]
    is_near_turn = bool((np.abs(turns - change.at) < 2 * MIN_RUNS).any())
    separate = [replace(side, values=np.arange(len(side.values), dtype=np.float64)) for side in sides]
    if is_near_turn and _compute_rank_p(separate) > RANKS_TELL_P:
        size, error, n = _compare_sides(sides)
        p = max(change.p, compute_p(abs(size) / (factor * error), n))
        return replace(change, p=p if p < RANKS_TELL_P else 1.0)
    return replace(change, p=max(change.p, _compute_rank_p(sides)))


@dataclass(frozen=True, eq=False)
class _Sides:
    """The runs of one state around a change."""

    values: Floats
    before: int  # of the runs
    spread: float

    @property
    def weight(self) -> float:
        """Return the number of runs by which the difference of both sides is as precise as one value."""
        n = len(self.values)
        return self.before * (n - self.before) / n if n else 0.0


def _compute_rank_p(sides: Sequence[_Sides]) -> float:
    """Return the chance of the step of normal scores within each state."""
    scored = []
    for side in sides:
        scores = _compute_normal_scores(len(side.values))[np.argsort(np.argsort(side.values))]
        scored.append(replace(side, values=side.spread * scores))
    size, error, n = _compare_sides(scored)
    return _extrapolate(abs(size) / error, n, RANK_TAIL, RANK_TAIL_P)


@cache
def _compute_normal_scores(n: int) -> Floats:
    """Return the normal scores of so many ranks."""
    return np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])


def _compare_sides(sides: Sequence[_Sides]) -> tuple[float, float, int]:
    """Return the step that all states share, its error, and the number of runs."""
    steps, weights, squares, n = [], [], 0.0, 0
    for side in sides:
        before, after = side.values[: side.before], side.values[side.before :]
        steps.append(float(after.mean() - before.mean()))
        weights.append(side.weight / side.spread**2)
        squares += (
            float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
            / side.spread**2
        )
        n += len(side.values)
    size = float(np.average(steps, weights=weights))
    return size, float(np.sqrt(squares / (n - 2) / sum(weights))), n


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


def add_further(by_row: Sequence[list[ChangePoint]], changes: Sequence[Sequence[ChangePoint]]) -> None:
    """Add the changes of each row that are none of those it has."""
    for row, row_changes in zip(by_row, changes, strict=True):
        row += [change for change in row_changes if not is_near_any(change, row)]


def is_near_any(change: ChangePoint, others: Sequence[ChangePoint]) -> bool:
    """Return whether the change may be where one of the others is, or lies within MIN_RUNS of it."""
    return any(
        abs(change.at - other.at) < MIN_RUNS or change.earliest - 1 <= other.at <= change.latest + 1
        for other in others
    )


def remove_context(values: Floats, context: Floats) -> Floats:
    """Return series × runs in log time, as they would be at the median context, in tokens.

    Each series follows a power of the context: by L1 regression of the differences of neighbouring runs,
    which a change of level hardly moves. It stays as it is where a context is unknown, or few of them differ.
    """
    place = np.log(np.maximum(context, 1))
    steps = np.diff(place)
    differs = np.flatnonzero(np.abs(steps) > 0)
    if len(differs) < 2 * MIN_RUNS or np.isnan(context).any():
        return values
    slopes = np.diff(values)[..., differs] / steps[differs]
    order = slopes.argsort(axis=-1)
    weight = np.abs(steps[differs])[order].cumsum(axis=-1)
    middle = (weight < weight[..., -1:] / 2).sum(axis=-1, keepdims=True)
    slope = np.take_along_axis(slopes, np.take_along_axis(order, middle, axis=-1), axis=-1)
    return np.asarray(values - slope * (place - np.median(place)))


def compute_shift(values: Floats, before: Ints, after: Ints) -> tuple[float, float]:
    """Return the difference of two medians, and its standard error by the median deviation."""
    a, b = (part[~np.isnan(part)] for part in (values[before], values[after]))
    if not len(a) or not len(b):
        return 0.0, np.inf
    size = float(np.median(b) - np.median(a))
    spread = [1.4826 * float(np.median(np.abs(part - np.median(part)))) for part in (a, b)]
    return size, float(1.25 * np.sqrt(spread[0] ** 2 / len(a) + spread[1] ** 2 / len(b)))
