"""Steps beside their wall times, by value."""

from collections import defaultdict
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.import_log import Log
from capture.load_runs import load
from capture.native.schema import RECORDING_NAME
from capture.run import Run, build_run
from capture.tasks import Cancelled, CancelToken, run_parallel, use_token
from tests.conftest import shared
from tests.tracetui.analysis.time.test_idle_gaps import call
from tests.tracetui.runs import decode, made
from tracetui.analysis.summary import build_run_facts
from tracetui.analysis.time.step_table import (
    assign_trend_cells,
    compute_decode_rate,
    compute_step_durations,
    compute_step_table,
    compute_step_totals,
    note_device_rates,
)
from tracetui.compare.evidence.phase_totals import compute_phase_totals
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.ui.run_info import describe_run
from tracetui.views import ask, load_view

US = 1000


def test_a_step_is_set_beside_its_wall_time() -> None:
    rows = compute_step_table(decode(steps=3, layers=2), Look()).to_dicts()
    kernels = [2 * (100 + 10 * c + 400 + 20) * 1000 for c in (10, 12, 14, 16)]
    assert [r["total_ns"] for r in rows] == kernels
    assert [r["wall_ns"] for r in rows] == [k + 500_000 for k in kernels]
    assert [r["gap_ns"] for r in rows] == [500_000] * 4
    assert [r["per_token_ns"] for r in rows] == [k // n for k, n in zip(kernels, (10, 2, 2, 2), strict=True)]
    assert rows[1]["tokens_per_s"] == pytest.approx(2e9 / rows[1]["wall_ns"])
    assert [r["phase"] for r in rows] == ["prefill", "decode", "decode", "decode"]


def test_lenses_of_a_step_stand_beside_each_other() -> None:
    run = made(
        [{"name": "a", "dur": d, "lens": x, "step": 1} for d, x in ((5, "gpu"), (9, "wall"), (2, "wait"))]
    )
    (row,) = compute_step_table(run, Look()).to_dicts()
    assert (row["total_ns"], row["wall_total_ns"], row["wait_total_ns"]) == (5, 9, 2)


def test_kernels_that_outlast_the_wall_leave_no_gap() -> None:
    run = made(
        [
            {"kind": "step", "name": "s", "step": 1, "dur": 10},
            {"kind": "kernel", "name": "a", "dur": 12, "step": 1},
        ]
    )
    (row,) = compute_step_table(run, Look()).to_dicts()
    assert (row["wall_ns"], row["gap_ns"], row["gap_share"]) == (10, None, None)


def on_two_clocks(
    windows: list[tuple[int, int]], hosts: list[tuple[int, int]], *more: dict[str, Any], launches: bool = True
) -> Run:
    """A decode step of 4 tokens for each pair of device window and host step: starts and ends in µs.

    Each window is full of two kernels, with 1 µs of nothing between them.
    """
    rows: list[dict[str, Any]] = list(more)
    for number, ((begin, end), (start, stop)) in enumerate(zip(windows, hosts, strict=True), 1):
        shared = {"step": number, "phase": "decode"}
        middle = (begin + end) // 2
        if launches:
            rows.append(call("aten::mm", begin - 5, 3, "main"))
        for t, until in ((begin, middle), (middle + 1, end)):
            launch = {"launch": (t - 4) * US, "launch_dur": US, "launcher": "main"} if launches else {}
            rows.append({"kind": "kernel", "name": "gemm", "lens": "gpu", "track": "gpu0/1", "t": t * US,
                         "dur": (until - t) * US, **shared, **launch})  # fmt: skip
        rows.append({"kind": "step", "name": "step", "t": start * US, "dur": (stop - start) * US, "tokens": 4,
                     **shared})  # fmt: skip
    return made(rows)


def took(run: Run) -> list[float]:
    return [ns / US for ns in compute_step_durations(run)["took_ns"]]


def rates(run: Run) -> list[float]:
    return list(compute_step_table(run, Look())["tokens_per_s"])


def test_the_host_says_how_long_a_step_took_that_holds_the_work_of_the_device() -> None:
    run = on_two_clocks([(10, 90), (110, 190)], [(0, 100), (100, 200)])
    assert took(run) == [100, 100] and rates(run) == [40_000, 40_000]
    assert not compute_step_durations(run)["on_device"].any() and not note_device_rates(run)


def test_a_host_that_runs_ahead_is_no_measure_of_steps() -> None:
    """Calls of 5 µs for windows of 80: the second step took from the end of the first to its own end."""
    run = on_two_clocks([(10, 90), (110, 190)], [(0, 5), (5, 10)])
    assert took(run) == [80, 100]
    assert rates(run) == [pytest.approx(4 / 80e-6), pytest.approx(4 / 100e-6)]
    words = "tokens/s use the device time of 2 steps (180.0 µs), not host time (10.00 µs)"
    assert words in ask(load_view("steps"), [run], Look()).notes
    assert (
        dict(build_run_facts(run).select("name", "text").iter_rows())["decode tokens/s"]
        == "44,444 (device: 180.0 µs)"
    )


def test_tokens_are_counted_against_the_wall_also_between_and_across_steps() -> None:
    """Steps with gaps last until the next; of two threads, time in which both decode counts once."""
    gaps = on_two_clocks([(0, 10), (100, 110), (200, 210)], [(0, 60), (100, 160), (200, 260)])
    assert took(gaps) == [100, 100, 60]
    assert compute_decode_rate(gaps) == pytest.approx(12 / 260e-6)
    threads = on_two_clocks([(0, 10), (50, 60), (110, 120)], [(0, 100), (50, 150), (105, 200)])
    assert took(threads) == [100, 100, 95]
    assert compute_decode_rate(threads) == pytest.approx(12 / 200e-6)


def test_the_recorders_own_work_is_in_no_duration() -> None:
    """60 µs of it make the second step no longer than the others."""
    hosts = [(100 * n + 60 * (n > 1), 100 * n + 100 + 60 * (n > 0)) for n in range(4)]
    own = {"kind": "span", "name": RECORDING_NAME, "lens": "wall", "t": 100 * US, "dur": 60 * US, "step": 2}
    run = on_two_clocks([(a, a + 10) for a, _ in hosts], hosts, own)
    assert took(run) == [100] * 4
    assert compute_decode_rate(run) == pytest.approx(16 / 400e-6)


def test_a_pause_between_steps_is_of_no_step() -> None:
    hosts = [(0, 90), (100, 190), (200, 290), (9000, 9090)]
    assert took(on_two_clocks([(a, a + 10) for a, _ in hosts], hosts)) == [100, 100, 90, 90]


def test_windows_that_overlap_count_once() -> None:
    """The third window lies in the second: it took no time of its own."""
    assert took(on_two_clocks([(10, 90), (50, 190), (60, 180)], [(0, 5)] * 3)) == [80, 100, 0]


@pytest.mark.parametrize(
    ("launches", "pause", "counts"), [(True, 3000, False), (False, 3000, False), (False, 500, True)]
)
def test_a_long_pause_for_which_nothing_was_asked_is_of_no_step(
    launches: bool, pause: int, counts: bool
) -> None:
    """Between two steps the host did nothing, or nothing is known of it and it was over a millisecond."""
    run = on_two_clocks([(10, 90), (90 + pause, 170 + pause)], [(0, 5), (5, 10)], launches=launches)
    assert took(run) == [80, 80 + pause * counts]


def test_a_stray_kernel_and_its_hole_are_of_no_step() -> None:
    """A kernel of 1 µs, 4 ms before 300 µs of work; the host's step spans both."""
    stray = {"kind": "kernel", "name": "fill", "lens": "gpu", "track": "gpu0/1", "t": 0, "dur": US, "step": 1,
             "phase": "decode"}  # fmt: skip
    run = on_two_clocks([(4000, 4300)], [(0, 4400)], stray)
    assert took(run) == [300] and rates(run) == [pytest.approx(4 / 300e-6)]
    notes = ask(load_view("steps"), [run], Look()).notes
    assert notes[0] == "1 decode step, 4 tokens, 300.0 µs measured, 299.0 µs busy"
    took_on_device = "tokens/s use the device time of the step (300.0 µs)"
    assert f"{took_on_device}, not host time (4.400 ms)" in notes
    assert describe_run(run).tokens_per_s == pytest.approx(4 / 300e-6)


def test_of_a_served_model_tokens_are_counted_against_the_step_itself() -> None:
    """32 tokens in 10.45 ms and in 10.74: the host's steps hold a hole of 463 ms, and end before the work."""
    served = (("sglang_qwen3_8b_decode", 3062, 10.45), ("vllm_gptoss_decode", 2979, 10.74))
    for folder, rate, took_ms in served:
        (run,) = load(shared(f"samples/serving/{folder}/execution.json.gz"))
        assert rates(run) == [pytest.approx(rate, abs=0.5)]
        assert took(run) == [pytest.approx(took_ms * 1000, abs=5)]


def test_a_diff_speaks_of_the_same_step_times() -> None:
    """Of a host that runs ahead: steps of 80 and 160 µs for 4 tokens, whose calls took 5 µs each."""
    runs = [on_two_clocks([(n * us, (n + 1) * us) for n in range(8)], [(5 * n, 5 * n + 5) for n in range(8)])
            for us in (80, 160)]  # fmt: skip
    rows = {row["what"]: row for row in compute_phase_totals(Sides(tuple(runs)), Look()).to_dicts()}
    assert (rows["step"]["a_ns"], rows["step"]["b_ns"]) == (20 * US, 40 * US)


def course(first: int, count: int, width: int, each: int = 1) -> list[int]:
    """The cells of steps with these numbers, each of which stands for so many."""
    numbers = range(first, first + count * each, each)
    table = pl.DataFrame(
        {"step": numbers, "steps": [each] * count}, schema={"step": pl.Int64, "steps": pl.Int64}
    )
    return assign_trend_cells(table, width).to_list()


def test_cells_of_a_run_that_grows_stay_until_each_two_become_one() -> None:
    assert course(0, 4, 4) == [0, 1, 2, 3] and course(0, 0, 4) == []
    assert course(0, 6, 4) == [0, 0, 1, 1, 2, 2]
    assert course(0, 9, 4) == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert course(5, 6, 4) == [0, 1, 1, 2, 2, 3]  # a cell begins at a multiple of its length
    for count in range(1, 300):
        before, after = course(3, count, 48), course(3, count + 1, 48)
        assert after[:-1] == before or max(after) < max(before)
        assert max(after) < 48


def test_steps_that_were_folded_and_numbers_with_gaps_have_cells_too() -> None:
    assert course(0, 5, 48, each=8) == [0, 1, 2, 3, 4]
    numbers = [0, 1000, 2000, 9000]
    table = pl.DataFrame({"step": numbers, "steps": [1] * 4})
    assert assign_trend_cells(table, 48).to_list() == [0, 1, 2, 3] and assign_trend_cells(
        table, 2
    ).to_list() == [0, 0, 1, 1]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["prefill", "decode", None]),
        st.sampled_from([0, 1, 7, None]),
        st.sampled_from(["rank 0 / gpu0/7", "rank 3 / gpu0/7", "host"]),
        st.integers(1, 1 << 61),
    ),
    min_size=1,
    max_size=12,
)


