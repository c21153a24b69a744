"""Why a step is slow: planted in a run whose times can be worked out on paper."""

import polars as pl
import pytest

from capture.load_runs import load
from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import MS, decode, made
from tracetui.analysis.slow_steps import compare_steps, explain_step
from tracetui.look import Look
from tracetui.samples import find_sample
from tracetui.views import ask, load_view

SPIKE = 17
USAGE_EXIT = 2


def test_compare_steps_with_a_spike_marks_that_step_although_all_grow_with_context() -> None:
    steps = compare_steps(decode(steps=40, spike=SPIKE))
    assert steps.filter("slow")["step"].to_list() == [SPIKE]
    assert compare_steps(decode(steps=40)).filter("slow").is_empty()
    assert steps.filter(step=0)["like_times"].to_list() == [None]  # the one prefill


def test_explain_step_of_a_spike_returns_what_was_planted() -> None:
    """In the spike each of 4 layers has two more times 400 µs of down, and 20 µs of norm."""
    difference = explain_step(decode(steps=40, spike=SPIKE), SPIKE)
    assert difference is not None and difference.like == 24 and difference.phase == "decode"
    rows = difference.rows.filter(pl.col("delta_ns").abs() > 50_000)
    assert rows.select("what", "delta_ns").rows() == [
        ("mlp.down", 4 * 2 * 400_000),
        ("norm", 4 * 2 * 20_000),
    ]
    whole = difference.took_ns - difference.median_ns
    assert whole == pytest.approx(difference.rows["delta_ns"].sum(), abs=2)
    note = ask(load_view("why"), [decode(steps=40, spike=SPIKE)], Look()).notes[0]
    assert note.startswith(f"step {SPIKE} took") and "mlp.down +3.200 ms" in note


def test_compare_steps_and_explain_step_have_one_ratio_for_each_step() -> None:
    run = load(find_sample("decode"))[0]
    differences = {step: explain_step(run, step) for step in range(49)}
    ratios = {step: d.took_ns / d.median_ns for step, d in differences.items() if d is not None}
    likes = compare_steps(run).drop_nulls("like_times").select("step", "like_times").rows()
    assert len(likes) == 48 and dict(likes) == pytest.approx(ratios, rel=1e-12)


def test_explain_step_with_a_late_kernel_returns_the_gap_and_the_counter_beside_it() -> None:
    rows = []
    for step in range(20):
        late, begin, mhz = 3 * MS if step == 9 else 0, step * 10 * MS, 900.0 if step == 9 else 1800.0
        rows += [
            {"kind": "kernel", "name": "gemm", "t": begin + late, "dur": 4 * MS},
            {"kind": "step", "name": "s", "t": begin, "dur": 5 * MS + late},
            {
                "kind": "counter",
                "name": "clock",
                "unit": "MHz",
                "t": begin + MS,
                "value": mhz,
            },
        ]
        rows[-3:] = [{"step": step, "phase": "decode", "lens": "wall", **row} for row in rows[-3:]]
    difference = explain_step(made(rows), 9)
    assert difference is not None
    assert difference.counters.rows() == [("clock", 900.0, 1800.0, "MHz")]


def test_explain_step_without_its_like_returns_none() -> None:
    run = decode(steps=4)
    assert explain_step(run, 2) is None and explain_step(run, 99) is None
    answer = ask(load_view("why"), [run], Look(focus=(("step", 2),)))
    assert "too few similar steps" in answer.notes[0]
    kernels = run.events.filter(kind="kernel", step=2)
    assert answer.rows["step_ns"].is_sorted(descending=True) and answer.rows.columns[0] == "what"
    assert answer.rows["step_ns"].sum() == kernels["dur"].sum()
    unknown = ask(load_view("why"), [run], Look(focus=(("step", 99),)))
    assert unknown.rows.is_empty()


def test_steps_with_a_spike_mark_it_and_name_the_way_to_why() -> None:
    answer = ask(load_view("steps"), [decode(steps=40, spike=SPIKE)], Look())
    assert answer.rows.filter(pl.col("mark") == "slow")["step"].to_list() == [SPIKE]
    assert answer.notes[0].startswith(f"slower than similar steps: step {SPIKE} (")


