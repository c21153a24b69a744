"""Rows that were seen in windows: what they are scaled to is known, because all of it was made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.device_roofs import Roof, save_measured_roof
from capture.load_runs import load
from capture.native import tail
from capture.native.emit import Emitter
from capture.native.schema import UNWATCHED_NAME
from capture.record.profiler_windows import emit_window
from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.kernels import compute_kernel_table, compute_total_table
from tracetui.analysis.summary import build_run_facts, note_summary
from tracetui.analysis.time import step_sampling
from tracetui.compare.diff import compare_runs
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import load_view

STEPS = range(1, 41)
WATCHED = (4, 11, 12, 26, 37)
PARTS = {"attention": 0.6, "ffn_down": 0.3, "rmsnorm": 0.1}
LOOK = Look(lens="gpu")


def true_us(step: int) -> int:
    """What a step takes when nobody watches it."""
    return 1000 + 20 * step


def device(watched: tuple[int, ...] = WATCHED, *, slower: float = 1.5, spans: bool = True) -> Run:
    """A decode whose layers are timed in every step and whose kernels in some; watching slows a step down."""
    rows: list[dict[str, Any]] = [
        {"kind": "counter", "name": "capture cost", "t": 1, "value": 2.1, "unit": "%"}
    ]
    clock = 0
    for step in STEPS:
        facts = {"step": step, "phase": "decode"}
        took = true_us(step) * 1000
        shown = round(took * slower) if step in watched else took
        rows.append({"kind": "step", "name": "decode", "t": clock, "dur": shown, "tokens": 1, **facts})
        rows.append({"kind": "kernel", "name": "launch", "t": clock, "dur": shown, "lens": "host", **facts})
        if spans:
            rows.append({"kind": "span", "name": "layer", "t": clock, "dur": shown, "lens": "gpu", **facts})
        if step in watched:
            window = {"kind": "span", "name": "profiler window", "op": "window", "t": clock, "lens": "gpu"}
            rows.append(window | facts)
            for name, part in PARTS.items():
                dur = round(took * part)
                rows.append({"kind": "kernel", "name": name, "t": clock, "dur": dur, "lens": "gpu", **facts})
        clock += shown
    return made(rows)


TRUE_NS = sum(map(true_us, STEPS)) * 1000
SEEN_NS = sum(map(true_us, WATCHED)) * 1000


@pytest.mark.parametrize("spans", [True, False], ids=["by layer spans", "by wall time"])
def test_totals_are_those_of_all_steps_though_watching_slows_them_down(spans: bool) -> None:
    table = compute_kernel_table(device(spans=spans), LOOK)
    for row in table.iter_rows(named=True):
        part = PARTS[row["name"]]
        assert row["total_ns"] == pytest.approx(part * TRUE_NS, rel=1e-9)
        assert row["measured_ns"] == pytest.approx(part * SEEN_NS, rel=1e-9)
        assert row["scale"] == pytest.approx(TRUE_NS / SEEN_NS)
        assert row["count"] == len(STEPS)
        assert row["share"] == pytest.approx(part)
        assert row["mean_ns"] == pytest.approx(part * SEEN_NS / len(WATCHED), rel=1e-6)
        assert row["min_ns"] == round(part * true_us(WATCHED[0]) * 1000)


def test_short_tables_filters_and_shares_a_step_agree() -> None:
    run = device()
    short = {r["name"]: r for r in compute_total_table(run, LOOK).iter_rows(named=True)}
    assert short["attention"]["total_ns"] == pytest.approx(0.6 * TRUE_NS, rel=1e-9)
    (only,) = compute_kernel_table(run, Look(lens="gpu", filter="rms")).iter_rows(named=True)
    assert only["share"] == pytest.approx(0.1)
    per = {
        r["name"]: r for r in compute_kernel_table(run, Look(lens="gpu", per="step")).iter_rows(named=True)
    }
    assert per["attention"]["total_ns"] == pytest.approx(0.6 * TRUE_NS / len(STEPS), rel=1e-6)


def test_a_range_of_steps_is_scaled_to_itself_and_a_step_to_nothing() -> None:
    run = device()
    (row,) = compute_kernel_table(run, Look(lens="gpu", window=(10, 13), filter="attention")).iter_rows(
        named=True
    )
    assert row["total_ns"] == pytest.approx(600 * sum(map(true_us, range(10, 14))), rel=1e-9)
    (row,) = compute_kernel_table(run, Look(lens="gpu", window=(11, 11), filter="attention")).iter_rows(
        named=True
    )
    assert row["total_ns"] == 600 * true_us(11) and "scale" not in row
    assert compute_kernel_table(run, Look(lens="gpu", window=(17, 17))).is_empty()
    assert step_sampling.note_sampling(run, Look(lens="gpu", window=(17, 17)), scaled=True) == [
        "step 17 was not sampled; the nearest sampled: 12 and 26"
    ]
    by_step = compute_kernel_table(run, Look(lens="gpu", group="step"))
    assert by_step["total_ns"].sum() == pytest.approx(SEEN_NS, rel=1e-9)


def test_what_was_seen_in_every_step_is_left_alone() -> None:
    always = device(tuple(STEPS))
    for run, look in ((always, LOOK), (device(), Look(lens="host")), (device(()), LOOK)):
        table = compute_kernel_table(run, look)
        assert not {"scale", "measured_ns"} & set(table.columns)
        assert (
            step_sampling.note_sampling(run, look, scaled=True) == []
            and step_sampling.compute_sampled_share(run, look) == 1.0
        )
    assert compute_kernel_table(always, LOOK)["total_ns"].sum() == pytest.approx(TRUE_NS, rel=1e-9)


def test_the_report_says_it_in_words_and_in_numbers() -> None:
    actual = json.loads(format_report(load_view("kernels"), [device()], LOOK, "json"))
    rows = {r["name"]: r for r in actual["rows"]}
    assert rows["attention"]["total_ns"] / rows["attention"]["measured_ns"] == pytest.approx(
        rows["attention"]["scale"], rel=1e-6
    )
    note = next(n for n in actual["notes"] if "not sampled" in n or "recorded in" in n)
    assert note.startswith("gpu rows were recorded in 5 of 40 decode steps (the last ")
    assert "capture cost 2.1%" in note and "scaled to all steps" in note
    printed = format_report(load_view("kernels"), [device()], LOOK)
    assert f"×{TRUE_NS / SEEN_NS:.3g}" in printed and "5 of 40 decode steps" in printed


def test_a_phase_that_nobody_watched_is_named() -> None:
    prefill = [
        {"kind": "step", "name": "prefill", "step": 0, "phase": "prefill", "t": 0, "dur": 10**6, "tokens": 9}
    ]
    run = made([*prefill, *device().events.to_dicts()])
    assert (
        step_sampling.note_sampling(run, LOOK, scaled=True)[1]
        == "no window in prefill: its gpu rows are unknown"
    )
    assert compute_kernel_table(run, LOOK)["total_ns"].sum() == pytest.approx(TRUE_NS, rel=1e-9)


def test_a_diff_scales_both_sides_and_compares_only_what_was_watched() -> None:
    """The same kernels, watched in other steps: totals agree, and no step without rows counts as faster."""
    other = tuple(sorted({*WATCHED, *range(2, 41, 3)}))
    actual = compare_runs((device(), device(other)), LOOK)
    for row in actual.rows.iter_rows(named=True):
        assert row["total_a_ns"] == pytest.approx(PARTS[row["name"]] * TRUE_NS, rel=1e-6)
        assert row["total_b_ns"] == pytest.approx(PARTS[row["name"]] * TRUE_NS, rel=1e-6)
        assert (row["count_a"], row["count_b"]) == (len(STEPS), len(STEPS))
        assert row["verdict"] not in ("faster", "slower")
    assert actual.gap_ns is None
    assert [n for n in actual.notes if "recorded in 5 of 40 decode steps" in n]
    assert actual.comparability.reasons == ()


def test_windows_against_all_steps_is_a_reason() -> None:
    actual = compare_runs((device(), device(tuple(STEPS))), LOOK)
    assert any("12% of the steps against 100%" in reason for reason in actual.comparability.reasons)
    assert actual.rows["delta_ns"].abs().max() <= 40


def test_slower_kernels_are_found_in_the_steps_that_both_watched() -> None:
    """Every step watched in one run, every other in the other: these are compared."""
    slow = made([{**row, "dur": row["dur"] * (2 if row["name"] == "attention" else 1)}
                 if row["kind"] == "kernel" else row
                 for row in device(tuple(STEPS)[::2]).events.to_dicts()])  # fmt: skip
    actual = compare_runs((device(tuple(STEPS)), slow), LOOK)
    verdicts = dict(actual.rows.select("name", "verdict").rows())
    assert verdicts["attention"] == "slower" and verdicts["rmsnorm"] not in ("slower", "faster")
    assert any(how.startswith("decode: 2") and "sampled steps" in how for how in actual.notes)


def test_what_was_folded_while_it_grew_is_scaled_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step in eight is watched; of long ago only blocks of steps are left."""
    monkeypatch.setattr(tail, "RECENT_EVENTS", 100)
    path, took = tmp_path / "live.jsonl", 1_000_000
    emitter = Emitter(path)
    emitter.run("long")
    emitter.plan([{"id": 0, "name": "attention", "lens": "gpu"}, {"id": 1, "name": "launch", "lens": "host"}])
    for step in range(1, 401):
        if step % 8 == 4:
            emit_window(emitter, "gpu", step=step, phase="decode")
            emitter.columns([0], [step * took], [took // 2], step=step, phase="decode")
        emitter.columns([1], [step * took], [took], step=step, phase="decode")
        emitter.step(step, step * took, took, tokens=1)
    emitter.end()
    following = tail.FileTail(path)
    while following.poll():
        pass
    (run,) = following.build_runs(is_final=True)
    assert run.meta["folded"]["before"] > 300
    (row,) = compute_kernel_table(run, LOOK).iter_rows(named=True)
    assert (row["total_ns"], row["count"]) == (400 * took // 2, 400)
    assert row["scale"] == pytest.approx(8)
    assert step_sampling.note_sampling(run, LOOK, scaled=True)[0].startswith(
        "gpu rows were recorded in 50 of 400 decode steps"
    )


def watched_in_turn(unwatched: set[int], cost: float) -> Run:
    """40 steps of 1 ms and more; those with rows of their modules take longer by a factor."""
    rows: list[dict[str, Any]] = []
    clock = 0
    for step in STEPS:
        took = round(1000 * true_us(step) * (1.0 if step in unwatched else cost))
        facts = {"step": step, "phase": "decode", "t": clock, "dur": took}
        rows.append({"kind": "step", "name": "decode", "tokens": 1, **facts})
        row = (
            {"kind": "span", "name": UNWATCHED_NAME}
            if step in unwatched
            else {"kind": "kernel", "name": "mlp"}
        )
        rows.append({**row, "op": "host", "lens": "wall", **facts})
        clock += took
    return made(rows)


def test_steps_without_rows_tell_what_rows_cost() -> None:
    unwatched = set(range(4, 41, 5))
    estimate = step_sampling.estimate_unwatched_step(watched_in_turn(unwatched, 1.1))
    assert estimate is not None
    assert estimate.watched_ns / estimate.unwatched_ns == pytest.approx(1.1, rel=0.001)
    assert estimate.low_ns == pytest.approx(estimate.high_ns, rel=0.01)
    assert estimate.unwatched_ns == pytest.approx(1000 * true_us(22), rel=0.05)
    report = format_report(load_view("summary"), [watched_in_turn(unwatched, 1.1)], Look(), "json")
    assert "watched 1.5" in report and "+10.0%" in report


def test_few_steps_without_rows_tell_nothing() -> None:
    assert step_sampling.estimate_unwatched_step(watched_in_turn({4, 9, 14}, 1.1)) is None


def test_rows_stand_for_the_steps_without_rows() -> None:
    run = watched_in_turn(set(range(4, 41, 5)), 1.0)
    total = compute_total_table(run, Look()).row(0, named=True)["total_ns"]
    assert total == pytest.approx(sum(1000 * true_us(step) for step in STEPS), rel=0.001)


def write_profile(path: Path, *, inner: int, **header: object) -> Path:
    """Write a trace of eight steps of 2 ms, each of 40 ops around `inner` others of 1 µs, 0.4 µs apart."""
    events: list[dict[str, Any]] = []
    for step in range(8):
        start = 2500.0 * step
        thread = {"ph": "X", "pid": 1, "tid": 1}
        name = f"ProfilerStep#{step}"
        events.append({**thread, "cat": "user_annotation", "name": name, "ts": start, "dur": 2000.0})
        for op in range(40):
            begin = start + 10 + 40 * op
            outer = {"cat": "cpu_op", "name": "aten::linear", "ts": begin, "dur": 1.4 * inner}
            events.append({**thread, **outer})
            for place in range(inner):
                each = {"cat": "cpu_op", "name": "aten::addmm", "ts": begin + 0.2 + 1.4 * place, "dur": 1.0}
                events.append({**thread, **each})
    path.write_text(json.dumps({"schemaVersion": 1, "host_name": "here", **header, "traceEvents": events}))
    return path


def estimate(path: Path) -> step_sampling.UnprofiledStep | None:
    (run,) = load(path, cache=False)
    return step_sampling.estimate_unprofiled_step(run)


def test_unprofiled_step_is_the_profiled_one_less_the_cost_of_its_ops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write_profile(tmp_path / "trace.json", inner=1)
    assert estimate(path) is None, "nothing is measured"
    save_measured_roof(Roof("cpu", "measured", 1.0, profiled_op_ns=300.0, host="elsewhere"))
    assert estimate(path) is None, "another machine is measured"
    save_measured_roof(Roof("cpu", "measured", 1.0, profiled_op_ns=300.0, host="here"))
    step = estimate(path)
    assert step is not None and step.unprofiled_ns is not None
    gap_ns = 40 * 1400 + 39 * 20_000  # within the ops, and between them: of 38.6 µs, 20 count
    cost_ns = 300 * 0.66 * 80 + 0.12 * gap_ns
    middle, low, high = step.unprofiled_ns
    assert step.profiled_ns == 2e6
    assert middle == pytest.approx(2e6 - cost_ns)
    assert low == pytest.approx((2e6 - 1.3 * cost_ns) * 0.985)
    assert high == pytest.approx((2e6 - 0.75 * cost_ns) * 1.015)
    stacked = estimate(write_profile(tmp_path / "stacked.json", inner=1, with_stack=1))
    assert stacked is not None and stacked.unprofiled_ns is not None
    assert stacked.unprofiled_ns[0] == pytest.approx(2e6 - 300 * 0.54 * 80 - 0.21 * gap_ns)
    (run,) = load(path, cache=False)
    facts = dict(build_run_facts(run).select("name", "text").rows())
    told = "1.884 ms a step (1.821 ms to 1.942 ms); profiled 2.000 ms, cost measured on here"
    assert facts["unprofiled"] == told
    assert not any("unknown time" in note for note in note_summary(run, Look()))


def test_unprofiled_step_is_unsure_with_many_ops_and_unknown_with_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_measured_roof(Roof("cpu", "measured", 1.0, profiled_op_ns=1500.0, host="here"))
    many = write_profile(tmp_path / "many.json", inner=25)
    step = estimate(many)
    assert step is not None and step.unprofiled_ns is None
    (run,) = load(many, cache=False)
    facts = dict(build_run_facts(run).select("name", "text").rows())
    assert facts["unprofiled"].startswith("unsure: the profiler's part is too large")
    for option in ("with_modules", "record_shapes", "profile_memory"):
        assert estimate(write_profile(tmp_path / f"{option}.json", inner=1, **{option: 1})) is None
