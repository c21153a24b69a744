"""The time between the kernels of two runs: the idle time that the steps view tells."""

import pytest

from capture.run import Run
from tests.tracetui.analysis.time.test_idle_gaps import US, kernel
from tests.tracetui.runs import made
from tracetui.analysis.time.step_table import compute_step_table
from tracetui.compare.diff import compare_runs
from tracetui.look import Look
from tracetui.views.diff import build_notes


def steps(start: int, wall: int = 900) -> Run:
    """Three steps of 20 µs of kernels; the second of each begins so much after the first."""
    rows = []
    for step in (1, 2, 3):
        at = wall * step
        rows += [kernel(at, 10, at - 7, 3, step=step), kernel(at + start, 10, at + start - 7, 3, step=step)]
        rows.append(
            {"kind": "step", "name": "s", "t": at * US, "dur": wall * US, "step": step, "lens": "wall"}
        )
    return made(rows)


@pytest.mark.parametrize(("look", "change"), [(Look(), 90), (Look(window=(1, 2)), 60)])
def test_the_gap_of_a_diff_is_the_change_of_idle_time(look: Look, change: int) -> None:
    """30 µs more in each step, whatever the annotations around them took."""
    a, b = steps(20), steps(50, wall=600)
    assert compare_runs((a, b), look).gap_ns == change * US
    idle = [int(compute_step_table(run, look)["idle_ns"].sum()) for run in (a, b)]
    assert idle[1] - idle[0] == change * US


def test_without_a_device_it_is_what_kernels_leave_of_the_wall() -> None:
    a, b = (
        made([{**r, "lens": "wall", "t": None} for r in steps(20, wall).events.to_dicts()])
        for wall in (900, 950)
    )
    assert compare_runs((a, b), Look()).gap_ns == 3 * 50 * US


def test_what_the_first_lines_count_beyond_it_is_said() -> None:
    """A step of 900 µs has 880 beside its kernels, 10 of them between the kernels; 50 µs more of a step, 30
    of them between its kernels.
    """
    a, b = steps(20), steps(50, wall=950)
    actual = compare_runs((a, b), Look())
    (whole,) = actual.phases.filter(what="between kernels")["delta_ns"]
    assert (whole, actual.gap_ns) == (50 * US, 3 * 30 * US)
    words = "idle time between the first and the last kernel of each step changed by +90.00 µs in total; "
    assert f"{words}the first lines include the time before and after them" in build_notes(actual, Look())
