"""Busy and idle in steps, between and outside of them: on paper, and against a real timeline."""

import csv

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import FIXTURES, shared
from tests.tracetui.runs import decode, made
from tracetui.analysis.frames.time_axis import TimeAxis
from tracetui.analysis.summary import build_run_facts
from tracetui.analysis.time import device_time, gpu_time
from tracetui.analysis.time.device_time import with_is_stray
from tracetui.analysis.time.step_table import compute_step_table
from tracetui.look import Look
from tracetui.views import ask, load_view

KERNELS = (
    # stream, name, step, start, duration
    ("1", "stray", None, 0, 5),
    ("1", "gemm", 1, 1000, 100),
    ("2", "ncclAllReduce", 1, 1050, 100),  # 50 under the gemm, 50 alone
    ("3", "Memcpy HtoD", 1, 1140, 30),  # 10 under the collective, 20 alone
    ("1", "gemm", 1, 1200, 50),  # after 30 of nothing
    ("1", "gemm", 2, 1300, 80),  # 50 after the end of step 1
)


def two_steps() -> Run:
    """Three streams at once: step 1 is computing 150, communicating alone 50, copying alone 20, idle 30."""
    category = {"gemm": "matmul", "ncclAllReduce": "comm", "Memcpy HtoD": "copy"}
    rows: list[dict[str, object]] = [
        {"kind": "kernel", "name": name, "t": t, "dur": d, "step": step, "lens": "gpu",
         "track": f"gpu0/stream{stream}", "category": category.get(name, "other")}
        for stream, name, step, t, d in KERNELS
    ]  # fmt: skip
    rows += [{"kind": "step", "name": f"step {s}", "t": 600 + 300 * s, "dur": 260, "step": s, "lens": "wall"}
             for s in (1, 2)]  # fmt: skip
    return made(rows)


def test_what_overlaps_counts_once_in_a_step() -> None:
    first, second = compute_step_table(two_steps(), Look()).to_dicts()
    assert [first[c] for c in ("total_ns", *device_time.MEASURES)] == [280, 220, 30, 50, 20]
    assert (first["wall_ns"], first["outside_ns"]) == (300, 50)  # until the next begins; the window takes 250
    assert (second["wall_ns"], second["outside_ns"]) == (260, 180)
    assert [second[c] for c in ("total_ns", *device_time.MEASURES)] == [80, 80, 0, 0, 0]


def test_notes_say_what_is_in_between_and_outside() -> None:
    notes = ask(load_view("steps"), [two_steps()], Look()).notes
    assert notes[0] == "2 steps, 360 ns measured, 300 ns busy, 53.6% of 560 ns wall"
    assert notes[1] == "the device is busy 90.9% of its 330 ns in steps; 50 ns are between steps"
    assert notes[2] == "one kernel of no step, 5 ns, 995 ns before the first step"


def test_the_summary_tells_busy_idle_and_copies_apart() -> None:
    rows = dict(build_run_facts(two_steps()).select("name", "text").iter_rows())
    assert rows["GPU busy"] == "90.9% of 330 ns in steps"
    assert rows["GPU idle"] == "30 ns in 1 gap"
    assert rows["GPU copies"] == "30 ns, 20 ns exposed"
    assert rows["GPU comm"] == "100 ns, 50 ns exposed"
    assert any("before the first step" in n for n in ask(load_view("summary"), [two_steps()], Look()).notes)


def test_devices_are_apart_and_the_busiest_stands_for_a_step() -> None:
    run = made(
        [
            {
                "kind": "kernel",
                "name": "gemm",
                "t": t,
                "dur": d,
                "step": 1,
                "lens": "gpu",
                "track": f"{gpu}/1",
            }
            for gpu, t, d in (("gpu0", 0, 10), ("gpu0", 90, 10), ("gpu1", 0, 70), ("gpu1", 80, 20))
        ]
    )
    (row,) = compute_step_table(run, Look()).to_dicts()
    assert (row["total_ns"], row["busy_ns"], row["idle_ns"]) == (110, 90, 10)
    assert {(u.device, u.busy_ns, u.idle_ns) for u in device_time.compute_usages(run)} == {
        ("gpu0", 20, 80), ("gpu1", 90, 10),
    }  # fmt: skip


def test_a_kernel_far_from_the_rest_of_its_step_does_not_stretch_it() -> None:
    """300 kernels of 10 ns with 5 ns between two of them, and one of 8 ns, 1 ms earlier."""
    body = [(1_000_000 + 10 * i + 5 * (i >= 150), 10) for i in range(300)]
    rows = [{"kind": "kernel", "name": "gemm", "t": t, "dur": d, "step": 1, "lens": "gpu", "track": "gpu0/1"}
            for t, d in [(0, 8), *body]]  # fmt: skip
    run = made(rows)
    (row,) = compute_step_table(run, Look()).to_dicts()
    assert (row["total_ns"], row["busy_ns"], row["idle_ns"]) == (3008, 3000, 5)
    notes = ask(load_view("steps"), [run], Look()).notes
    far = "one kernel, 8 ns, ran 1.000 ms before the rest of its step"
    assert f"{far}: left out of busy and idle time" in notes
    assert dict(build_run_facts(run).select("name", "text").iter_rows())["GPU idle"] == "5 ns in 1 gap"