def run_of(rows: list[tuple[str | None, int | None, str, int]]) -> Run:
    columns = ("phase", "step", "track", "dur")
    frame = pl.DataFrame([dict(zip(columns, row, strict=True)) for row in rows], infer_schema_length=None)
    frame = frame.with_columns(kind=pl.lit("kernel"), name=pl.lit("k"), lens=pl.lit("gpu"))
    return build_run("made", {}, frame, Log("made"))


@given(ROWS, st.sampled_from(["decode", None]), st.sampled_from([(0, 1), None]))
def test_the_slowest_rank_stands_for_a_step(
    rows: list[tuple[str | None, int | None, str, int]],
    phase: str | None,
    window: tuple[int, int] | None,
) -> None:
    run = run_of(rows)
    sums: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for its_phase, step, track, dur in rows:
        in_phase = phase is None or not run.has("phase") or its_phase == phase
        if step is not None and in_phase and (window is None or window[0] <= step <= window[1]):
            sums[step][track] += dur
    ranked = any(track.startswith("rank") for _, _, track, _ in rows)
    expected = {step: (max if ranked else sum)(of.values()) for step, of in sums.items()}
    if not all(value < 1 << 63 for value in expected.values()):
        return  # more than a number of 64 bits holds
    for _ in range(2):  # computed, then known
        actual = compute_step_totals(run, Look(phase=phase, window=window), "gpu")
        assert dict(actual.iter_rows()) == expected


def _read_duration(run: Run) -> int:
    return int(run.events["dur"][0])


def test_runs_are_asked_in_order_and_stop_when_nobody_waits() -> None:
    runs = [run_of([("decode", 0, "host", n)]) for n in (1, 2, 3)]
    assert run_parallel([partial(_read_duration, run) for run in runs]) == (1, 2, 3)
    token = CancelToken()
    token.cancel()
    with use_token(token), pytest.raises(Cancelled):
        run_parallel([partial(compute_step_totals, run, Look(), "gpu") for run in runs])
