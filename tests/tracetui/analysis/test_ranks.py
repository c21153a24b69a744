"""Ranks by hand: work and waiting of two ranks, whose difference can be worked out on paper."""

import gzip
import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.load_runs import load_all
from capture.run import Run
from tests.bench.rank_power import NOISES, make_times, measure_false
from tests.conftest import shared
from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import made
from tracetui.analysis import ranks
from tracetui.analysis.frames.rank_permutation import compute_late_p, find_detectable_share
from tracetui.analysis.key_facts import suggest_views
from tracetui.analysis.ranks import compute_median_of_others
from tracetui.analysis.time.step_table import compute_step_table
from tracetui.compare.diff import compare_runs
from tracetui.look import Look
from tracetui.views import ask, find_focus, load_view
from tracetui.views.ink import DrawSize

US = 1_000


def together(work: list[dict[int, int]], *, timed: bool = True, phase: str = "decode") -> Run:
    """A step for each entry: the µs that each rank works; all end it with the slowest, 5 µs later.

    The work is a norm of 4 µs and a product; what is left of the step is an all-reduce.
    """
    rows: list[dict[str, Any]] = []
    clock = 0
    for step, of_rank in enumerate(work):
        end = clock + (max(of_rank.values()) + 5) * US
        for rank, us in of_rank.items():
            at = clock
            for name, length in (("rmsnorm", 4 * US), ("ffn_down", (us - 4) * US), ("all_reduce", 0)):
                length = length or end - at
                rows.append(
                    {"kind": "kernel", "name": name, "t": at if timed else None, "dur": length, "step": step,
                     "phase": phase, "lens": "wall", "track": f"rank {rank}"}
                )  # fmt: skip
                at += length
            rows.append(
                {"kind": "step", "name": phase, "t": clock, "dur": end - clock, "step": step, "phase": phase,
                 "tokens": 1, "track": f"rank {rank}"}
            )  # fmt: skip
        clock = end
    return made(rows)


WORK = [{0: 100, 1: 110}, {0: 100, 1: 130}, {0: 120, 1: 110}]


def test_the_skew_of_each_step() -> None:
    skews = ranks.compute_step_skews(ranks.compare_ranks(together(WORK), Look()))
    assert skews.rows() == [
        (0, 0, 1, 100 * US, 110 * US, 10 * US, 10 / 110, 115 * US, [100 * US, 110 * US]),
        (1, 0, 1, 100 * US, 130 * US, 30 * US, 30 / 130, 135 * US, [100 * US, 130 * US]),
        (2, 1, 0, 110 * US, 120 * US, 10 * US, 10 / 120, 125 * US, [120 * US, 110 * US]),
    ]


def test_means_and_shares_of_each_rank() -> None:
    """Walls of 115, 135, 125 µs; rank 0 works 320 of 375 µs and waits 55, rank 1 works 350 and waits 25."""
    table = ranks.compute_rank_table(ranks.compare_ranks(together(WORK), Look()), Look())
    actual = table.select("rank", "steps", "wall_ns", "work_ns", "comm_ns", "comm_share", "slowest").rows()
    assert actual == [
        (0, 3, 125 * US, 106_667, 18_333, 55 / 375, 1),
        (1, 3, 125 * US, 116_667, 8_333, 25 / 375, 2),
    ]
    assert table["behind_ns"].to_list() == [-10 * US, 10 * US]  # of −10, −30, 10 the middle one
    assert table["exposed_share"].to_list() == pytest.approx([55 / 375, 25 / 375])
    assert table["verdict"].to_list() == ["~", "~"]  # three steps are no evidence
    assert table["trend"].to_list() == [[100e3, 100e3, 120e3], [110e3, 130e3, 110e3]]


