"""The search of a bisect, simulated: from drawn times, without a process."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.bench.releases import RELEASES, read_measured
from tests.bench.releases import replay as replay_releases
from tracetui.history.version_search import (
    BROKEN,
    CHANGED,
    SAME,
    UNDECIDED,
    UNSEEN,
    Measurement,
    SearchResult,
    VersionSearch,
)


def search(
    levels: Sequence[float],
    sd: float,
    seed: int,
    budget: int = 100,
    broken: Collection[int] = (),
    pace: Callable[[int], float] = lambda number: 1.0,
) -> VersionSearch:
    """Return a search with a result: levels with noise of this SD in logs, at a pace for each run."""
    random, made = np.random.default_rng(seed), VersionSearch(len(levels))
    while (version := made.choose_next()) is not None:
        number = len(made.log) + 1
        time_ns = 1e6 * levels[version] * np.exp(random.normal(0, sd)) * pace(number)
        made.add(Measurement(version, None if version in broken else float(time_ns), number / budget))
    return made


def result(made: VersionSearch) -> SearchResult:
    assert made.result is not None
    return made.result


def end(made: VersionSearch) -> tuple[str, int, int]:
    return result(made).word, result(made).last_before, result(made).first_after


def step_at(place: int, count: int, size: float) -> list[float]:
    return [1.0] * place + [1 + size] * (count - place)


@pytest.mark.parametrize("place", [1, 6, 9])
@pytest.mark.parametrize("size", [0.1, -0.1])
def test_a_planted_change_is_found_with_less_than_half_of_all_runs(place: int, size: float) -> None:
    searches = [search(step_at(place, 10, size), 0.02, seed, budget=50) for seed in range(10)]
    assert Counter(map(end, searches)) == {(CHANGED, place - 1, place): 10}
    assert np.mean([len(made.log) for made in searches]) < 30
    covered = [result(made).change for made in searches]
    inside = [c is not None and c.low_ns <= size * c.a_ns <= c.high_ns for c in covered]
    assert sum(inside) >= 7, "the interval is one of 95 %"


@pytest.mark.corpus
@pytest.mark.parametrize("sd", [0.002, 0.02, 0.1])
def test_nothing_planted_never_names_a_version(sd: float) -> None:
    words = Counter(result(search([1.0] * 10, sd, seed, budget=60)).word for seed in range(40))
    assert not words[CHANGED]
    assert words[SAME if sd < 0.01 else UNSEEN] >= 35, words


def test_no_change_found_says_what_would_have_been_found_and_what_more_would_take() -> None:
    made = result(search([1.0] * 10, 0.005, seed=3, budget=12))
    assert made.word == UNSEEN and made.change is not None and made.more_runs is not None
    low, high = made.change.interval
    assert low < 0 < high < 0.03 and made.more_runs < 20


def test_a_budget_too_small_names_what_is_left() -> None:
    made = result(search(step_at(37, 64, 0.2), 0.01, seed=1, budget=12))
    assert made.word == UNDECIDED and made.last_before < 37 <= made.first_after < 63


def test_broken_versions_are_skipped_or_are_the_range() -> None:
    far = search(step_at(37, 64, 0.2), 0.01, seed=1, broken=(30, 31, 32))
    assert end(far) == (CHANGED, 36, 37) and far.broken <= {30, 31, 32}
    near = search(step_at(37, 64, 0.2), 0.01, seed=1, broken=(36, 37, 38))
    assert end(near) == (CHANGED, 35, 39) and near.broken == {36, 37, 38}


def test_a_broken_end_ends_the_search() -> None:
    for version in (0, 9):
        assert end(search(step_at(5, 10, 0.2), 0.01, seed=1, broken=(version,))) == (BROKEN, version, version)


def test_a_version_that_ran_and_then_fails_three_times_ends_the_search() -> None:
    made = VersionSearch(3)
    for time_ns in (1e6, 2e6):
        made.add(Measurement(made.choose_next() or 0, time_ns, 0.01))
    for _ in range(3):
        assert made.choose_next() == 2
        made.add(Measurement(2, None, 0.01))
    assert end(made) == (BROKEN, 2, 2)


@pytest.mark.parametrize("at", [5, 9, 14])
def test_a_machine_that_becomes_slower_meanwhile_misleads_nobody(at: int) -> None:
    """The machine slows by 15 %, nearly as much as the change."""
    made = [
        search(step_at(37, 64, 0.2), 0.01, seed, pace=lambda number: 1.15 if number > at else 1.0)
        for seed in range(10)
    ]
    assert Counter(map(end, made)) == {(CHANGED, 36, 37): 10}
    noticed = sum(each.machine_changes > 0 for each in made)
    assert noticed >= 8 or at == 5, "the ends are measured in turn: what happens meanwhile concerns both"
    assert np.mean([len(each.log) for each in made]) < 40


def test_of_two_changes_the_larger_is_followed() -> None:
    levels = [1.0] * 20 + [1.05] * 20 + [1.2] * 24
    made = [search(levels, 0.01, seed) for seed in range(10)]
    assert Counter(map(end, made)) == {(CHANGED, 39, 40): 10}
    assert all(c is not None and 0.1 < c.share < 0.18 for c in (result(each).change for each in made))


def test_the_same_measurements_lead_to_the_same_question() -> None:
    """A search that is resumed after any run goes on as if it had never ended."""
    whole = search(step_at(6, 10, 0.1), 0.02, seed=2)
    for length in range(len(whole.log)):
        resumed = VersionSearch(10)
        for measurement in whole.log[:length]:
            resumed.add(measurement)
        assert resumed.choose_next() == whole.log[length].version


@pytest.fixture(scope="module")
def measured() -> list[list[float]]:
    """Return the ns of ffn_down in seven or eight runs of ten versions, in turn, on a machine in heavy use.

    They are the bundled engine's: smollm2-135m with random weights, from the seventh on with
    --slow mlp.down:2. Equal runs differ by a factor of two; each was recorded once.
    """
    times: list[list[float]] = json.loads(Path(__file__).with_name("measured_versions.json").read_text())
    return times


def replay(times: Sequence[Sequence[float]], seed: int) -> VersionSearch:
    """Return a search among drawn runs, with half as many as ten of each version."""
    random, made = np.random.default_rng(seed), VersionSearch(len(times))
    while (version := made.choose_next()) is not None:
        made.add(Measurement(version, float(random.choice(times[version])), (len(made.log) + 1) / 50))
    return made


@pytest.mark.slow
def test_a_version_is_found_in_95_of_100_draws_from_real_runs(measured: list[list[float]]) -> None:
    made = [replay(measured, seed) for seed in range(100)]
    assert sum(end(each) == (CHANGED, 5, 6) for each in made) >= 95
    assert not any(result(each).word == CHANGED and end(each) != (CHANGED, 5, 6) for each in made)
    assert np.mean([len(each.log) for each in made]) < 35


@pytest.mark.slow
def test_no_version_is_named_in_100_draws_from_equal_real_runs(measured: list[list[float]]) -> None:
    equal = [time_ns for times in measured[:6] for time_ns in times]
    assert not any(result(replay([equal] * 10, seed)).word == CHANGED for seed in range(100))


@pytest.mark.slow
def test_the_slow_release_of_numpy_is_found_in_95_of_100_draws_with_half_of_the_runs() -> None:
    """Ten releases, ten runs of each, by `python -m tests.bench.releases`; sorting is faster since 2.0."""
    times = list(read_measured().values())
    place, half = RELEASES.index("2.0.2"), sum(map(len, times)) // 2
    made = [replay_releases(times, seed, half) for seed in range(100)]
    assert sum(end(each) == (CHANGED, place - 1, place) for each in made) >= 95
    assert max(len(each.log) for each in made) <= half and np.mean([len(each.log) for each in made]) < 20


@pytest.mark.slow
def test_releases_that_ten_runs_of_each_do_not_tell_apart_are_not_told_apart() -> None:
    times = list(read_measured().values())
    for a, b in pairwise(times):
        low, high = stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
        words = Counter(result(replay_releases([a, b], seed, 50)).word for seed in range(100))
        if low <= 0 <= high:
            assert words[CHANGED] <= 5 and words[UNSEEN] + words[UNDECIDED] + words[SAME] >= 95, words
