"""Looks at recordings that grow: what they use of the chance of error, and how often they err."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.tracetui.compare.evidence.test_sample_size import totals
from tracetui.analysis.frames.statistics import ALPHA, Floats, judge_evidence
from tracetui.compare import params
from tracetui.compare.evidence import repeat_test
from tracetui.compare.evidence.sample_size import AlphaSpending, compute_cumulative_share

TRIES, PAIRS, SPREAD = 1000, 10, 0.03


def test_what_may_be_used_by_hand() -> None:
    """Pocock's function by Lan and DeMets: log(1 + (e - 1) t)."""
    assert compute_cumulative_share(0) == 0 and compute_cumulative_share(1) == pytest.approx(
        1
    ) == compute_cumulative_share(7)
    assert compute_cumulative_share(0.5) == pytest.approx(math.log(1.859140914), rel=1e-9)
    looks = AlphaSpending()
    shares = [looks.spend(t) for t in (0.2, 0.5, 0.5, 0.9, 1.0)]
    assert shares[0] == pytest.approx(math.log(1 + 1.718281828 / 5)) and shares[2] == 0
    assert sum(shares) == pytest.approx(1)


def stopped(a: Floats, b: Floats, threshold: float, *, shared: bool) -> str:
    """The verdict at which looks after each pair of runs stop; ~ where no pair was left."""
    looks = AlphaSpending()
    for n in range(params.MIN_RUNS_PER_SIDE, PAIRS + 1):
        share = looks.spend(n / PAIRS) if shared else 1.0
        groups = np.repeat([0, 1], n)
        evidence = repeat_test.compare_means(np.concatenate([a[:n], b[:n]])[None], groups, ALPHA * share)[0]
        floor = threshold * (evidence.median_a + evidence.median_b) / 2
        verdict = judge_evidence(evidence, floor, alpha=ALPHA * share)[0]
        if verdict != "~":
            return verdict
    return "~"


def ends(shift: float, threshold: float, *, shared: bool = True) -> dict[str, float]:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(TRIES):
        a, b = math.log(1e6) + rng.normal(0, SPREAD, (2, PAIRS))
        found.append(stopped(a, b + shift, threshold, shared=shared))
    return {word: found.count(word) / TRIES for word in ("slower", "faster", "same", "~")}


@pytest.mark.slow
def test_looking_after_each_pair_of_equal_runs_errs_in_at_most_5_of_100() -> None:
    equal = ends(0.0, 0.001)
    assert equal["slower"] + equal["faster"] <= 0.05
    naive = ends(0.0, 0.001, shared=False)
    assert naive["slower"] + naive["faster"] > 0.1, "without shares it does err more often"


@pytest.mark.slow
def test_a_change_is_seldom_called_none() -> None:
    assert ends(math.log1p(0.06), 0.05)["same"] <= 0.05


def test_a_change_of_four_spreads_is_found_within_the_budget() -> None:
    assert ends(4 * SPREAD, 0.01)["slower"] >= 0.95


@pytest.mark.slow
def test_no_change_is_called_none_where_runs_tell() -> None:
    assert ends(0.0, 0.1)["same"] >= 0.95


def test_a_whole_comparison_obeys_the_share() -> None:
    """Two a side: decided where the share of 5 % is a little above their p, not where it is below."""
    a, b = (100.0, 101.0), (110.0, 111.0)
    p = stats.ttest_ind(np.log(a), np.log(b)).pvalue
    assert totals(a, b, share=1.1 * p / ALPHA)["verdict"] == "slower"
    assert totals(a, b, share=0.9 * p / ALPHA)["verdict"] == "~"


def slower_rows(rng: np.random.Generator, factor: float) -> set[int]:
    """The rows that a gate names at the look that stops it: runs of 40 rows, row 0 of b slower by a factor.

    Runs differ by 3 %, rows of a run by 2 % more, steps by 5 %.
    """
    rows, pairs, steps = 40, 6, 12
    size = rng.normal(11, 1, (rows, 1, 1))
    size[0] = 13.5
    noise = ((0.03, (1, 2 * pairs, 1)), (0.02, (rows, 2 * pairs, 1)), (0.05, (rows, 2 * pairs, steps)))
    times = np.exp(size + sum(rng.normal(0, spread, shape) for spread, shape in noise))
    times[0, pairs:] *= factor
    looks = AlphaSpending()
    for n in range(params.MIN_RUNS_PER_SIDE, pairs + 1):
        share = looks.spend(n / pairs)
        both = np.concatenate([times[:, :n], times[:, pairs : pairs + n]], axis=1)
        evidence = repeat_test.judge_repeats(both, np.repeat([0, 1], n), alpha=ALPHA * share).evidence
        words = judge_evidence(evidence, 0.03 * evidence.median_a, alpha=ALPHA * share)
        if "slower" in words:
            return {i for i, word in enumerate(words) if word == "slower"}
    return set()


def test_a_gate_that_looks_often_names_equal_rows_in_at_most_5_of_100() -> None:
    rng = np.random.default_rng(5)
    equal = [slower_rows(rng, 1.0) for _ in range(60)]
    assert sum(map(bool, equal)) <= 3
    planted = [slower_rows(rng, 1.3) for _ in range(20)]
    assert sum(0 in rows for rows in planted) >= 19
    assert sum(rows > {0} for rows in planted) <= 1
