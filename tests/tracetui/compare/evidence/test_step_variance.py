"""What steps scatter by, as what is new in each tells it: beside whole matrices, and beside many series."""

import numpy as np
import pytest

from tests.bench.pairs import Cell, rates, remembering
from tracetui.analysis.frames.statistics import Floats
from tracetui.compare.evidence import pair_test
from tracetui.compare.evidence.pair_test import StepDeviations


def scatter(off: Floats) -> StepDeviations:
    off = off - np.median(off, axis=1, keepdims=True)
    rows, steps = off.shape
    row, step = np.repeat(np.arange(rows), steps), np.tile(np.arange(steps), rows)
    return StepDeviations(off.ravel(), row, step, np.median(np.abs(off), axis=1), steps)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("steps", [4, 8, 64])
def test_what_is_new_has_the_variance_that_the_whole_matrix_gives(memory: float, steps: int) -> None:
    place = np.arange(steps)
    covariance = memory ** np.abs(place[:, None] - place)
    centred = np.eye(steps) - 1 / steps
    follows = np.eye(steps)[1:] - memory * np.eye(steps)[:-1]
    whole = follows @ centred @ covariance @ centred.T @ follows.T
    assert pair_test._compute_innovation_variance(memory, steps) == pytest.approx(
        np.trace(whole) / (steps - 1)
    )


@pytest.mark.parametrize(("memory", "steps"), [(0.0, 16), (0.8, 8), (0.95, 8), (0.95, 64)])
def test_series_of_variance_one_are_told_as_such(memory: float, steps: int) -> None:
    """Up to a tenth, as spikes are looked for; the degrees of freedom are those of how far rows differ."""
    of = scatter(remembering(np.random.default_rng(1), 4000, steps, memory))
    variance, freedom = of.estimate_innovation_variance(memory)
    actual = variance[freedom > 0]
    assert len(actual) >= 0.99 * len(variance) and np.mean(actual) == pytest.approx(1, abs=0.13)
    assert 2 * actual.mean() ** 2 / actual.var() >= 0.75 * np.median(freedom)


def test_a_spike_is_not_new() -> None:
    off = remembering(np.random.default_rng(2), 1000, 16, 0.8)
    spiked = off.copy()
    spiked[:, 5] += 50
    alone, beside = (scatter(x).estimate_innovation_variance(0.8)[0].mean() for x in (off, spiked))
    assert beside == pytest.approx(alone, rel=0.1)


def test_eight_steps_of_a_long_memory_find_a_doubled_row() -> None:
    """60 tries; how far eight such steps lie from their middle alone finds 95 % and fewer of them."""
    actual = rates(Cell("plain", 40, 8, 0.95, 0.0), 60)
    assert actual.found >= 0.98 and max(actual.wrong, actual.beside) <= 0.05 + 2 * 0.028
