"""One run a side: what the steps of a pair say, beside how far runs of the same thing lie apart.

Nothing inside a pair tells the run-to-run spread, so it comes from outside: a floor, which is known or
assumed. The steps add their own uncertainty. Each row has one number, the logarithm of its ratio, the median
over the steps; steps of one run follow each other, and what that costs is told by all rows together.
"""

from bisect import bisect_left
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis import ragged
from tracetui.analysis.compare import shared_steps
from tracetui.analysis.compare.cells import Cells
from tracetui.analysis.compare.shared_moments import ALONE
from tracetui.analysis.compare.step_scatter import FAR, FEW, MOST_MEMORY, TO_SIGMA, Scatter, inside
from tracetui.analysis.ragged import Ints
from tracetui.analysis.statistics import FEWEST, LEVEL, Evidence, Floats, holm
from tracetui.look import Floor

MOMENT: Final = 0.2  # spread of all that runs in one moment, where there are too few steps to see it
LEAST: Final = 0.07  # the smallest weight of a row
DOUBT: Final = 0.8  # by which a long memory may be longer than so few steps show
MOST_FREEDOM: Final = 1e6
WHOLE: Final = 0.2  # of the level goes to the question whether the whole changed
ENOUGH: Final = 8  # rows, from which the middle one is one that did not change by itself
BEYOND: Final = 1.3  # by which rows that move together may lie nearer by luck
BEYOND_ALONE: Final = 1.15  # the same of rows that are freed of what they share
FARTHEST: Final = 1.3  # standard errors, up to which the distance of a row from the middle one counts
USUAL: Final = 0.688  # mean square of normal distances that count so far
MEMORIES: Final = (
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.92,
    0.94,
    0.96,
    0.97,
    MOST_MEMORY,
)


def judge(a: Floats, b: Floats, floor: Floor) -> Evidence:
    """Return the evidence of each row of rows × steps, or of rows × one sum; NaN is a step left out."""
    return judge_cells(Cells.of(a, b), floor)[0]


def judge_cells(cells: Cells, floor: Floor) -> tuple[Evidence, NDArray[np.bool_]]:
    """Return the evidence of each row, and which rows are told by what they did beside the others."""
    evidence, told = _of_rows(cells, floor), np.zeros(cells.rows, dtype=bool)
    beside = shared_steps.freed(cells)
    if beside is not None:
        rows, own = beside
        evidence, told = shared_steps.surer(evidence, rows, _of_rows(own, floor, BEYOND_ALONE))
    weight = np.nan_to_num(evidence.median_a + evidence.median_b)
    weight = np.sqrt(weight / max(weight.sum(), 1e-300)).clip(LEAST)
    adjusted = np.minimum(1.0, holm(evidence.p, weight) / (1 - WHOLE if cells.rows > 1 else 1))
    return replace(evidence, p_adjusted=adjusted, cliff=cells.cliffs_delta()), told


def _of_rows(cells: Cells, floor: Floor, beyond: float = BEYOND) -> Evidence:
    """Return the evidence of each row for itself, not yet as one of many.

    `beyond` is the factor by which rows may lie nearer to each other by luck.
    """
    both = np.asarray((cells.a > 0) & (cells.b > 0))
    log = np.log(cells.b[both]) - np.log(cells.a[both])
    row, step, rows = cells.row[both], cells.step[both], cells.rows
    seen, size = np.bincount(row, minlength=rows), _sizes(cells)
    middles = ragged.medians(cells.a, cells.row, size[0]), ragged.medians(cells.b, cells.row, size[1])
    delta = ragged.medians(cells.b - cells.a, cells.row, size[2])
    center = ragged.medians(log, row, seen)
    off = log - center[row]
    scatter = ragged.medians(np.abs(off), row, seen)
    state = _state(scatter) if cells.steps >= FEWEST else np.zeros(rows)
    shift = np.where(2 * seen >= size[0], center, np.nan)
    degrees, error, own = _settled(shift, Scatter(off, row, step, scatter, cells.steps), floor, state, beyond)
    low, high = _interval(shift, error, degrees, middles, delta, own)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(shift == 0, 0.0, np.abs(shift) / error)
    p = _p(t, degrees)
    return Evidence(*middles, delta, low, high, p, p, np.full(rows, np.nan), seen, seen)


def _settled(
    shift: Floats, scatter: Scatter, floor: Floor, state: Floats, beyond: float
) -> tuple[Floats, Floats, Floats]:
    """Return degrees of freedom and standard deviation of the shifts, and the part that the steps have in it.

    A memory longer than the steps is not seen among them, but it moves the rows apart. Most rows of a pair
    can be taken to have changed as the middle one, so the memory is the shortest at which the shifts lie no
    wider than told; where it would be longer than any, the rows did change, each by its own.
    """
    known = ~np.isnan(shift)
    beside = np.abs(shift - np.median(shift[known])) if known.any() else shift

    def judged(memory: float, sure: bool = True) -> tuple[Floats, Floats, Floats]:
        own, freedom = inside(scatter, memory, sure)
        return *_error(own, freedom, floor, state), own

    def fits(memory: float) -> bool:
        degrees, error, own = judged(memory)
        return _usual(beyond * beside[known], error[known], degrees[known], own[known])

    if scatter.steps < FEW:
        own = np.zeros(len(shift))
        return *_error(own, np.ones(len(shift)), floor, state), own
    seen, doubted = _memory(scatter)
    if known.sum() < ENOUGH:
        return judged(doubted, sure=False)
    memories = [seen, *(m for m in MEMORIES if m > seen)]
    return judged(memories[bisect_left(memories[:-1], True, key=fits)])


