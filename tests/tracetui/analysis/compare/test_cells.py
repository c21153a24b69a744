"""Evidence from few cells of a table, against the same figures computed over the whole table."""

import warnings

import numpy as np
import pytest
from scipy import stats

from tracetui.analysis.compare import one_pair
from tracetui.analysis.compare.cells import Cells
from tracetui.analysis.compare.one_pair import judge
from tracetui.analysis.ragged import Floats
from tracetui.look import Floor


def table(seed: int, density: float, *, whole: bool, gaps: bool) -> tuple[Floats, Floats]:
    """Rows × steps of two runs, of which a part is no time, and some steps are left out."""
    rng = np.random.default_rng(seed)
    rows, steps = int(rng.integers(1, 20)), int(rng.choice([1, 2, 4, 7, 30]))
    a = rng.gamma(2, 1, (rows, steps)) + 0.1
    b = a * np.exp(rng.normal(0, 0.2, (rows, steps)))
    if whole:  # many are equal
        a, b = np.round(3 * a), np.round(3 * b)
    for side in (a, b):
        side[rng.random(side.shape) > density] = 0
        if gaps:
            side[:, rng.random(steps) < 0.2] = np.nan
    return a, b


def plain_memory(off: Floats) -> tuple[float, float]:
    """How much a step is like the next, as it shows and as it may be, over the whole table."""
    n = int((~np.isnan(off)).any(axis=0).sum())
    if n < 4:
        return 0.0, 0.0
    scatter = np.nanmedian(np.abs(off), axis=1, keepdims=True)
    near = np.where(np.abs(off) <= 3 * 1.4826 * scatter, off, np.nan)
    near = near - np.nanmean(near, axis=1, keepdims=True)
    squares = np.nanmean(near**2, axis=1)
    squares[~(squares > 0)] = np.nan
    whole = off.shape[1]
    first, second = (
        np.nanmean(near[:, lag:] * near[:, :-lag], axis=1) * (whole - lag) / whole / squares + 1 / n
        for lag in (1, 2)
    )
    if np.isnan(first).all():
        return 0.0, 0.0
    rows = (~np.isnan(first)).sum()
    error = max(np.nanstd(first), 1 / np.sqrt(n)) / np.sqrt(rows)
    freed = (np.nanmean(first) + 2 * error) / max(0.3, 1 - 4 / n)
    decay = np.nanmean(second) / np.nanmean(first) if np.nanmean(first) > 3 * error else 0.0
    memory = min(max(freed, 0.0 if np.isnan(decay) else decay, 0.0), 0.98)
    return min(max(np.nanmean(first), 0.0), 0.98), 1 - (1 - memory) * (1 - 0.8 * memory**2)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("density", [0.1, 0.6, 1.0])
def test_the_evidence_is_that_of_the_whole_table(seed: int, density: float) -> None:
    a, b = table(seed, density, whole=seed % 2 == 0, gaps=seed % 3 == 0)
    found = judge(a, b, Floor())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows that are nowhere
        np.testing.assert_array_equal(found.median_a, np.nanmedian(a, axis=1))
        np.testing.assert_array_equal(found.median_b, np.nanmedian(b, axis=1))
        np.testing.assert_array_equal(found.delta, np.nanmedian(b - a, axis=1))
        np.testing.assert_array_equal(found.n_a, ((a > 0) & (b > 0)).sum(axis=1))
    both = np.nan_to_num(np.concatenate([a, b], axis=1))
    steps = a.shape[1]
    u = stats.rankdata(both, axis=1)[:, steps:].sum(axis=1) - steps * (steps + 1) / 2
    np.testing.assert_array_equal(found.cliff, 2 * u / steps**2 - 1)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("density", [0.1, 0.6, 1.0])
def test_the_memory_of_the_steps_is_that_of_the_whole_table(
    seed: int, density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, float]] = []
    told = one_pair._memory

    def noted(scatter: one_pair.Scatter) -> tuple[float, float]:
        seen.append(told(scatter))
        return seen[-1]

    monkeypatch.setattr(one_pair, "_memory", noted)
    a, b = table(seed, density, whole=False, gaps=seed % 3 == 0)
    judge(a, b, Floor())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        log = np.log(np.where(b > 0, b, np.nan)) - np.log(np.where(a > 0, a, np.nan))
        expected = plain_memory(log - np.nanmedian(log, axis=1, keepdims=True))
    assert seen == ([pytest.approx(expected, rel=1e-9)] if a.shape[1] > 2 else [])


def test_a_step_that_is_left_out_is_one_of_which_nothing_is_known() -> None:
    a, b = table(5, 0.6, whole=False, gaps=False)
    kept = np.arange(a.shape[1]) % 3 > 0
    one, _ = one_pair.judge_cells(Cells.of(a, b).only(kept), Floor())
    other = judge(np.where(kept, a, np.nan), np.where(kept, b, np.nan), Floor())
    for figure in ("median_a", "median_b", "delta", "low", "high", "p", "cliff", "n_a"):
        np.testing.assert_array_equal(getattr(one, figure), getattr(other, figure))