def test_a_straggler_is_named_with_its_evidence() -> None:
    """Of four ranks number 2 works 30 µs more, all of it in ffn_down, with a jitter of its own."""
    jitter = [3, 0, 5, 1, 4, 2, 6, 0, 2, 5]
    work = [
        {rank: 100 + (30 if rank == 2 else 0) + jitter[(3 * step + rank) % 10] for rank in range(4)}
        for step in range(40)
    ]
    answer = ask(load_view("ranks"), [together(work)], Look())
    assert answer.rows["verdict"].to_list()[2] == "slower"
    assert "slower" not in answer.rows.filter(answer.rows["rank"] != 2)["verdict"].to_list()
    (actual,) = [n for n in answer.notes if n.startswith("straggler")]
    assert (
        "rank 2" in actual and "slowest in 40 of 40 steps" in actual and "most of it in mlp.down, +" in actual
    )
    low, high = (
        answer.rows.row(2, named=True)["behind_low_ns"],
        answer.rows.row(2, named=True)["behind_high_ns"],
    )
    assert 25 * US < low <= answer.rows["behind_ns"][2] <= high < 35 * US


@pytest.mark.parametrize("ranks_and_steps", [(8, 3), (64, 3), (16, 10), (256, 12)])
def test_a_rank_three_times_as_slow_is_found_from_three_steps_on(ranks_and_steps: tuple[int, int]) -> None:
    for seed in range(8):
        p = compute_late_p(make_times(*ranks_and_steps, 3.0, "plain", seed))
        assert (p < 0.05).nonzero()[0].tolist() == [ranks_and_steps[0] // 2]


@pytest.mark.corpus
@pytest.mark.parametrize("noise", NOISES)
def test_equal_ranks_are_rarely_accused(noise: str) -> None:
    """5 % of 60 jobs are 3, by chance up to 7."""
    assert measure_false(8, 3, noise, 60) <= 7 / 60
    assert measure_false(8, 10, noise, 60) <= 7 / 60
    assert measure_false(2, 10, noise, 60) <= 7 / 60


def test_one_rank_of_256_that_is_4_percent_late_in_12_steps_is_found() -> None:
    """The others lie within 0.3 %: a test of signs over 12 steps called it chance (p 0.40)."""
    times = np.random.default_rng(2).normal(1e6, 1e3, (256, 12))
    times[137] *= 1.04
    assert (compute_late_p(times) < 0.05).nonzero()[0].tolist() == [137]


def test_a_spike_in_one_step_makes_no_straggler() -> None:
    times = make_times(16, 10, 1.0, "plain", 3)
    times[4, 6] *= 10
    assert (compute_late_p(times) >= 0.05).all()


def test_no_straggler_is_said_with_what_would_have_been_found() -> None:
    """Of 8 ranks with 2 % of noise in 10 steps a rank is found that is late by some 5 %."""
    times = make_times(8, 10, 1.0, "plain", 1)
    share = find_detectable_share(times)
    assert share is not None and 0.02 <= share <= 0.1
    times[np.argsort(times.sum(axis=1))[4]] *= 1 + share
    assert (compute_late_p(times) < 0.05).sum() == 1
    work = [
        {rank: int(us / 1e3) for rank, us in enumerate(step)} for step in make_times(8, 10, 1.0, "plain", 1).T
    ]
    (note,) = [n for n in ask(load_view("ranks"), [together(work)], Look()).notes if "straggler" in n]
    assert note == f"no straggler: a rank that takes {share:.0%} longer in each step would have been found"


def test_a_late_host_is_found_without_a_row_of_its_own() -> None:
    """Rank 1 comes 20 µs late to each collective; its kernels take as long as those of rank 0."""
    rows = []
    for step in range(10):
        for rank, late in ((0, 0), (1, 20)):
            begin = 1_000 * step
            product, comm = begin + late, begin + late + 50 + (step + rank) % 3
            end = begin + 100
            for name, t, dur in (("gemv", product, comm - product), ("all_reduce", comm, end - comm)):
                rows.append({"kind": "kernel", "name": name, "t": t * US, "dur": dur * US, "step": step,
                             "lens": "wall", "track": f"rank {rank}"})  # fmt: skip
            rows.append({"kind": "step", "name": "train", "t": begin * US, "dur": 100 * US, "step": step,
                         "track": f"rank {rank}"})  # fmt: skip
    answer = ask(load_view("ranks"), [made(rows)], Look())
    assert (
        answer.notes[0].startswith("straggler: rank 1 is late, 2") and "before all_reduce" in answer.notes[0]
    )
    assert answer.notes[0].endswith("most of it outside kernels: on its host, or in gaps")
    assert answer.rows["behind_ns"].to_list() == pytest.approx([-20 * US, 20 * US], abs=2 * US)
    assert next(s.text for s in suggest_views(made(rows)) if s.view == "ranks").startswith("rank 1 is late: ")


@pytest.mark.slow
def test_gloo_ranks_name_the_one_that_sleeps_before_the_collective() -> None:
    """Rank 1 sleeps 20 ms before each of ten all_reduce; in the even job nobody does."""
    folder = shared("samples/gloo_ranks")
    late = tracetui("report", "ranks", str(folder / "late"))
    (row,) = [line for line in late.stdout.splitlines() if "straggler" in line]
    assert "rank 1 is late, 20." in row and "before all_reduce" in row and "slowest in 10 of 10" in row
    even = tracetui("report", "ranks", str(folder / "even"))
    assert "is late" not in even.stdout and "would have been found" in even.stdout


def _measure_union(events: list[dict[str, Any]], names: tuple[str, ...]) -> float:
    """Measure the time in which an event with one of these beginnings runs, in µs."""
    total = until = 0.0
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["name"].startswith(names):
            end = event["ts"] + event["dur"]
            total += max(0.0, end - max(event["ts"], until))
            until = max(until, end)
    return total


@pytest.mark.corpus
@pytest.mark.parametrize(("kind", "rank"), [("late", 0), ("late", 1), ("even", 0), ("even", 1)])
def test_gloo_collectives_on_their_own_threads_are_no_gap(kind: str, rank: int) -> None:
    """The first screen of one rank: what its threads of gloo do is communication, the rest of it a gap."""
    path = shared(f"samples/gloo_ranks/{kind}/rank{rank}.pt.trace.json.gz")
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    step_us, comm_us, work_us = (
        _measure_union(events, names) / len(steps)
        for names in (("ProfilerStep#",), ("gloo:all_reduce", "c10d::allreduce_"), ("aten::mm",))
    )
    rows = json.loads(tracetui("report", "fix", str(path), "--format", "json").stdout)["rows"]
    by_id = {row["id"]: row["own_ns"] / 1e3 for row in rows}
    assert by_id["comm.all_reduce:communication"] == pytest.approx(comm_us, rel=1e-3)
    assert by_id["gap:gap"] == pytest.approx(step_us - comm_us - work_us, abs=0.01 * step_us)
    lever = next(iter(suggest_views(load_all([path])[0])))
    largest = "gap" if (kind, rank) == ("late", 1) else "comm.all_reduce (communication)"
    assert lever.text.startswith(f"most to recover: {largest} ")


def test_gloo_ranks_opened_together_wait_for_the_late_one() -> None:
    run = load_all([shared("samples/gloo_ranks/late")], merge=True)[0]
    first, second, *_ = suggest_views(run)
    assert first.text.startswith("most to recover: comm.all_reduce (another rank) 19.")
    assert second.text.startswith("rank 1 is late: 20.")


def test_equal_ranks_have_no_straggler() -> None:
    jitter = [3, 0, 5, 1, 4, 2, 6, 0, 2, 5, 1]
    work = [{rank: 100 + jitter[(3 * s + 7 * rank) % 11] for rank in range(2)} for s in range(44)]
    answer = ask(load_view("ranks"), [together(work)], Look())
    assert any(note.startswith("no straggler") for note in answer.notes)
    assert "slower" not in answer.rows["verdict"].to_list()


def test_what_overlaps_counts_once() -> None:
    """A rank on two streams: work from 0 to 60 and 40 to 100, a collective from 80 to 130."""
    spans = [("gemv", 0, 60, "a"), ("gemv", 40, 60, "a"), ("all_reduce", 80, 50, "b")]
    rows = [
        {
            "kind": "kernel",
            "name": name,
            "t": t,
            "dur": dur,
            "step": 0,
            "lens": "gpu",
            "track": f"rank {r} / {s}",
        }
        for r in range(2)
        for name, t, dur, s in spans
    ]
    table = ranks.compute_rank_table(ranks.compare_ranks(made(rows), Look()), Look())
    assert table.select("work_ns", "comm_ns", "comm_share", "exposed_share").row(0) == (
        100, 50, 50 / 130, 30 / 130,
    )  # fmt: skip


def test_without_moments_times_are_sums_and_it_is_said() -> None:
    answer = ask(load_view("ranks"), [together(WORK, timed=False)], Look())
    assert any(note.startswith("too few steps") for note in answer.notes)
    assert answer.rows["work_ns"].to_list() == [106_667, 116_667]
    assert any("times are sums" in note for note in answer.notes)


def test_ranks_without_recorded_collectives_have_no_time_in_them() -> None:
    """What is not recorded is no 0 ns: the waits are in the work."""
    run = together(WORK)
    alone = Run(run.name, run.meta, run.events.filter(pl.col("name").cast(str) != "all_reduce"), run.log)
    for view, unknown in (
        ("ranks", ("comm_ns", "comm_share", "exposed_share")),
        ("rankmap", ("comm_ns", "exposed_ns")),
    ):
        answer = ask(load_view(view), [alone], Look())
        assert answer.rows.select(unknown).null_count().row(0) == (answer.rows.height,) * len(unknown)
        assert any(note.startswith("no collectives are recorded") for note in answer.notes)
        recorded = ask(load_view(view), [run], Look())
        assert not any(recorded.rows.select(unknown).null_count().row(0))
    assert ask(load_view("collectives"), [alone], Look()).notes == (
        "no collectives are recorded among these rows",
    )
    drawn = ask(load_view("rankmap"), [alone], Look(sort="comm"))
    assert load_view("rankmap").draw(drawn, Look(sort="comm"), DrawSize(80, 20))


def test_where_nothing_matches_it_is_said() -> None:
    for look in (Look(filter="no such name"), Look(window=(90, 91)), Look(phase="prefill")):
        answer = ask(load_view("ranks"), [together(WORK)], look)
        assert answer.rows.is_empty() and answer.notes[0].startswith("no step common to all ranks")


def test_a_step_that_a_rank_lacks_is_left_out() -> None:
    actual = ranks.compare_ranks(together([*WORK, {0: 500}]), Look())
    assert actual.step_count == 3 and actual.ranks == [0, 1]


def test_the_decode_is_looked_at_unless_another_phase_is_asked_for() -> None:
    prefill = together([{0: 900, 1: 1000}], phase="prefill").events.with_columns(step=100)
    both = made([*together(WORK).events.to_dicts(), *prefill.to_dicts()])
    assert ranks.compare_ranks(both, Look()).step_count == 3
    assert ranks.compute_step_skews(ranks.compare_ranks(both, Look(phase="prefill")))[
        "skew_ns"
    ].to_list() == [100 * US]


def test_grouped_by_step_the_view_tells_the_skews() -> None:
    answer = ask(load_view("ranks"), [together(WORK)], Look(group="step"))
    assert answer.key == ("step",) and answer.rows["skew_ns"].to_list() == [10 * US, 30 * US, 10 * US]
    assert "skew of work per step (slowest − fastest): median 10.00 µs, 9.1% of the slowest" in (answer.notes)


def test_a_step_takes_what_its_slowest_rank_takes() -> None:
    """Both ranks fill the 115, 135 and 125 µs of the steps; they are not added up."""
    table = compute_step_table(together(WORK), Look())
    assert table["total_ns"].to_list() == table["wall_ns"].to_list() == [115 * US, 135 * US, 125 * US]
    only = compute_step_table(together(WORK), Look(filter="ffn_down"))
    assert only["total_ns"].to_list() == [106 * US, 126 * US, 116 * US]


def test_times_of_several_ranks_are_said_to_be_added() -> None:
    run, output = together(WORK), "times of 2 concurrent ranks are summed"
    assert any(note.startswith(output) for note in ask(load_view("kernels"), [run], Look()).notes)
    one = ask(load_view("kernels"), [run], Look(focus=(("track", "rank 1"),)))
    assert not any(note.startswith(output) for note in one.notes)
    assert one.rows["total_ns"].sum() == 375 * US


def test_a_comparison_with_another_number_of_ranks_is_doubted() -> None:
    two = together(WORK)
    one = made(two.events.filter(pl.col("track") == "rank 0").to_dicts())
    reasons = compare_runs((one, two), Look()).comparability.reasons
    assert any(reason.startswith("ranks differ: 1 against 2") for reason in reasons)
    assert not [r for r in compare_runs((two, together(WORK)), Look()).comparability.reasons if "ranks" in r]


def test_a_diff_adds_no_ranks_up_and_finds_the_one_that_changed() -> None:
    """Of twelve steps the product of rank 1 takes 116 → 176 µs in each, and rank 0 waits for it: its work
    stays at 96 µs, its all-reduce grows by as much. What a step's kernels take is not that of both.
    """
    before, after = ([{0: 100, 1: us} for _ in range(12)] for us in (120, 180))
    actual = compare_runs((together(before), together(after)), Look())
    medians = actual.rows.filter(~pl.col("name").str.contains("norm")).select("name", "rank", "median_a_ns")
    assert sorted(medians.rows()) == [
        ("all_reduce · rank 0", 0, 25 * US), ("all_reduce · rank 1", 1, 5 * US),
        ("ffn_down · rank 0", 0, 96 * US), ("ffn_down · rank 1", 1, 116 * US),
    ]  # fmt: skip
    changed = {r["name"]: r["median_delta_ns"] for r in actual.rows.to_dicts() if r["verdict"] == "slower"}
    assert changed == {"ffn_down · rank 1": 60 * US, "all_reduce · rank 0": 60 * US}
    totals = {r["what"]: (r["a_ns"], r["b_ns"]) for r in actual.phases.to_dicts()}
    assert totals["kernels"] == totals["step"] == (125 * US, 185 * US)
    assert actual.notes[0].startswith("rows of 2 ranks are separate")


def test_a_row_of_one_rank_is_entered_alone() -> None:
    runs = [together([{0: 100, 1: us} for _ in range(12)]) for us in (120, 180)]
    table = ask(load_view("diff"), runs, Look())
    place = table.rows["name"].to_list().index("ffn_down · rank 1")
    focus = find_focus(load_view("diff"), table, Look(cursor=(place, 0)))
    sides = ask(load_view("pair"), runs, Look(focus=focus)).rows
    assert sides.select("count", "p50_ns").rows() == [(12, 116 * US), (12, 176 * US)]


def test_enter_asks_about_a_rank_or_a_step() -> None:
    shown, run = load_view("ranks"), together(WORK)
    assert find_focus(shown, ask(shown, [run], Look()), Look(cursor=(1, 0))) == (("track", "rank 1"),)
    assert find_focus(shown, ask(shown, [run], Look(group="step")), Look(cursor=(2, 0))) == (("step", 2),)
    assert find_focus(shown, ask(shown, [run], Look()), Look(cursor=(9, 0))) == ()


@pytest.mark.parametrize("number", range(2, 9))
def test_the_median_of_the_others_leaves_a_rank_itself_out(number: int) -> None:
    work = np.random.default_rng(number).integers(0, 5, (number, 50)).astype(float)  # with many ties
    plain = np.stack([np.median(np.delete(work, i, axis=0), axis=0) for i in range(number)])
    assert (compute_median_of_others(work) == plain).all()


def test_one_rank_alone_is_told() -> None:
    alone = made([{"name": "gemv", "dur": 1, "step": 0, "track": "rank 0"}])
    answer = ask(load_view("ranks"), [alone], Look())
    assert answer.missing == ("several ranks",) and "the ranks view needs it" in answer.notes[0]


def test_threads_that_overlap_leave_the_gap_in_which_none_works() -> None:
    """A product from 0 to 60 of a step of 100, and a collective on a thread of its own from 40 to 90."""
    spans = [("aten::mm", 0, 60, "main"), ("gloo:all_reduce", 40, 50, "gloo")]
    rows = [
        {"kind": "kernel", "name": n, "t": t, "dur": d, "step": 0, "lens": "host", "track": on}
        for n, t, d, on in spans
    ]
    step = {"kind": "step", "name": "s", "t": 0, "dur": 100, "step": 0, "lens": "wall", "track": "main"}
    table = compute_step_table(made([*rows, step]), Look())
    assert table.select("total_ns", "wall_ns", "gap_ns", "gap_share").row(0) == (110, 100, 10, 0.1)
