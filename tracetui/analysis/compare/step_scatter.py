"""How far the median of a row over its steps may be off: by what they scatter, and what they remember.

Two things tell the first: how far steps lie from the middle of their row, and how far each lies from what it
remembers of the one before. A few steps of a long memory hardly leave the place where they began, so the
first is nearly luck, while what is new in each step is as many draws as there are steps. Of many steps the
first says enough, and needs no assumption of how memory fades.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis import ragged
from tracetui.analysis.ragged import Ints
from tracetui.analysis.statistics import Floats

TO_SIGMA: Final = 1.4826  # of a median deviation
FAR: Final = 3.0  # deviations beyond which a step is a spike, which tells nothing of the memory
FEW: Final = 3  # steps of a row from which they say how it scatters
MOST_MEMORY: Final = 0.98  # autocorrelation of a step with the next
EFFICIENCY: Final = 0.37  # of a median deviation beside the standard one
LEAST_WORTH: Final = 4.0  # degrees of freedom of a few steps that remember each other
PRIOR: Final = 20.0  # most degrees of freedom that the other rows lend to one
NEW: Final = 48.0  # by how many steps of a row this is divided: the degrees of freedom of what is new in each
EACH: Final = 0.85  # degrees of freedom of one new move, beside a few that are left out
WIDER: Final = 3.0  # steps, of which the middle distance may be too small by as much again


@dataclass(frozen=True, eq=False)
class Scatter:
    """How far steps lie from the middle of their row, row by row."""

    off: Floats
    row: Ints
    step: Ints
    middle: Floats  # of each row: the middle distance
    steps: int

    @cached_property
    def number(self) -> Ints:
        """Return how many steps each row has."""
        return np.bincount(self.row, minlength=len(self.middle))

    @cached_property
    def _moves(self) -> tuple[Ints, Floats, Floats, Floats]:
        """Return of each row how many steps follow one, neither being a spike, and the sums of the squares of
        the latter, of the former, and of their products.
        """
        rows = len(self.middle)
        far = FAR * TO_SIGMA * (1 + WIDER / np.maximum(self.number, 1))
        near = np.abs(self.off) <= (far * self.middle)[self.row]
        off = self.off - ragged.means(self.off[near], self.row[near], rows)[self.row]
        first = np.flatnonzero(self.row[1:] == self.row[:-1])
        row, move = self.row[first], np.abs(off[first + 1] - off[first])
        usual = ragged.medians(move, row, np.bincount(row, minlength=rows))
        kept = near[first] & near[first + 1] & (move <= (far * usual)[row])
        before, after, row = off[first[kept]], off[first[kept] + 1], row[kept]
        products = after**2, before**2, after * before
        squares, earlier, both = (np.asarray(np.bincount(row, x, rows), dtype=np.float64) for x in products)
        return np.asarray(np.bincount(row, minlength=rows), dtype=np.int64), squares, earlier, both

    def news(self, memory: float) -> tuple[Floats, Floats]:
        """Return each row's variance as what is new in its steps tells it, and its degrees of freedom."""
        number, after, before, both = self._moves
        told = number >= FEW
        square = (after - 2 * memory * both + memory**2 * before) / np.maximum(number, 1)
        expected = _of_each(self.number, lambda n: _news_variance(memory, n))
        freedom = np.minimum(EACH * number, NEW / np.maximum(self.number, 1))
        return np.where(told, np.maximum(square, 0) / expected, 0.0), np.where(told, freedom, 0.0)


def inside(scatter: Scatter, memory: float, sure: bool = True) -> tuple[Floats, Floats]:
    """Return the variance of each row's median over its steps, and its degrees of freedom.

    Rows of one run live through the same moments, so their memory is one; and a row that was lucky to scatter
    little in few steps is not believed: its variance is drawn towards that of the others. What is new in the
    steps is told only where one is `sure` of what they remember.
    """
    n = scatter.number
    mean = _of_each(n, lambda k: _mean_variance(memory, k))
    many = np.maximum(n, 2)
    seen = (TO_SIGMA * (1 + 1 / many) * scatter.middle) ** 2 / np.maximum(
        1e-3, (1 - mean) * many / (many - 1)
    )
    worth = EFFICIENCY * many * (1 - memory**2) / (1 + memory**2)
    new, freedom = scatter.news(memory) if sure else (np.zeros(len(n)), np.zeros(len(n)))
    both = (worth * seen + freedom * new) / (worth + freedom)
    worth = np.maximum(LEAST_WORTH, worth + freedom)
    variance, lent = _moderated(both, worth, np.asarray(n >= FEW))
    return variance * mean * (1 + 0.57 * (1 - memory)), worth + lent


def _of_each(number: Ints, figure: Callable[[int], float]) -> Floats:
    """Return a figure of each row's number of steps; NaN for one or none."""
    lengths, place = np.unique(number, return_inverse=True)
    return np.array([figure(int(n)) if n > 1 else np.nan for n in lengths])[place]


def _mean_variance(memory: float, n: int) -> float:
    """Return the variance of the mean of n steps of an AR(1) series of variance one."""
    lags = np.arange(1, n)
    return float((1 + 2 * ((1 - lags / n) * memory**lags).sum()) / n)


def _news_variance(memory: float, n: int) -> float:
    """Return the mean square of what n steps of such a series do not remember of the one before, where the
    steps are taken from their own mean.
    """
    mean = _mean_variance(memory, n)
    beside = (1 - memory) * n * mean - (1 - memory**n) / n  # of the sum of what is new with the mean
    return float(1 - memory**2 + (1 - memory) ** 2 * mean - 2 * (1 - memory) * beside / (n - 1))


def _moderated(variance: Floats, freedom: Floats, usable: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Return variances drawn towards their middle, as limma does, and the freedom that this lends."""
    from scipy.special import digamma, polygamma

    some = np.asarray(usable & (variance > 0))
    if some.sum() < FEW:
        return variance, 0.0
    half = freedom[some] / 2
    logs = np.log(variance[some]) - digamma(half) + np.log(half)
    beyond = float(np.var(logs, ddof=1) - polygamma(1, half).mean())
    lent = PRIOR if beyond <= 0 else float(min(PRIOR, 2 * (0.5 + 1 / beyond)))
    common = np.exp(np.median(logs))
    drawn = (lent * common + freedom * variance) / (lent + freedom)
    return np.where(usable, np.where(variance > 0, drawn, variance), np.nan), lent
