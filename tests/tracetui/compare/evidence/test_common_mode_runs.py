"""What rows share is taken out by how they move together over steps; what is a row's own stays."""

import numpy as np
import pytest

from tests.bench.pairs import Cell, rates
from tracetui.analysis.frames.statistics import adjust_holm
from tracetui.compare.evidence.common_mode import _average_segments, estimate_residual_shift

GROUPS = np.array([0, 0, 0, 1, 1, 1])
ROWS = 16


def made(seed: int, own: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """Levels and steps of rows that each take part in two moments in their own way, in steps as in runs."""
    rng = np.random.default_rng(seed)
    part = rng.uniform(0.3, 2.0, (ROWS, 2))
    steps = np.einsum("ik,krt->irt", part, rng.normal(0, 0.1, (2, 6, 60))) + rng.normal(
        0, 0.02, (ROWS, 6, 60)
    )
    level = part @ rng.normal(0, 0.1, (2, 6)) + rng.normal(0, own, (ROWS, 6))
    return level, steps


def test_a_row_is_seen_below_moments_that_move_all_rows() -> None:
    for seed in range(20):
        level, steps = made(seed)
        level[5, GROUPS == 1] += np.log(1.3)
        actual = estimate_residual_shift(level, steps, GROUPS)
        assert actual.shift[5] == pytest.approx(np.log(1.3), abs=0.06)
        assert abs(actual.shift[5]) > 3.5 * actual.error[5]
        others = np.delete(actual.shift / actual.error, 5)
        assert np.abs(others).max() < 3.5


def test_what_lasts_tells_what_moves_runs() -> None:
    """Single steps scatter by what one set of rows shares; stretches of twelve and whole runs by another.

    Rows of the lasting kind move by up to 20 % between the sides: what is left of it is its tenth at most.
    """
    rng = np.random.default_rng(8)
    lasting, brief = rng.uniform(0.2, 2.0, (2, ROWS))
    state = np.repeat(rng.normal(0, 0.1, (6, 24)), 12, axis=1)
    steps = lasting[:, None, None] * state + brief[:, None, None] * rng.normal(0, 0.2, (6, 288))
    steps += rng.normal(0, 0.05, steps.shape)
    steps -= np.median(steps, axis=2, keepdims=True)
    level = np.outer(lasting, 0.1 * (GROUPS == 1)) + rng.normal(0, 0.001, (ROWS, 6))
    actual = estimate_residual_shift(level, steps, GROUPS)
    assert np.abs(actual.shift).max() < 0.02


def test_stretches_are_means_beside_their_run() -> None:
    """One row of two runs, 50 steps: 24 stretches of two, the last two steps left over; NaN is left out."""
    steps = np.arange(100.0).reshape(1, 2, 50)
    steps[0, 1, 7], steps[0, 1, 10:12] = np.nan, np.nan
    actual = _average_segments(steps)
    assert actual.shape == (1, 2, 25)
    np.testing.assert_allclose(actual[0, 0], np.arange(0.5, 50, 2) - 24.5)
    own = steps[0, 1][~np.isnan(steps[0, 1])].mean()
    assert actual[0, 1, 3] == pytest.approx(56 - own) and np.isnan(actual[0, 1, 5])
    assert actual[0, 1, 24] == pytest.approx(98.5 - own)
    np.testing.assert_array_equal(_average_segments(steps[:, :, :47]), steps[:, :, :47])


def test_a_side_of_one_run_may_take_part_in_what_is_shared_by_more() -> None:
    """By a fifth of it, beside a twentieth where both sides have repeats."""
    level, steps = made(4, own=1e-6)
    level[:] = np.outer(np.ones(ROWS), 0.5 * np.array([0, 0, 0, 1, 1, 1])) + 1e-6 * level
    one = [0, 1, 2, 3]
    alone = estimate_residual_shift(level[:, one], steps[:, one], np.array([0, 0, 0, 1]))
    scatter = 1.4826 * np.median(np.abs(steps[:, one]), axis=(1, 2))
    least = np.sqrt((0.2 * 0.5) ** 2 + (0.32 * scatter) ** 2)
    assert (alone.error > 0.99 * least).all() and (
        estimate_residual_shift(level, steps, GROUPS).error < alone.error / 2
    ).all()


def test_swapping_the_sides_swaps_the_signs() -> None:
    level, steps = made(3)
    there, back = (
        estimate_residual_shift(level, steps, GROUPS),
        estimate_residual_shift(level, steps, 1 - GROUPS),
    )
    np.testing.assert_allclose(there.shift, -back.shift, atol=1e-9)
    np.testing.assert_allclose(there.error, back.error, rtol=1e-6)


def test_a_side_of_one_run_may_have_been_in_another_state() -> None:
    """Beside three runs and one the error holds 0.32 of how the row scatters over its steps."""
    level, steps = made(4)
    one = [0, 1, 2, 3]
    actual = estimate_residual_shift(level[:, one], steps[:, one], np.array([0, 0, 0, 1]))
    scatter = 1.4826 * np.median(np.abs(steps[:, one]), axis=(1, 2))
    assert (actual.error > 0.32 * scatter).all()


def test_few_steps_tell_little_of_a_side_of_one_run() -> None:
    """300 tries: 9 % of equal runs differ where eight steps are taken to tell that well, as many find 2×."""
    actual = rates(Cell("tails", 40, 8, 0.5, 0.0, "pair, 4 aa"), 300)
    assert max(actual.wrong, actual.beside) <= 0.05 and actual.found >= 0.95


def test_others_beside_make_what_is_shared_less_sure() -> None:
    level, steps = made(5)
    quiet, busy = (
        estimate_residual_shift(level, steps, GROUPS, np.full(len(GROUPS), b)) for b in (False, True)
    )
    assert (busy.error > quiet.error).all()
    assert (np.abs(busy.shift - quiet.shift) < quiet.error / 3).all()


def test_a_side_that_alone_had_others_beside_it_is_sure_of_no_row() -> None:
    """Beside others each row takes up to 1.5 times more or less than the rest: 1.4 times tells nothing."""
    level, steps = made(5)
    level[0, GROUPS == 1] += np.log(1.4)
    beside = {"none": [], "one of each side": [2, 3], "all of b": [3, 4, 5], "all": range(6)}
    actual = {
        who: estimate_residual_shift(level, steps, GROUPS, np.isin(range(6), runs))
        for who, runs in beside.items()
    }
    far = {who: own.shift[0] / own.error[0] for who, own in actual.items()}
    assert far["none"] > far["all"] == far["one of each side"] > 2 > 1 > far["all of b"] > 0
    assert actual["all of b"].error.min() >= 0.98 * np.log(1.5)


def test_holms_correction_is_the_step_down_by_hand() -> None:
    """Sorted by p over weight: each times the weights that are left, never below the one before."""
    p, weight = np.array([0.01, np.nan, 0.04, 0.03]), np.array([1.0, 9.0, 2.0, 1.0])
    actual = adjust_holm(p, weight)
    assert actual[0] == pytest.approx(0.01 / 1 * 4)
    assert actual[2] == pytest.approx(max(0.04, 0.04 / 2 * 3))
    assert actual[3] == pytest.approx(max(actual[2], 0.03 * 1))
    assert np.isnan(actual[1])
