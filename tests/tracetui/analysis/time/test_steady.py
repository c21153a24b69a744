"""The steady state: by hand, in views, and as the command line and a key choose it."""

from collections.abc import Sequence

import polars as pl
import pytest

from capture.errors import UsageError
from capture.import_log import Log
from capture.run import Run, build_run
from tests.tracetui.runs import made
from tracetui.analysis.time.steady import (
    SteadyState,
    count_outside_steady,
    cut_to_steady,
    describe_steady_state,
    find_steady_state,
)
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.views import ask, load_view

WARM = [900, 500, 160, *[100, 104, 96, 103, 99, 101, 100] * 2, 30]  # the median is 101, 1.5 times it 151.5


def run_of(took: Sequence[int], phases: Sequence[str] | None = None, *, wall: bool = True) -> Run:
    """A run with a step of each length, and one kernel in each that takes half of it."""
    rows, t = [], 0
    for step, dur in enumerate(took, 10):
        phase = phases[step - 10] if phases else "decode"
        if wall:
            rows.append(
                {
                    "kind": "step",
                    "lens": "wall",
                    "name": "step",
                    "t": t,
                    "dur": dur,
                    "step": step,
                    "phase": phase,
                }
            )
        rows.append(
            {
                "kind": "kernel",
                "lens": "gpu",
                "name": f"k{dur}",
                "t": t,
                "dur": dur // 2,
                "step": step,
                "phase": phase,
            }
        )
        if dur >= 50:  # a shorter one ends before its last kernel
            rows.append({**rows[-1], "name": "head", "t": t + dur // 2, "dur": 1})
        t += dur
    rows.append(
        {"kind": "kernel", "lens": "gpu", "name": "stray", "t": t, "dur": 5, "step": None, "phase": None}
    )
    rows.append(
        {"kind": "counter", "lens": None, "name": "power", "t": t, "dur": None, "step": None, "phase": None}
    )
    return build_run("made", {}, pl.DataFrame(rows, infer_schema_length=None), Log())


CASES = {
    "warm-up and a cut end": (WARM, (3, 1)),
    "even": ([100] * 6, (0, 0)),
    "one slow step in the middle is no warm-up": ([100, 100, 400, 100, 100, 100], (0, 0)),
    "exactly 1.5 times the median is steady": ([150, 100, 100, 100, 100], (0, 0)),
    "a little more is not": ([151, 100, 100, 100, 100], (1, 0)),
    "a step at half the median is whole": ([100, 100, 100, 100, 50], (0, 0)),
    "a little less is cut": ([100, 100, 100, 100, 49], (0, 1)),
    "growing with the context": ([*range(100, 140)], (0, 0)),
    "none": ([], (0, 0)),
}


@pytest.mark.parametrize(("took", "expected"), CASES.values(), ids=CASES)
def test_the_rule(took: list[int], expected: tuple[int, int]) -> None:
    assert count_outside_steady(took) == expected


@pytest.mark.parametrize("wall", [True, False])
def test_steps_outside_are_told(wall: bool) -> None:
    """By wall times, or by the kernels' where no step states one."""
    state = find_steady_state(run_of(WARM, wall=wall))
    assert state == SteadyState(13, 26, 18, warm_up=3, cut=1, phase="decode")
    assert describe_steady_state(state) == (
        "steps 13–26 (18 recorded) are steady; the first 3 took more than 1.5 times the median of "
        "decode steps and the last took less than half of the median, with fewer operations"
    )


def test_a_short_last_step_with_all_its_operations_is_whole() -> None:
    """A program that is faster in its last step: JAX's last one ends with its own work, not at the next."""
    run = run_of([100] * 5 + [30])
    whole = run.events.filter(pl.col("name") != "head")
    state = find_steady_state(Run(run.name, run.meta, whole, run.log, run.tables))
    assert state == SteadyState(10, 15, 6, warm_up=0, cut=0, phase="decode")


def test_a_quick_last_step_that_lacks_next_to_nothing_is_whole() -> None:
    """After its last token `generate` prepares no next one: two small copies of 123 operations lack."""
    run = run_of([100] * 5 + [30])
    small = pl.when(pl.col("name") == "head").then(1).otherwise("dur")
    events = run.events.with_columns(dur=small, name=pl.col("name").cast(pl.String).str.replace("k.*", "k"))
    state = find_steady_state(Run(run.name, run.meta, events, run.log, run.tables))
    assert state == SteadyState(10, 15, 6, warm_up=0, cut=0, phase="decode")


def test_one_step_outside_and_one_token_are_no_plurals() -> None:
    state = SteadyState(2, 9, 9, warm_up=1, cut=0, phase=None)
    assert describe_steady_state(state).endswith("; the first took more than 1.5 times the median of steps")
    step = {"kind": "step", "t": 0, "dur": 9, "step": 1, "phase": "prefill", "tokens": 1}
    run = made([step, {"name": "gemm", "t": 0, "dur": 5, "step": 1, "lens": "gpu"}])
    assert any("1 prefill step, 1 token, " in note for note in ask(load_view("steps"), [run], Look()).notes)


def test_steps_of_the_phase_with_most_of_them_count() -> None:
    """A long prefill in front is no warm-up of decode, and yet outside; one between stays inside."""
    phases = ["prefill", *["decode"] * 4, "prefill", *["decode"] * 3]
    state = find_steady_state(run_of([5000, 100, 100, 100, 100, 4000, 100, 100, 100], phases))
    assert state == SteadyState(11, 18, 9, warm_up=0, cut=0, phase="decode")


@pytest.mark.parametrize("took", [[], [100] * 4, [400, 400, 100, 100, 40]], ids=["none", "four", "unsettled"])
def test_nothing_is_said_of_few_steps_or_of_steps_that_never_settle(took: list[int]) -> None:
    assert find_steady_state(run_of(took)) is None
    with pytest.raises(UsageError, match="no steady state"):
        cut_to_steady(run_of(took))


def test_views_of_the_steady_part_have_its_steps_alone() -> None:
    run = run_of(WARM)
    answer = ask(load_view("steps"), [run], Look(steady=True))
    assert answer.rows["step"].to_list() == list(range(13, 27))
    assert answer.notes[0].startswith("only the steady state is included: steps 13–26 (18 recorded)")
    names = ask(load_view("kernels"), [run], Look(steady=True)).rows["name"].to_list()
    assert set(names) == {f"k{dur}" for dur in WARM[3:-1]} | {"head"}
    assert (
        ask(load_view("counters"), [run], Look(steady=True)).rows.height
        == ask(load_view("counters"), [run], Look()).rows.height
    )


def test_both_sides_of_a_comparison_are_cut_to_their_own() -> None:
    a, b, again = run_of(WARM), run_of([300, 290, *WARM]), run_of(WARM)
    sides = Sides((a, b), more_a=(again,))
    whole = ask(load_view("diff"), sides, Look()).rows
    cut = ask(load_view("diff"), sides, Look(steady=True)).rows
    assert {"k900", "k500"} <= set(whole["name"].cast(pl.String))
    assert set(cut["name"].cast(pl.String).drop_nulls()) == {f"k{dur}" for dur in WARM[3:-1]} | {"head"}


def test_the_steps_view_says_which_steps_are_steady_where_some_are_not() -> None:
    output = "steps 13–26 (18 recorded) are steady"
    assert any(note.startswith(output) for note in ask(load_view("steps"), [run_of(WARM)], Look()).notes)
    assert not any("steady" in note for note in ask(load_view("steps"), [run_of([100] * 8)], Look()).notes)
    facts = ask(load_view("summary"), [run_of(WARM)], Look()).rows
    assert facts.filter(name="steady steps")["text"].to_list() == ["13–26 (18 recorded)"]
