"""The statistics against scipy, and their error rates on series that are made to be alike or not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tracetui.analysis.frames import statistics

ROWS, STEPS = 40, 128


def series(
    rng: np.random.Generator, rows: int, steps: int, memory: float, spread: float
) -> NDArray[np.float64]:
    """AR(1) noise around one."""
    noise = rng.normal(size=(rows, steps))
    for i in range(1, steps):
        noise[:, i] = memory * noise[:, i - 1] + np.sqrt(1 - memory**2) * noise[:, i]
    return 1 + spread * noise


def test_signed_rank_is_scipys() -> None:
    rng = np.random.default_rng(2)
    d = rng.normal(0.1, 1, (10, 60))
    theirs = [stats.wilcoxon(x, method="asymptotic", correction=False).pvalue for x in d]
    np.testing.assert_allclose(statistics.compute_signed_rank_p(d, np.ones(10)), theirs, rtol=1e-9)


def test_benjamini_hochberg_is_scipys() -> None:
    p = np.random.default_rng(3).uniform(0, 0.2, 50)
    np.testing.assert_allclose(statistics.adjust_benjamini_hochberg(p), stats.false_discovery_control(p))
    with_gap = statistics.adjust_benjamini_hochberg(np.append(p, np.nan))
    assert np.isnan(with_gap[-1]), "a row without samples is no test"
    np.testing.assert_allclose(with_gap[:-1], stats.false_discovery_control(p))


def test_cliffs_delta_by_counting() -> None:
    a, b = np.array([[1.0, 2, 3]]), np.array([[2.0, 3, 4, 5]])
    wins = sum(int(y > x) - int(y < x) for x in a[0] for y in b[0]) / 12
    assert statistics.compute_cliffs_delta(a, b)[0] == pytest.approx(wins)


@pytest.mark.parametrize("n", [120, 257])
def test_the_block_interval_is_that_of_a_drawn_bootstrap(n: int) -> None:
    """Resample after resample of circular blocks, its medians sorted, the same tails cut off."""
    rng = np.random.default_rng(n)
    rows, tau, block = series(rng, 40, n, 0.5, 0.05), np.full(40, 4.0), 8
    starts = rng.integers(0, n, (3000, -(-n // block)))
    steps = ((starts[:, :, None] + np.arange(block)).reshape(3000, -1)[:, :n]) % n
    medians = np.array([np.median(rows[:, picked], axis=1) for picked in steps])
    df, missed = n / 3, (16 - 1) / (2 * 4 * block)
    tail = stats.norm.sf(stats.t.isf(0.025, df) / np.sqrt(1 - missed))
    expected = np.quantile(medians, [tail, 1 - tail], axis=0)
    low, high = statistics.compute_median_interval(rows, tau)
    width = np.mean(expected[1] - expected[0])
    assert np.mean(high - low) == pytest.approx(width, rel=0.08)
    assert abs(np.mean(low - expected[0])) < 0.05 * width and abs(np.mean(high - expected[1])) < 0.05 * width


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_autocorrelation_time_of_a_known_process(memory: float) -> None:
    rows = series(np.random.default_rng(4), 200, 512, memory, 1.0)
    expected = (1 + memory) / (1 - memory)
    assert np.median(statistics.estimate_autocorrelation_time(rows)) == pytest.approx(expected, rel=0.2)


@pytest.mark.corpus
@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8, 0.95])
def test_identical_runs_are_rarely_called_different(memory: float) -> None:
    """Pairs of the same process: in at most 5 % of them any of the rows is called slower or faster."""
    rng = np.random.default_rng(5)
    flagged = 0
    for _ in range(120):
        a, b = (series(rng, ROWS, STEPS, memory, 0.05) for _ in "ab")
        words = statistics.judge_evidence(statistics.compute_paired_evidence(a, b), np.zeros(ROWS))
        flagged += bool({"slower", "faster"} & set(words))
    assert flagged <= 0.05 * 120


def test_what_all_rows_live_through_is_no_difference() -> None:
    """A slow moment that slows every row at once, below noise of their own: 128 and 256 steps, rho 0.8."""
    rng = np.random.default_rng(9)
    for steps in (128, 256):
        flagged = 0
        for _ in range(120):
            a, b = (
                0.9 * series(rng, 1, steps, 0.8, 0.05) + 0.1 * series(rng, ROWS, steps, 0.0, 0.05)
                for _ in "ab"
            )
            flagged += bool(
                {"slower", "faster"}
                & set(statistics.judge_evidence(statistics.compute_paired_evidence(a, b), np.zeros(ROWS)))
            )
        assert flagged <= 0.07 * 120


def test_a_planted_slowdown_is_found() -> None:
    """3 % in one of 300 rows, 5 % noise, 256 steps."""
    rng = np.random.default_rng(6)
    actual = 0
    for _ in range(20):
        a, b = (series(rng, 300, 256, 0.0, 0.05) for _ in "ab")
        b[7] *= 1.03
        words = statistics.judge_evidence(statistics.compute_paired_evidence(a, b), np.full(300, 0.01))
        actual += words[7] == "slower"
        assert sum(w in ("slower", "faster") for w in words) <= 3
    assert actual >= 18


def test_the_interval_covers() -> None:
    rng = np.random.default_rng(7)
    d = series(rng, 300, 128, 0.5, 0.05) - 1 + 0.01
    low, high = statistics.compute_median_interval(d, statistics.estimate_autocorrelation_time(d))
    assert np.mean((low <= 0.01) & (high >= 0.01)) >= 0.9


def test_swapping_sides_swaps_signs() -> None:
    rng = np.random.default_rng(8)
    a, b = series(rng, 10, 64, 0.3, 0.1), series(rng, 10, 64, 0.3, 0.2)
    one, other = statistics.compute_paired_evidence(a, b), statistics.compute_paired_evidence(b, a)
    np.testing.assert_allclose(one.delta, -other.delta)
    np.testing.assert_allclose(one.p, other.p)
    np.testing.assert_allclose(one.cliff, -other.cliff)
    np.testing.assert_allclose(one.low, -other.high)


def test_too_few_samples_decide_nothing() -> None:
    few = np.array([[1.0, 2, 3]])
    assert statistics.judge_evidence(statistics.compute_paired_evidence(few, few * 9), np.zeros(1)) == ["~"]


FIGURE = st.one_of(st.just(float("nan")), st.integers(-3, 3).map(float))


def plain_verdict(delta: float, low: float, high: float, p: float, floor: float) -> str:
    """The rule that `verdicts` states, for one row."""
    if np.isnan(low) or np.isnan(p):
        return "~"
    if low == high == delta == 0:
        return "same"
    if (low > 0 or high < 0) and p < 0.05 and abs(delta) >= floor:
        return "slower" if delta > 0 else "faster"
    return "same" if max(abs(low), abs(high)) < floor else "~"


@given(
    st.lists(st.tuples(FIGURE, FIGURE, FIGURE, st.sampled_from([0.01, 0.2, float("nan")]), st.integers(0, 3)))
)
def test_verdicts_follow_the_rule_row_by_row(rows: list[tuple[float, float, float, float, int]]) -> None:
    rows = [row for row in rows if np.isnan(row[1]) == np.isnan(row[2])]  # an interval has both ends
    columns = np.array(rows, dtype=float).reshape(-1, 5).T
    delta, low, high, p, floor = columns
    nothing = np.zeros(len(rows))
    counts = nothing.astype(np.int64)
    evidence = statistics.RowEvidence(nothing, nothing, delta, low, high, p, p, nothing, counts, counts)
    assert statistics.judge_evidence(evidence, floor) == [plain_verdict(*row) for row in rows]
