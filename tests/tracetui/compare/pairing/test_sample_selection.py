"""Each recording counts once: the samples of a comparison, and the probability that follows from them."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from capture.errors import UsageError
from capture.run import Run
from tests.tracetui.runs import made
from tracetui.compare import run_sides
from tracetui.compare.diff import compare_runs
from tracetui.compare.run_sides import Sides
from tracetui.look import Look

STEPS = 12


def run(gemm: int, name: str = "run") -> Run:
    """Steps of one gemm and one norm of constant length, in ns."""
    rows = [
        {"kind": "kernel", "name": n, "dur": ns, "step": step, "phase": "decode", "lens": "gpu"}
        for step in range(STEPS)
        for n, ns in (("gemm", gemm), ("norm", gemm // 10))
    ]
    return replace(made(rows, model="toy"), name=name)


def test_a_copy_is_the_same_recording_and_a_repeat_is_not() -> None:
    one, copy, repeat = run(1000), run(1000, "copy"), run(1001)
    assert run_sides.is_same_recording(one, copy) and not run_sides.is_same_recording(one, repeat)
    assert run_sides.find_distinct([one, repeat, copy, repeat]) == [0, 1]
    shorter = replace(one, events=one.events.head(4))
    assert not run_sides.is_same_recording(one, shorter)
    assert not run_sides.is_same_recording(one, replace(one, events=one.events.drop("phase")))


def test_the_compared_run_makes_its_twins_repeats_of_its_side() -> None:
    a, b, c, d = (run(ns) for ns in (1000, 1100, 1010, 990))
    of_a = run_sides.add_identical_runs(Sides((a, b)), [c, run(1000), d])
    assert (of_a.more_a, of_a.more_b, of_a.same) == ((c, d), (), ()) and "repeat a" in of_a.notes[0]
    of_b = run_sides.add_identical_runs(Sides((a, b)), [run(1100), c])
    assert (of_b.more_a, of_b.more_b, of_b.same) == ((), (c,), ())
    neither = run_sides.add_identical_runs(Sides((a, b)), [c, d, d])
    assert (neither.more_a, neither.more_b, neither.same, neither.notes) == ((), (), (c, d), ())
    both = run_sides.add_identical_runs(Sides((a, b)), [a, b, c, d])
    assert (both.more_a, both.more_b, both.same) == (
        (),
        (),
        (c, d),
    ) and "measure the noise" in both.notes[0]


@pytest.mark.parametrize("named", [(1000,), (990,), (1000, 1000), (1000, 1100), (1000, 1100, 990)])
def test_too_few_runs_tell_no_noise(named: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="one run does not show the noise"):
        run_sides.add_identical_runs(Sides((run(1000), run(1100))), [run(ns) for ns in named])


def test_the_probability_is_that_of_each_run_once() -> None:
    """Two runs of a against one of b: Student's t of their logarithms, one degree of freedom."""
    times = 1000, 1040, 1400
    a, twin, b = (run(ns) for ns in times)
    sides = run_sides.add_identical_runs(Sides((a, b)), [a, twin])
    compared = compare_runs(sides, Look())
    rows = compared.rows
    logs = np.log(times)
    expected = stats.ttest_ind(logs[:2], logs[2:]).pvalue
    assert rows.filter(pl.col("name") == "gemm")["p"][0] == pytest.approx(expected, rel=1e-6)
    assert sides.notes[0] in compared.notes