def test_report_steps_with_why_prints_the_difference() -> None:
    sample = find_sample("decode")
    done = tracetui("report", "steps", sample, "--why", "18")
    assert done.returncode == 0 and done.stdout.startswith("step 18 took")
    for words in (("report", "kernels", sample, "--why", "18"), ("report", "steps", sample, "--why", "x")):
        assert tracetui(*words).returncode == USAGE_EXIT
    assert "step 18 took" in tracetui("digest", sample, "--tokens", "4000").stdout


def test_report_steps_with_why_leaves_no_focus_behind() -> None:
    sample = find_sample("decode")
    before = tracetui("report", "kernels", sample).stdout
    tracetui("report", "steps", sample, "--why", "18")
    assert tracetui("report", "kernels", sample).stdout == before


def test_explain_step_against_another_returns_the_difference_of_the_two() -> None:
    """Step 20 has 10 contexts of 2 tokens more than step 10, at 10 µs each in 4 layers; step 17 the spike."""
    run = decode(steps=40, spike=SPIKE)
    difference = explain_step(run, 20, 10)
    assert difference is not None and difference.like == 1
    assert difference.rows.filter(pl.col("delta_ns") != 0).select("what", "delta_ns").rows() == [
        ("attn.core", 4 * 20 * 10_000)
    ]
    spiked = explain_step(run, SPIKE, SPIKE - 1)
    assert spiked is not None and spiked.rows["what"][0] == "mlp.down"
    assert spiked.rows["delta_ns"][0] == 4 * 2 * 400_000
    assert explain_step(run, 20, 99) is None and explain_step(run, 20, 20) is None


def test_report_steps_with_why_against_another_step_names_both() -> None:
    sample = find_sample("decode")
    done = tracetui("report", "steps", sample, "--why", "18", "--against", "17")
    assert done.returncode == 0 and done.stdout.startswith("step 18 (b) took 18.30 ms, 1.28× step 17 (a: ")
    for words in (
        ("--against", "17"),
        ("--why", "slowest", "--against", "1"),
        ("--why", "1", "--against", "x"),
    ):
        assert tracetui("report", "steps", sample, *words).returncode == USAGE_EXIT
    by_focus = tracetui("report", "why", sample, "--focus", "step=17,18")
    assert by_focus.stdout == done.stdout


def test_enter_on_a_row_of_a_step_selects_by_op_or_by_name() -> None:
    """A kernel without an op is found by its name; idle time has nothing to open."""
    view = load_view("why")
    look = Look(focus=(("step", SPIKE),))
    answer = ask(view, [decode(steps=40, spike=SPIKE)], look)
    assert view.find_focus is not None
    assert view.find_focus(answer, look) == (("op", "mlp.down"),)
    rows = [
        {"kind": "kernel", "name": "gemm", "t": s * 10 * MS, "dur": MS, "step": s, "lens": "gpu"}
        for s in range(20)
    ]
    answer = ask(view, [made(rows)], look)
    assert view.find_focus(answer, look) == (("name", "gemm"),)


def test_two_steps_of_different_work_are_said_to_be_that() -> None:
    run = decode(steps=40)
    events = run.events.filter(kind="step").sort("step")
    (_, prompt), (_, block) = events.select("step", "tokens").head(2).rows()
    lead = ask(load_view("why"), [run], Look(focus=(("step", (0, 5)),))).notes[:2]
    assert lead[0].startswith("step 5 (b) took")
    assert lead[1] == f"a and b compute different work: phase prefill → decode, tokens {prompt} → {block}"
    alike = ask(load_view("why"), [run], Look(focus=(("step", (4, 5)),))).notes
    assert not any("different work" in note for note in alike)


def test_one_step_is_not_compared_with_itself() -> None:
    result = tracetui("report", "steps", find_sample("decode"), "--why", "7", "--against", "7")
    assert result.returncode == USAGE_EXIT and "name one step" in result.stderr
