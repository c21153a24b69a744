"""What an undecided comparison says it would take, against simulated recordings of that number."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.compare.diff import compare_runs
from tracetui.compare.evidence.sample_size import (
    estimate_recordings_needed,
    format_requirement,
    format_wait,
    measure_longest_recording,
)
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look, Terms

STEPS = 12

KNOWN, ASSUMED = NoiseFloor(0.02, source="said"), NoiseFloor()


def steady(took_us: float, wait_s: int = 0) -> Run:
    """A run of equal steps, the last one after a pause of `wait_s` seconds per step where these are given."""
    rows: list[dict[str, Any]] = []
    for step in range(STEPS):
        t = step * wait_s * 10**9 if step == STEPS - 1 else int(step * took_us * 1000)
        at = {"t": t} if wait_s else {}
        of_step = {"step": step, "phase": "decode", "dur": int(took_us * 1000), "lens": "gpu", **at}
        rows += [{"kind": "step", "name": "step", "tokens": 1, **of_step}]
        rows += [{"kind": "kernel", "name": "k", **of_step}]
    return made(rows, model="toy")


def totals(
    a: tuple[float, ...], b: tuple[float, ...], floor: NoiseFloor = ASSUMED, **terms: Any
) -> dict[str, Any]:
    """The totals of the step of runs with these times."""
    first, second = [steady(t) for t in a], [steady(t) for t in b]
    sides = Sides((first[0], second[0]), more_a=tuple(first[1:]), more_b=tuple(second[1:]), floor=floor)
    return compare_runs(sides, Look(terms=Terms(**terms))).phases.row(0, named=True)


def test_so_many_more_recordings_decide_four_times_in_five() -> None:
    """Three a side with 3 % spread and a change of 4 %: simulated with what is asked for, and with less."""
    a, b = (100.0, 103.0, 97.0), (104.0, 107.0, 101.0)
    row = totals(a, b)
    assert row["verdict"] == "~"
    more = estimate_recordings_needed(row, Sides(more_a=(steady(1),) * 2, more_b=(steady(1),) * 2), Terms())
    assert more is not None and more > 1
    logs = np.log(a), np.log(b)
    spread = math.sqrt((logs[0].var(ddof=1) + logs[1].var(ddof=1)) / 2)
    shift = logs[1].mean() - logs[0].mean()
    rng = np.random.default_rng(2)

    def power(n: int) -> float:
        x, y = rng.normal(0, spread, (20_000, n)), rng.normal(shift, spread, (20_000, n))
        return float((stats.ttest_ind(y, x, axis=1).pvalue < 0.05).mean())

    assert power(3 + more) >= 0.78
    assert power(3 + more - 2) < 0.8


def test_one_run_a_side_is_read_against_its_floor() -> None:
    """2.5 % where runs differ by 2 %: t(22) = 2.074 and 0.842 of 0.02 √(2/12) are just below it."""
    row = totals((100,), (102.5,), KNOWN)
    assert row["verdict"] == "~" and estimate_recordings_needed(row, Sides(floor=KNOWN), Terms()) == 11


def test_no_change_is_shown_by_more_recordings_too() -> None:
    """Equal runs with a threshold of 10 %: what is needed shows that there is none that matters."""
    floor = NoiseFloor(0.05, source="said")
    row = totals((100,), (100.2,), floor, threshold=0.1)
    more = estimate_recordings_needed(row, Sides(floor=floor), Terms(threshold=0.1))
    assert row["verdict"] == "~" and more is not None
    n = 1 + more
    reach = [(stats.t.isf(0.025, 2 * k - 2) + 0.8416) * 0.05 * math.sqrt(2 / k) for k in (n, n - 1)]
    assert reach[0] <= math.log(1.1) - 0.002 + 1e-3 and reach[1] > math.log(1.1) - 0.003


def test_a_change_that_runs_hide_altogether_needs_too_many() -> None:
    assert estimate_recordings_needed(totals((100,), (101.1,)), Sides(), Terms()) is None


def test_the_answer_names_the_length_of_a_recording() -> None:
    a, b = steady(100, wait_s=4), steady(102.5, wait_s=3)
    assert (
        measure_longest_recording([a, b]) == pytest.approx(44.0001)
        and measure_longest_recording([steady(1)]) is None
    )
    line = describe_decision(compare_runs(Sides((a, b), floor=KNOWN), Look()), Terms())[-1]
    assert line.endswith("; record 11 more per side, about 44 s each, to decide")


def test_the_words() -> None:
    assert format_requirement(1, 0.2) == "record 1 more per side, about 1 s each, to decide"
    assert format_requirement(3, None) == "record 3 more per side to decide"
    assert format_requirement(None, 9).startswith("more than 50 recordings per side")
    assert [format_wait(s) for s in (40.4, 119, 150, 3600)] == ["40 s", "119 s", "2 min", "60 min"]