def test_where_durations_say_it_all_nothing_is_added() -> None:
    run = decode()
    assert "busy_ns" not in compute_step_table(run, Look()).columns
    assert device_time.compute_usages(run) == ()


@pytest.mark.parametrize("look", [Look(filter="gemm"), Look(focus=(("name", "gemm"),))])
def test_a_part_of_the_kernels_tells_no_idle_time(look: Look) -> None:
    assert "idle_ns" not in compute_step_table(two_steps(), look).columns


def test_a_step_with_a_sum_of_launches_has_no_window() -> None:
    rows = [(1, 0, 10, 1), (1, 20, 10, 1), (2, 40, 10, 1), (2, None, 30, 3)]
    run = made(
        [{"kind": "kernel", "name": "a", "step": s, "t": t, "dur": d, "count": n, "lens": "gpu"}
         for s, t, d, n in rows]
    )  # fmt: skip
    assert device_time.compute_step_spans(run).select("step", "busy_ns", "idle_ns").rows() == [(1, 20, 10)]


def test_no_share_of_the_wall_is_above_all_of_it() -> None:
    (run,) = load(FIXTURES / "chrome" / "torch_decode.json", cache=False)
    answer = ask(load_view("steps"), [run], Look())
    assert answer.rows["busy_ns"].to_list() == [77_166, 72_233]
    assert answer.notes[0].endswith("149.4 µs busy, more than the 117.0 µs wall")
    assert answer.rows["outside_ns"].to_list() == [None, None]  # windows of 77 and 72 µs, walls of 58 and 59


def test_the_summary_agrees_with_a_reference_timeline() -> None:
    folder = "samples/serving/sglang_qwen3_8b_decode"
    with shared(f"{folder}/gpu_timeline.csv").open() as f:
        stated = {row["type"]: float(row["time ms"]) * 1e6 for row in csv.DictReader(f)}
    (run,) = load(shared(f"{folder}/execution.json.gz"), cache=False)
    whole = gpu_time.compute_span_breakdown(
        TimeAxis.from_rows(gpu_time.select_device_rows(run).collect(), ())
    ).row(0, named=True)
    assert whole["busy_ns"] == pytest.approx(stated["busy_time"], rel=1e-3)
    assert whole["idle_ns"] == pytest.approx(stated["idle_time"], rel=1e-3)
    for use in device_time.compute_usages(run):
        assert use.busy_ns <= whole["busy_ns"] and use.span_ns <= whole["span_ns"]
        if use.steps:  # without the kernel that ran 463 ms earlier
            assert use.busy_ns / use.span_ns == pytest.approx(0.93, abs=0.01)
            assert (use.idle_ns, use.gaps) == (pytest.approx(682_000, rel=0.01), 5)
        else:
            assert (use.busy_ns, use.idle_ns) == (whole["busy_ns"], whole["idle_ns"])
            assert (use.gaps, round(use.in_gaps_ns / 1e6, 1)) == (1, 463.3)


def test_a_kernel_that_ran_long_before_its_step_is_told_apart() -> None:
    """On the trace of a serving engine: by hand, one kernel of 4.2 µs ran 463 ms before the other 557."""
    (run,) = load(shared("samples/serving/sglang_qwen3_8b_decode/execution.json.gz"), cache=False)
    (usage,) = device_time.compute_usages(run)
    assert usage.busy_ns / usage.span_ns == pytest.approx(0.935, abs=0.001)
    assert usage.idle_ns == pytest.approx(682_000, rel=0.01) and usage.gaps == 5
    (stray,) = device_time.find_stray_kernels(run)
    assert (stray.side, stray.count) == ("early", 1) and stray.distance_ns == pytest.approx(463.3e6, rel=1e-3)


def strays(rows: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    frame = pl.DataFrame(rows, schema=["step", "t", "dur"], orient="row")
    table = with_is_stray(frame, ["step"])
    return table.filter("is_stray").select("step", "t").rows()


def test_a_kernel_far_before_its_step_is_a_stray() -> None:
    body = [(1, 1_000_000 + 10 * i, 10) for i in range(300)]
    assert strays([(1, 0, 5), *body]) == [(1, 0)]
    assert strays([*body, (1, 9_000_000, 5)]) == [(1, 9_000_000)]


def test_a_large_part_is_no_stray_however_far() -> None:
    assert strays([(1, 0, 500), *((1, 1_000_000 + 10 * i, 10) for i in range(300))]) == []


def test_gaps_within_a_step_make_no_strays() -> None:
    assert strays([(1, 0, 5), (1, 40, 5), (1, 90, 5), (1, 130, 5)]) == []
    assert strays([(1, 0, 5)]) == []


def test_each_step_is_judged_by_itself() -> None:
    one = [(1, 10 * i, 10) for i in range(300)]
    two = [(2, 50_000_000 + 10 * i, 10) for i in range(300)]
    assert strays([*one, (2, 10, 1), *two]) == [(2, 10)]
