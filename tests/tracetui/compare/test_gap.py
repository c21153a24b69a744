"""The time between the kernels of two runs: the idle time that the steps view tells."""

import re

import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load, load_all
from capture.run import Run, build_run
from tests.conftest import shared
from tests.tracetui.analysis.time.test_idle_gaps import US, kernel
from tests.tracetui.runs import MS, made
from tracetui.analysis.time.step_table import compute_step_table
from tracetui.compare.diff import compare_runs
from tracetui.compare.evidence.phase_totals import KERNELS, STEP, _clear_waiting_kernels, find_late_rank
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look, Terms
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


def decode(wait: int, other: int = 0, *, has_steps: bool = True, count: int = 8) -> Run:
    """Steps of three operators; so many µs pass before the last of them, and others after each."""
    rows, at = list[dict[str, object]](), 0
    for step in range(count):
        times = {"step": step, "lens": "wall"} if has_steps else {"lens": "wall"}
        start = at
        for name in ("mm", "copy", "argmax"):
            at += wait if name == "argmax" else 0
            rows.append({"kind": "kernel", "name": name, "t": at * US, "dur": (100 + step) * US} | times)
            at += 100 + step + 10 + other
        if has_steps:
            rows.append({"kind": "step", "name": "s", "t": start * US, "dur": (at - start) * US} | times)
    return made(rows)


@pytest.mark.parametrize("has_steps", [True, False], ids=["steps", "no steps"])
def test_a_wait_in_one_place_is_named_by_what_ran_before_and_after_it(has_steps: bool) -> None:
    """A sleep of 5 ms before the last operator of each step, as in a callback; and back."""
    a, b = decode(0, has_steps=has_steps), decode(5000, has_steps=has_steps)
    for runs, sign in (((a, b), "+"), ((b, a), "-")):
        lines = "\n".join(describe_decision(compare_runs(runs, Look()), Look().terms))
        change = f"{sign}5.000 ms" if has_steps else f"{sign}40.00 ms"
        waits = f"waits 40.00 ms {'longer' if sign == '+' else 'shorter'} between copy and argmax"
        assert (f"  time between copy and argmax: {change}" if has_steps else waits) in lines
        assert f"carried by time between kernels {change}" in lines


def test_threads_that_work_at_once_leave_the_time_in_which_none_does() -> None:
    """Their sum is longer than the step, as of a collective that runs beside the operator that calls it."""
    runs = []
    for wait in (0, 5000):
        rows = decode(wait).events.with_columns(pl.lit("main").cast(pl.Categorical).alias("track")).to_dicts()
        twins = [{**row, "track": "other"} for row in rows if row["name"] in ("mm", "copy")]
        runs.append(made([*rows, *twins]))
    lines = "\n".join(describe_decision(compare_runs(runs, Look()), Look().terms))
    assert "carried by time between kernels +5.000 ms" in lines
    assert "  time between copy and argmax: +5.000 ms" in lines


def test_a_real_sleep_before_a_collective_is_named() -> None:
    """Rank 1 slept 20 ms before each all_reduce of gloo, by its program; its kernels overlap."""
    folder = shared("samples/gloo_ranks")
    runs = [load(folder / side / "rank1.pt.trace.json.gz", cache=False)[0] for side in ("even", "late")]
    lines = "\n".join(describe_decision(compare_runs(runs, Look()), Look().terms))
    (wait,) = re.findall(r"\+([\d.]+) ms of it between aten::mm and c10d::allreduce_\b", lines)
    assert float(wait) == pytest.approx(20, rel=0.05)


def test_a_real_sleep_of_one_of_two_ranks_is_its_arrival() -> None:
    """The same sleep in the traces of both ranks; rank 0 waits for it in the collective."""
    folder = shared("samples/gloo_ranks")
    runs = [load_all([folder / side], cache=False, merge=True)[0] for side in ("even", "late")]
    first, *_ = describe_decision(compare_runs(runs, Look()), Look().terms)
    found = r", \+([\d.]+) ms of it between aten::mm and c10d::allreduce_ on rank 1 \(its arrival\)$"
    (wait,) = re.findall(found, first)
    assert float(wait) == pytest.approx(20, rel=0.05)
    back, *_ = describe_decision(compare_runs(runs[::-1], Look()), Look().terms)
    assert re.search(r", -20\.\d+ ms of it between aten::mm and c10d::allreduce_ on rank 1 ", back)


def test_late_rank_is_named_beside_larger_change_of_step() -> None:
    """On a loaded machine a step changes by more than a sleep; what is a tenth of the change says nothing."""
    folder = shared("samples/gloo_ranks")
    even, late = (load_all([folder / side], cache=False, merge=True)[0] for side in ("even", "late"))
    places = [find_late_rank(Sides((even, late)), None, Terms(), change * 20 * MS) for change in (1, 4)]
    assert {place and (place.after, place.ranks, place.is_arrival) for place in places} == {
        ("c10d::allreduce_", (1,), True)
    }
    again = Sides((even, even))
    assert find_late_rank(again, None, Terms(), 20.0 * MS) is None


