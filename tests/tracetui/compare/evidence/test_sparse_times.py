"""Evidence from sparse tables of steps: against numpy and scipy on dense ones, and simulated AR(1) series."""

import warnings

import numpy as np
import pytest
from scipy import stats

from tests.bench.pairs import remembering
from tracetui.analysis.frames.statistics import Floats
from tracetui.compare.evidence import pair_test
from tracetui.compare.evidence.pair_test import StepDeviations, estimate_median_variance, judge_pair
from tracetui.compare.pairing.step_times import SparseTimes
from tracetui.compare.run_sides import NoiseFloor


def table(seed: int, density: float, *, ties: bool = False, gaps: bool = False) -> tuple[Floats, Floats]:
    """Rows × steps of two runs, of which a part is no time, and some steps are excluded."""
    rng = np.random.default_rng(seed)
    rows, steps = int(rng.integers(1, 20)), int(rng.choice([1, 2, 4, 7, 30]))
    a = rng.gamma(2, 1, (rows, steps)) + 0.1
    b = a * np.exp(rng.normal(0, 0.2, (rows, steps)))
    if ties:
        a, b = np.round(3 * a), np.round(3 * b)
    for side in (a, b):
        side[rng.random(side.shape) > density] = 0
        if gaps:
            side[:, rng.random(steps) < 0.2] = np.nan
    return a, b


def deviations(series: Floats) -> StepDeviations:
    """The deviations of rows × steps from their medians, as the test of a pair has them."""
    centred = series - np.median(series, axis=1, keepdims=True)
    rows, steps = series.shape
    row, step = np.repeat(np.arange(rows), steps), np.tile(np.arange(steps), rows)
    return StepDeviations(centred.ravel(), row, step, np.median(np.abs(centred), axis=1), steps)


@pytest.mark.parametrize("density", [0.1, 0.6, 1.0])
def test_medians_and_effect_sizes_of_sparse_tables_are_those_of_dense_ones(density: float) -> None:
    for seed in range(12):
        a, b = table(seed, density, ties=seed % 2 == 0, gaps=seed % 3 == 0)
        actual = judge_pair(a, b, NoiseFloor())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of rows that are nowhere
            np.testing.assert_array_equal(actual.median_a, np.nanmedian(a, axis=1))
            np.testing.assert_array_equal(actual.median_b, np.nanmedian(b, axis=1))
            np.testing.assert_array_equal(actual.delta, np.nanmedian(b - a, axis=1))
        np.testing.assert_array_equal(actual.n_a, ((a > 0) & (b > 0)).sum(axis=1))
        x, y = np.nan_to_num(a), np.nan_to_num(b)
        steps = a.shape[1]
        u = [stats.mannwhitneyu(right, left).statistic for left, right in zip(x, y, strict=True)]
        np.testing.assert_allclose(actual.cliff, 2 * np.array(u) / steps**2 - 1, atol=1e-12)


@pytest.mark.parametrize("autocorrelation", [0.0, 0.5, 0.9])
def test_autocorrelation_of_simulated_ar1_series_is_recovered(autocorrelation: float) -> None:
    """Of 300 rows of 512 steps, whose bias of (1 + 3ρ) / n is below 0.01."""
    series = remembering(np.random.default_rng(3), 300, 512, autocorrelation)
    actual = pair_test._estimate_autocorrelation(deviations(series))
    assert actual == pytest.approx(autocorrelation, abs=0.02)


def test_autocorrelation_of_one_row_is_rarely_taken_for_less_than_it_is() -> None:
    """200 rows of 64 steps, each by itself: the upper end of a two-sided 95 % interval."""
    series = remembering(np.random.default_rng(3), 200, 64, 0.5)
    found = [pair_test._estimate_autocorrelation(deviations(row[None])) for row in series]
    assert np.mean(np.array(found) < 0.5) <= 0.06 and np.mean(found) < 0.8


def test_a_row_that_never_moves_has_no_autocorrelation() -> None:
    assert pair_test._estimate_autocorrelation(deviations(np.ones((3, 8)))) == 0.0


@pytest.mark.parametrize(("autocorrelation", "steps"), [(0.0, 30), (0.5, 64), (0.9, 256)])
def test_variance_of_a_median_is_that_of_many_simulated_medians(autocorrelation: float, steps: int) -> None:
    """The medians of 4,000 series vary as each series by itself is estimated to; the larger of two estimates
    is up to a half more.
    """
    series = remembering(np.random.default_rng(5), 4000, steps, autocorrelation)
    variance, _ = estimate_median_variance(deviations(series), autocorrelation)
    assert 0.9 <= np.median(variance) / np.median(series, axis=1).var() <= 1.5


def test_eight_steps_that_stay_near_their_start_do_not_seem_steady() -> None:
    """4,000 series with a memory of 0.95 vary around their medians by a tenth of their variance."""
    series = remembering(np.random.default_rng(5), 4000, 8, 0.95)
    variance, _ = estimate_median_variance(deviations(series), 0.95)
    assert np.median(variance) >= 0.9 * np.median(series, axis=1).var()


@pytest.mark.parametrize("autocorrelation", [0.0, 0.8])
def test_a_spike_hardly_moves_the_variance(autocorrelation: float) -> None:
    series = remembering(np.random.default_rng(2), 1000, 16, autocorrelation)
    spiked = series.copy()
    spiked[:, 5] += 50
    plain, actual = (
        estimate_median_variance(deviations(x), autocorrelation)[0].mean() for x in (series, spiked)
    )
    assert actual == pytest.approx(plain, rel=0.5)


def test_a_step_that_is_not_selected_is_one_of_nan() -> None:
    a, b = table(5, 0.6)
    selected = np.arange(a.shape[1]) % 3 > 0
    one = pair_test.judge_sparse_pair(SparseTimes.from_dense(a, b).select_steps(selected), NoiseFloor())
    other = judge_pair(np.where(selected, a, np.nan), np.where(selected, b, np.nan), NoiseFloor())
    for field in ("median_a", "median_b", "delta", "low", "high", "p", "cliff", "n_a"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
