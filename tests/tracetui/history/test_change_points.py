"""Change points: where planted ones are found, what is none, and that the stated chances are right."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from tests.conftest import shared
from tracetui.analysis.frames.statistics import Floats
from tracetui.history import change_points
from tracetui.history.change_points import confirm_by_ranks, find_change_points, select_discoveries

F1_OF_SILENCE = 0.653  # nothing found at all
LEAST_F1 = 0.75


def noisy(seed: int, levels: list[float], runs: int = 15, sd: float = 0.02) -> Floats:
    """Runs at each level, one after the other."""
    return np.repeat(levels, runs) + np.random.default_rng(seed).normal(0, sd, runs * len(levels))


@pytest.mark.parametrize("seed", range(20))
def test_planted_changes_are_found_where_they_are(seed: int) -> None:
    changes = find_change_points(noisy(seed, [1.0, 1.1, 1.1, 1.02]))
    assert [abs(c.at - at) <= 1 for c, at in zip(changes, (15, 45), strict=True)] == [True, True]
    assert changes[0].size == pytest.approx(0.1, abs=4 * changes[0].error)
    assert changes[0].earliest <= changes[0].at <= changes[0].latest


def test_series_without_a_change_have_one_as_rarely_as_stated() -> None:
    counts = [len(find_change_points(noisy(seed, [1.0], runs=60))) for seed in range(400)]
    assert sum(map(bool, counts)) <= 10  # 4 expected at 1 %; more than 10 in one of 300 tries


def test_one_odd_run_is_no_change() -> None:
    values = noisy(1, [1.0], runs=40)
    values[20] = 3.0
    values[31] = 0.4
    assert find_change_points(values) == []


def test_runs_that_hang_together_are_not_taken_for_changes() -> None:
    rng, false = np.random.default_rng(2), 0
    for _ in range(100):
        values = np.zeros(80)
        for i in range(1, 80):
            values[i] = 0.5 * values[i - 1] + rng.normal()
        false += bool(find_change_points(values))
    assert false <= 10  # without the correction more than half


def test_drift_is_called_one() -> None:
    drift = np.linspace(1, 1.3, 60) + np.random.default_rng(3).normal(0, 0.01, 60)
    changes = find_change_points(drift)
    assert sum(change.is_drift for change in changes) >= len(changes) - 1 >= 1  # all but that at an end
    assert not find_change_points(noisy(4, [1.0, 1.3]))[0].is_drift


def test_change_is_only_between_repeats() -> None:
    starts = np.arange(5, 60, 5)
    changes = find_change_points(noisy(5, [1.0, 1.1], runs=28)[:56], starts)
    assert [change.at for change in changes] in ([25], [30])


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 40])
def test_short_or_constant_series_have_no_change(values: list[float]) -> None:
    assert find_change_points(np.array(values)) == []


def test_constant_levels_have_a_change() -> None:
    assert [c.at for c in find_change_points(np.repeat([1.0, 2.0], 10))] == [10]


def test_many_rows_have_few_false_changes() -> None:
    rows = [find_change_points(noisy(1000 + seed, [1.0], runs=60), alpha=0.05) for seed in range(100)]
    assert sum(map(len, select_discoveries(rows))) <= 1
    rows[0] = find_change_points(noisy(7, [1.0, 1.1], runs=30))
    assert len(select_discoveries(rows)[0]) == 1


def test_chance_by_ranks_is_right_for_long_tails_and_two_modes() -> None:
    rng, p = np.random.default_rng(4), []
    tails = [rng.standard_t(1.5, 60) for _ in range(200)]
    modes = [np.where(rng.random(60) < 0.3, 1.0, 0.0) + rng.normal(0, 0.01, 60) for _ in range(200)]
    for values in tails + modes:
        change = change_points._find_split(
            change_points.StateSeries(values, np.zeros(60, int), np.ones(1)), 0, 60, np.arange(1, 60)
        )
        assert change is not None
        confirmed = confirm_by_ranks(values, change)
        assert confirmed.p >= change.p
        p.append(confirmed.p)
    assert sum(chance < 0.01 for chance in p) <= 10  # 4 expected
    changed = find_change_points(noisy(3, [1.0, 1.1]))[0]
    assert confirm_by_ranks(noisy(3, [1.0, 1.1]), changed).p < 1e-3


def test_step_beside_levels_of_states_is_that_of_weighted_least_squares() -> None:
    rng = np.random.default_rng(6)
    state = np.where(rng.random(60) < 0.4, 1, 0)
    values = 3.0 * state + 0.5 * (np.arange(60) >= 33) + rng.normal(0, np.where(state, 0.3, 0.1))
    series = change_points.StateSeries(values, state, np.array([1.0, 3.0]))
    size, precision = series.compute_steps(np.arange(4, 57))
    for place, step, weight in zip(range(4, 57), size, precision.sum(axis=0), strict=True):
        design = (
            np.column_stack([state == 0, state == 1, np.arange(60) >= place]) / series.spread[state][:, None]
        )
        covariance = np.linalg.inv(design.T @ design)
        solved = covariance @ design.T @ (values / series.spread[state])
        np.testing.assert_allclose([step, 1 / weight], [solved[2], covariance[2, 2]])


def test_change_is_found_beside_larger_ones_of_the_load() -> None:
    """The load comes and goes; a run that tells nothing has another level."""
    hits = alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        state = np.repeat([0, 1, 0, 1], [14, 9, 12, 15])
        values = 0.6 * state + rng.normal(0, np.where(state, 0.04, 0.02))
        state[20], values[20] = -1, 5.0
        alarms += bool(find_change_points(values, state=state))
        changes = find_change_points(values + 0.1 * (np.arange(50) >= 26), state=state)
        near = [change for change in changes if abs(change.at - 26) <= 1]
        hits += any(abs(change.size - 0.1) < 3 * change.error for change in near)
    assert hits >= 36 and alarms <= 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 20, 25, 40, 100])
def test_chances_by_ranks_are_those_of_simulations(n: int) -> None:
    """Of runs in random order, beyond the level from which a change is a discovery."""
    rng, p, tries = np.random.default_rng(n), [], 400_000
    scores = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    before = np.arange(change_points.MIN_RUNS, n - change_points.MIN_RUNS + 1)
    for _ in range(tries // 4000):
        sums = rng.permuted(np.tile(scores, (4000, 1)), axis=1).cumsum(axis=1)[:, before - 1]
        score = np.abs(sums * np.sqrt(n / (before * (n - before)))).max(axis=1)
        z = score / np.sqrt((scores @ scores - score**2) / (n - 2))
        p += [
            change_points._extrapolate(each, n, change_points.RANK_TAIL, change_points.RANK_TAIL_P)
            for each in z[z > 3]
        ]
    for chance in (5e-4, 2e-4):
        assert 0.5 * chance <= np.sum(np.array(p) < chance) / tries <= 1.5 * chance


def test_clear_change_in_few_runs_is_a_discovery_by_ranks() -> None:
    changed = np.repeat([0.0, 1.0], [8, 17]) + np.random.default_rng(0).normal(0, 0.001, 25)
    change = find_change_points(changed)[0]
    assert change.at == 8 and change.p < 1e-10 and confirm_by_ranks(changed, change).p < 3e-5


@pytest.mark.slow
@pytest.mark.parametrize("n", [8, 24, 64, 200])
def test_stated_chances_are_those_of_simulations(n: int) -> None:
    rng = np.random.default_rng(n)
    p = []
    for values in rng.standard_normal((2000, n)):
        change = change_points._find_split(change_points.StateSeries.of(values), 0, n, np.arange(1, n))
        p.append(change.p if change else 1.0)
    for chance in (0.05, 0.01):
        assert 0.5 * chance <= np.mean(np.array(p) < chance) <= 1.5 * chance


@pytest.mark.slow
def test_series_that_people_marked() -> None:
    """A check of the method, not the goal: yearly and monthly figures of countries. A drift is no step."""
    folder = shared("samples/change_points")
    scores = []
    annotations = json.loads((folder / "annotations.json").read_text())
    score: Callable[..., float] = _score()
    for file in sorted(folder.glob("*.json")):
        document = json.loads(file.read_text())
        if file.name == "annotations.json" or document["n_dim"] != 1:
            continue
        values = np.array([np.nan if v is None else float(v) for v in document["series"][0]["raw"]])
        if not np.isnan(values).any():
            places = [change.at for change in find_change_points(values) if not change.is_drift]
            scores.append(score(annotations[file.stem], places))
    assert len(scores) == 19 and np.mean(scores) > LEAST_F1 > F1_OF_SILENCE


def _score() -> Callable[..., float]:
    """Return the F1 of the collection of these series, from the script beside the checkout."""
    text = shared("prototypes/change_points_f1.py").read_text()
    body = text[text.index("def tp") : text.index("S=load")]
    path = Path(__file__).parent / "unused"
    names = {"np": np, "__name__": str(path)}
    exec(compile(body, "change_points_f1", "exec"), names)  # noqa: S102
    return names["f1"]  # type: ignore[return-value]