def test_late_rank_is_the_one_that_waits_before_its_transfer_though_another_waits_longer() -> None:
    """Rank 0 sleeps 9 ms before it sends; rank 1 receives it 22 ms later, as both share a busy machine."""
    comm = {"category": "comm"}
    runs = []
    for sleep, arrival in ((0, 1), (9, 22)):
        rows = list[dict[str, object]]()
        for rank, (before, after, wait) in enumerate((("tanh", "send", sleep), ("recv", "addmm", arrival))):
            row = {"kind": "kernel", "lens": "host", "dur": MS, "track": f"rank {rank}"}
            for step in range(8):
                ends = (0, 1), (1 + wait, 1), (2 + wait, 98 - wait)  # the last one fills the step
                for name, (t, dur) in zip((before, after, "fill"), ends, strict=True):
                    time = {"step": step, "t": (100 * step + t) * MS, "dur": dur * MS}
                    rows += [row | time | {"name": name} | (comm if name in ("send", "recv") else {})]
        runs.append(made(rows))
    place = find_late_rank(Sides((runs[0], runs[1])), None, Terms(), 21.0 * MS)
    assert place and (place.before, place.after, place.ranks, place.is_arrival) == (
        "tanh",
        "send",
        (0,),
        True,
    )


@pytest.mark.parametrize(("step", "verdict"), [(20, "~"), (-20, "faster"), (2, "faster")])
def test_kernels_that_wait_for_others_are_not_faster_beside_slower_step(step: int, verdict: str) -> None:
    """Sends of 4 ms are short once the receiver is ready; the step is 20 ms longer."""
    rows = [
        (None, what, "step", 10.0, 10.0 + change, float(change), -9.0, -1.0, 0.01, "faster", 16, 0.7)
        for what, change in ((STEP, step), (KERNELS, -4))
    ]
    assert [row[9] for row in _clear_waiting_kernels(rows)] == ["faster", verdict]


def test_waits_of_ranks_without_steps_are_judged_by_equal_parts_of_the_run() -> None:
    """A sleep of 5 ms before each argmax of rank 1 alone; rank 0 waits in none of its places."""
    runs = []
    for wait in (0, 5000):
        ranks = [decode(of_rank, has_steps=False, count=24).events for of_rank in (0, wait)]
        frames = [frame.with_columns(track=pl.lit(f"rank {n}")) for n, frame in enumerate(ranks)]
        runs.append(made([row for frame in frames for row in frame.to_dicts()]))
    first, *_ = describe_decision(compare_runs(runs, Look()), Look().terms)
    assert first.startswith("time between copy and argmax on rank 1 SLOWER +120.0 ms; overall undecided: ")
    same, *_ = describe_decision(compare_runs((runs[1], runs[1]), Look()), Look().terms)
    assert "time between" not in same
    alone = describe_decision(compare_runs((decode(0, count=24), runs[1]), Look()), Look().terms)
    assert not any(" between copy" in line for line in alone), "one rank has no rank of the other run"


def test_waits_in_many_places_are_in_no_one_place() -> None:
    lines = "\n".join(describe_decision(compare_runs((decode(0), decode(0, 900)), Look()), Look().terms))
    assert "time between kernels +2.700 ms" in lines and "  time between" not in lines


def test_a_wait_is_judged_where_it_is_though_the_step_stays_undecided() -> None:
    """A sleep of 1 ms before each argmax, and interruptions of 50 µs, on a machine of unknown load."""
    sides = Sides((decode(0), decode(1000, 50)), floor=NoiseFloor(0.7))
    for runs, change in ((sides.runs, "SLOWER +1.050 ms"), (sides.runs[::-1], "FASTER -1.050 ms")):
        lines = describe_decision(compare_runs(Sides(runs, floor=sides.floor), Look()), Look().terms)
        assert lines[0].startswith(f"time between copy and argmax {change}; overall undecided: step ")
    again = compare_runs(Sides((decode(0), decode(60, 10)), floor=sides.floor), Look())
    assert describe_decision(again, Look().terms)[0].startswith("undecided: ")


def test_equal_waits_are_not_named() -> None:
    lines = "\n".join(describe_decision(compare_runs((decode(5000), decode(5000)), Look()), Look().terms))
    assert "time between" not in lines


def test_a_wait_beside_an_operation_that_only_one_run_has_is_not_named() -> None:
    a, b = decode(0), decode(5000)
    renamed = b.events.with_columns(pl.col("name").cast(pl.String).replace("argmax", "sort"))
    lines = "\n".join(
        describe_decision(compare_runs((a, build_run("b", {}, renamed, Log())), Look()), Look().terms)
    )
    assert "carried by" in lines and "  time between" not in lines