def _usual(beside: Floats, error: Floats, degrees: Floats, own: Floats) -> bool:
    """Tell whether the rows lie as near as they should.

    Each row counts by the part that the steps have in its error, as a memory shows only there, and none by
    more than a usual distance: up to four in ten may have changed.
    """
    from scipy.special import ndtri, stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(beside == 0, 0.0, beside / error)
        weight = np.nan_to_num(own / error**2)
    distance = np.minimum(-ndtri(stdtr(degrees, -t).clip(1e-300)), FARTHEST)
    return bool((weight * distance**2).sum() <= USUAL * weight.sum())


def _sizes(cells: Cells) -> tuple[Ints, Ints, Ints]:
    """Return of each row how many steps count for a, for b, and for both."""
    out = [np.bincount(cells.row[np.isnan(side)], minlength=cells.rows) for side in (cells.a, cells.b)]
    return cells.size - out[0], cells.size - out[1], cells.size - out[0] - out[1]


def _state(scatter: Floats) -> Floats:
    """Return the variance of rows between two runs of which each may be in another state throughout."""
    return np.asarray(np.nan_to_num(ALONE * TO_SIGMA * scatter) ** 2)


def _error(own: Floats, freedom: Floats, floor: Floor, state: Floats) -> tuple[Floats, Floats]:
    """Return degrees of freedom and standard deviation of a shift: that of the steps and that of two runs."""
    between = 2 * floor.spread**2
    error = own + between + state
    with np.errstate(divide="ignore", invalid="ignore"):
        unsure = own**2 / np.maximum(freedom, 1) + between**2 / floor.freedom
        degrees = np.where(unsure > 0, error**2 / unsure, MOST_FREEDOM).clip(1, MOST_FREEDOM)
    return degrees, np.sqrt(error)


def _p(t: Floats, degrees: Floats) -> Floats:
    from scipy.special import stdtr

    return np.asarray(2 * stdtr(degrees, -t))


def _interval(
    shift: Floats,
    error: Floats,
    degrees: Floats,
    middles: tuple[Floats, Floats],
    delta: Floats,
    own: Floats,
) -> tuple[Floats, Floats]:
    """Return the 95 % interval of the difference, in ns; none around what is equal to the nanosecond."""
    from scipy.special import stdtrit

    equal = (shift == 0) & (own == 0)
    reach = np.where(equal, 0.0, error * stdtrit(degrees, (1 + LEVEL) / 2))
    scale = 2 * np.sqrt(middles[0] * middles[1])
    low, high = (delta + scale * (np.sinh((shift + s * reach) / 2) - np.sinh(shift / 2)) for s in (-1, 1))
    return np.asarray(low), np.asarray(high)


def _memory(scatter: Scatter) -> tuple[float, float]:
    """Return the autocorrelation of a step with the next, over all rows: as it shows, and what it may be,
    freed of its bias in few steps.
    """
    n = int((np.bincount(scatter.step) > 0).sum())
    if n < FEW + 1:
        return 0.0, 0.0
    usual = np.abs(scatter.off) <= FAR * TO_SIGMA * scatter.middle[scatter.row]
    near, row, step = scatter.off[usual], scatter.row[usual], scatter.step[usual]
    near = near - ragged.means(near, row, len(scatter.middle))[row]
    shape = len(scatter.middle), scatter.steps
    first, second = (_lagged(near, row, step, shape, lag) + 1 / n for lag in (1, 2))
    if np.isnan(first).all():
        return 0.0, 0.0
    rows = max(1, int((~np.isnan(first)).sum()))
    error = max(float(np.nanstd(first)), 1 / np.sqrt(n)) / np.sqrt(rows)
    seen = float(np.nanmean(first))
    freed = (seen + 2 * error) / max(0.3, 1 - 4 / n)
    decay = _mean(second) / seen if seen > 3 * error else 0.0
    memory = float(np.clip(max(freed, decay), 0.0, MOST_MEMORY))
    return float(np.clip(seen, 0.0, MOST_MEMORY)), 1 - (1 - memory) * (1 - DOUBT * memory**2)


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan


def _lagged(near: Floats, row: Ints, step: Ints, shape: tuple[int, int], lag: int) -> Floats:
    """Return each row's autocorrelation at a lag, with the bias of few steps in it; NaN for a constant."""
    (rows, steps), products, of_row = shape, [], []
    for behind in range(1, lag + 1):  # between a step and the one asked for stand few others
        pairs = np.flatnonzero((row[behind:] == row[:-behind]) & (step[behind:] - step[:-behind] == lag))
        products.append(near[pairs] * near[pairs + behind])
        of_row.append(row[pairs])
    mean = ragged.means(np.concatenate(products), np.concatenate(of_row), rows) * (steps - lag) / steps
    squares = ragged.means(near**2, row, rows)
    return np.asarray(np.divide(mean, squares, out=np.full(rows, np.nan), where=squares > 0))
