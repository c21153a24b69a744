"""One run a side: intervals by hand, error rates on series made to be alike or not, and what others had."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.bench.pairs import Cell, rates
from tests.conftest import shared
from tracetui.analysis.frames.statistics import judge_evidence
from tracetui.compare.diff import compare_runs
from tracetui.compare.evidence import cpu_contention
from tracetui.compare.evidence.pair_test import judge_pair
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look


def test_without_noise_inside_the_floor_of_two_runs_is_the_error() -> None:
    a = np.full((1, 12), 1000.0)
    actual = judge_pair(a, 1.2 * a, NoiseFloor(0.05, 3.0))
    t = math.log(1.2) / (0.05 * math.sqrt(2))
    assert actual.p[0] == pytest.approx(2 * stats.t.sf(t, 3))
    reach = 0.05 * math.sqrt(2) * stats.t.isf(0.025, 3)
    middle = 1000 * math.sqrt(1.2)
    shift = math.log(1.2)
    assert actual.low[0] == pytest.approx(2 * middle * math.sinh((shift - reach) / 2), rel=1e-9)
    assert actual.high[0] == pytest.approx(2 * middle * math.sinh((shift + reach) / 2), rel=1e-9)


def test_what_is_equal_to_the_nanosecond_is_the_same() -> None:
    a = np.full((3, 8), 50.0)
    assert judge_evidence(judge_pair(a, a, NoiseFloor()), np.full(3, 0.5)) == ["same"] * 3


def test_swapping_the_sides_swaps_the_signs() -> None:
    rng = np.random.default_rng(3)
    a, b = np.exp(rng.normal(0, 0.1, (5, 20))), np.exp(rng.normal(0.2, 0.1, (5, 20)))
    one, other = judge_pair(a, b, NoiseFloor()), judge_pair(b, a, NoiseFloor())
    np.testing.assert_allclose(one.delta, -other.delta)
    np.testing.assert_allclose(one.low, -other.high)
    np.testing.assert_allclose(one.p, other.p)


@pytest.mark.corpus
@pytest.mark.parametrize("kind", ["plain", "tails", "moments"])
@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_equal_runs_rarely_differ_and_a_doubled_row_is_found(kind: str, memory: float) -> None:
    """5 % of the families are wrong at most; 60 tries leave an error of 2.8 %."""
    actual = rates(Cell(kind, 40, 16, memory, 0.03), 60)
    assert actual.wrong <= 0.05 + 2 * 0.028
    assert actual.beside <= 0.05 + 2 * 0.028
    assert actual.found >= (0.95 if memory == 0 else 0.8)


def test_a_memory_longer_than_the_steps_shows_in_how_far_rows_lie_apart() -> None:
    """Steps that scatter by 1 % at random lie on levels that moved by up to 3 %, each row's by its own: the
    error is the smallest that a memory of the steps gives at which they lie no wider than it tells.
    """
    rng = np.random.default_rng(4)
    a, steps = np.full((20, 32), 1000.0), rng.normal(0, 0.01, (20, 32))
    levels = np.linspace(-0.03, 0.03, 20)[:, None]
    still, moved = (
        judge_pair(a, 1000 * np.exp(x), NoiseFloor(0.001, source="said")) for x in (steps, levels + steps)
    )
    assert {*judge_evidence(still, np.zeros(20))} <= {"~", "same"} and {
        *judge_evidence(moved, np.zeros(20))
    } == {"~"}
    assert np.median((moved.high - moved.low) / (still.high - still.low)) > 2


def test_rows_that_all_moved_alike_show_no_memory() -> None:
    rng = np.random.default_rng(4)
    a, steps = np.full((20, 32), 1000.0), rng.normal(0, 0.01, (20, 32))
    still, moved = (
        judge_pair(a, 1000 * np.exp(x), NoiseFloor(0.001, source="said")) for x in (steps, 0.09 + steps)
    )
    np.testing.assert_allclose(np.log(moved.p), np.log(moved.p[0]), rtol=1)
    np.testing.assert_allclose(moved.high - moved.low, (still.high - still.low) * np.exp(0.045), rtol=0.02)
    assert {*judge_evidence(moved, np.zeros(20))} == {"slower"}


def test_few_rows_are_judged_by_their_steps_alone() -> None:
    """Four rows do not say which of them changed by itself."""
    rng = np.random.default_rng(4)
    a, steps = np.full((4, 32), 1000.0), rng.normal(0, 0.01, (4, 32))
    levels = np.linspace(-0.3, 0.3, 4)[:, None]
    still, moved = (
        judge_pair(a, 1000 * np.exp(x), NoiseFloor(0.001, source="said")) for x in (steps, levels + steps)
    )
    reach = [(f.high - f.low) / np.sqrt(f.median_a * f.median_b) for f in (still, moved)]
    np.testing.assert_allclose(*reach, rtol=0.02)  # a hyperbolic sine of the shift


@pytest.mark.corpus
@pytest.mark.parametrize(("rows", "steps"), [(40, 8), (300, 16)])
@pytest.mark.parametrize("kind", ["tails", "moments"])
def test_equal_runs_rarely_differ_whatever_the_steps_remember(kind: str, rows: int, steps: int) -> None:
    actual = rates(Cell(kind, rows, steps, 0.95, 0.0), 40)
    assert max(actual.wrong, actual.beside) <= 0.05 + 2 * 0.035


@pytest.mark.slow
def test_rows_of_which_some_scatter_by_more_rarely_differ_in_eight_steps() -> None:
    """A floor that is wider than what runs differ by hides the memory of rows that scatter little. The memory
    at which half of the rows lie within the inner half made 8 % of 300 such families wrong; an error of 5 %
    is 1.3 % here.
    """
    actual = rates(Cell("tails", 40, 8, 0.8, 0.0), 300)
    assert max(actual.wrong, actual.beside) <= 0.05 + 0.013 and actual.found >= 0.92


def test_eight_steps_of_a_long_memory_find_a_doubled_row() -> None:
    """60 tries; the distances of eight such steps from their median alone find fewer."""
    actual = rates(Cell("plain", 40, 8, 0.95, 0.0), 60)
    assert actual.found >= 0.9 and max(actual.wrong, actual.beside) <= 0.05 + 2 * 0.028


def test_a_third_of_the_rows_that_changed_is_no_memory() -> None:
    rng = np.random.default_rng(6)
    a, b = (np.exp(rng.normal(0, 0.02, (30, 8))) for _ in "ab")
    b[:10] *= 1.5
    actual = judge_evidence(judge_pair(a, b, NoiseFloor(0.02, source="said")), np.zeros(30))
    assert actual[:10] == ["slower"] * 10 and not {"slower", "faster"} & {*actual[10:]}


def test_every_step_slower_by_three_and_a_half_is_decided_from_eight_steps_on() -> None:
    rng = np.random.default_rng(9)
    a, b = (np.exp(rng.normal(0, 0.1, (30, 8))) for _ in "ab")
    assert set(judge_evidence(judge_pair(a, 3.5 * b, NoiseFloor()), np.zeros(30))) == {"slower"}


def test_a_throttled_clock_is_decided_on_a_real_pair() -> None:
    folder = shared("samples/latencyprism_unstable_gpu/normal_perf_data.csv").parent
    a, b = (load(folder / f"{side}_perf_data.csv")[0] for side in ("normal", "abnormal"))
    rows = compare_runs((a, b), Look()).rows
    large = rows.filter(pl.col("total_a_ns") > 0.01 * pl.col("total_a_ns").sum())
    assert set(large["verdict"]) == {"slower"} and large.height >= 8


def beside(others: list[float], threads: int, dur: int = 100, slow: float = 1.0, launches: int = 1) -> Run:
    """A step each for what others had of two processors meanwhile; steps are slow while they had any."""
    rows: list[dict[str, object]] = []
    for step, had in enumerate(others):
        t, took = step * 1000, int(dur * (slow if had else 1))
        rows += [
            {"kind": "step", "name": "step", "step": step, "t": t, "dur": 900, "lens": "wall"},
            *({"kind": "kernel", "name": "k", "step": step, "t": t, "dur": took, "lens": "wall"},) * launches,
        ]
        figures = {"host_cpu_usage": 50 * (threads + had), "process_cpu_usage": 100.0 * threads}
        cores = [("core_usage", f"core {i}", 100.0) for i in range(2)]
        counters = [*((n, "host", v) for n, v in figures.items()), *cores]
        rows += [
            {"kind": "counter", "name": n, "track": track, "t": t + 900, "value": float(v)}
            for n, track, v in counters
        ]
    meta = {"threads": threads}
    return build_run("r", meta, pl.DataFrame(rows, infer_schema_length=None), Log())


def test_steps_in_which_others_had_the_processor_are_known() -> None:
    steps = pl.Series([0, 1, 2, 3])
    run = beside([0, 0.5, 0.1, 1.0], 1)
    assert cpu_contention.is_contended(run, steps).tolist() == [
        False,
        False,
        False,
        False,
    ]  # it leaves one to others
    assert cpu_contention.is_contended(beside([0, 0.5, 0.1, 1.0], 2), steps).tolist() == [
        False,
        True,
        False,
        True,
    ]


def test_such_steps_are_left_out() -> None:
    """Half of the steps of b took four times as long, beside others; alone b is what a is."""
    a, b = beside([0.0] * 24, 2), beside([0.0, 1.0] * 12, 2, slow=4.0)
    actual = compare_runs(Sides((a, b), floor=NoiseFloor(0.01, source="said")), Look())
    assert actual.rows["verdict"].to_list() == ["same"]
    assert "12 of 24 steps of b excluded: other programs used 50% of the 2 cores" in " ".join(actual.notes)
    nearly_all = compare_runs((a, beside([1.0] * 24, 2, slow=4.0)), Look())
    assert nearly_all.rows["verdict"].to_list() == ["~"]
    assert "differ by a factor of two" in " ".join(nearly_all.notes)


@pytest.mark.parametrize(("had", "dur", "word"), [(0.0, 400, "slower"), (1.0, 400, "~"), (1.0, 2000, "~")])
def test_launches_of_few_steps_beside_others_decide_nothing(had: float, dur: int, word: str) -> None:
    """Four times as long in two steps is a change where the program was alone, and none where it was not.

    Beside others, equal runs were 16 times as long in their two prefills.
    """
    runs = beside([0.0, 0.0], 2, launches=3), beside([had, had], 2, dur, launches=3)
    actual = compare_runs(Sides(runs, floor=NoiseFloor(0.01, source="said")), Look())
    assert actual.rows["verdict"].to_list() == [word]
    assert ("other programs used the CPU" in actual.notes[0]) is (word == "~")


def test_the_first_call_of_a_program_among_few_is_no_change() -> None:
    """Two steps, the first cold: a median of two is their mean, and how far such steps differ is unknown."""
    cold, warm = beside([1.0, 0.0], 1, slow=40.0), beside([0.0, 0.0], 1)
    for runs in ((cold, warm), (warm, cold)):
        compared = compare_runs(Sides(runs, floor=NoiseFloor(0.02, source="said")), Look())
        assert compared.rows["verdict"].to_list() == ["~"] and not compared.rows["p"].is_not_null().any()
        first = describe_decision(compared, Look().terms)[0]
        assert first.startswith("as measured: ") and "2 steps per side, no spread known" in first


def test_one_cold_launch_among_many_is_no_change() -> None:
    """Of eight launches one is 80 times as long: the mean is 10 times as long, by one call."""

    def recording(first: int, dur: int) -> Run:
        took = [first, *[dur] * 7]
        rows = [
            {"kind": "kernel", "name": "k", "step": i // 4, "t": 10_000 * i, "dur": d, "lens": "wall"}
            for i, d in enumerate(took)
        ]
        return build_run("r", {}, pl.DataFrame(rows), Log())

    floor = NoiseFloor(0.02, source="said")
    for dur, word in ((100, "~"), (1_000, "slower")):
        runs = recording(100, 100), recording(8_000 if word == "~" else 1_000, dur)
        assert compare_runs(Sides(runs, floor=floor), Look()).rows["verdict"].to_list() == [word]
