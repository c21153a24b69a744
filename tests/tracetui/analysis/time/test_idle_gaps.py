"""Causes of gaps, worked out by hand: when each launch was called, and what its thread did before."""

from random import Random
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import shared
from tests.tracetui.runs import made
from tracetui.analysis.ledger.step_ledger import GAP, compute_ledger
from tracetui.analysis.time import device_time, host_waits, idle_gaps
from tracetui.analysis.time.idle_gaps import (
    DEPENDENCY,
    DISPATCH,
    HOST_LATE,
    LAUNCH_UNKNOWN,
    NOTHING_ASKED,
    SYNC,
)
from tracetui.look import Look

US = 1000
KERNELS = (
    # start, duration, launch, length of the call; each launch that found the device idle took 7 µs to start
    (0, 100, -5, 3),
    (157, 10, 150, 3),  # called 50 µs after the device had run dry
    (169, 10, 100, 3),  # called in time, 2 µs behind its predecessor
    (200, 10, 100, 3),  # called in time, 21 µs behind it
    (222, 8, 215, 3),  # called behind a wait that began before the device ran dry
    (233, 17, 226, 3),  # called 4 µs before the device ran dry, which is too short
    (290, 10, 240, 60),  # a graph, whose call is still at work when the device runs dry
    (305, 5, None, None),  # called before the recording began
    (357, 10, 350, 3),  # a wait spans the begin of the gap, but without it the call had been late too
)
CAUSES = (HOST_LATE, DISPATCH, DEPENDENCY, SYNC, HOST_LATE, HOST_LATE, LAUNCH_UNKNOWN, HOST_LATE)
CALLS = (
    ("cudaStreamSynchronize", 120, 93),
    ("aten::is_nonzero", 119, 95),
    ("aten::item", 119.5, 94.3),
    ("aten::_local_scalar_dense", 119.8, 93.9),
    ("cudaStreamSynchronize", 308, 3),
    ("aten::mm", 340, 20),
    ("cudaMemcpyAsync", 100, 200),  # returns at once, whatever a trace says
)


def kernel(t: float, dur: float, launch: float | None, length: float | None, **more: Any) -> dict[str, Any]:
    times = {"t": t, "dur": dur, "launch": launch, "launch_dur": length}
    row = {k: None if v is None else round(v * US) for k, v in times.items()}
    named = {"kind": "kernel", "name": "gemm", "lens": "gpu", "track": "gpu0/stream7", "category": "matmul"}
    return {**named, "launcher": None if launch is None else "thread 1", **row, **more}


def call(name: str, t: float, dur: float, track: str = "thread 1") -> dict[str, Any]:
    row = {"t": round(t * US), "dur": round(dur * US)}
    return {"kind": "span", "name": name, "lens": "host", "track": track, **row}


def one_step() -> Run:
    return made([*(kernel(*k, step=1) for k in KERNELS), *(call(*c) for c in CALLS)])


def test_each_gap_has_the_cause_that_its_launch_tells() -> None:
    run = one_step()
    actual = idle_gaps.find_gaps(run)
    assert idle_gaps.estimate_launch_delay(run) == 7 * US
    assert tuple(actual["cause"]) == CAUSES
    assert actual["gap_ns"].to_list() == [n * US for n in (57, 2, 21, 12, 3, 40, 5, 47)]
    assert actual["gap_ns"].sum() == device_time.compute_step_spans(run)["idle_ns"].sum()
    expected = {HOST_LATE: 147_000, SYNC: 12_000, DEPENDENCY: 21_000, DISPATCH: 2_000, LAUNCH_UNKNOWN: 5_000}
    assert idle_gaps.sum_by_cause(actual) == expected


def test_a_wait_is_told_by_the_operators_around_it() -> None:
    run = one_step()
    stack = "aten::is_nonzero → aten::item"
    assert idle_gaps.find_gaps(run)["by"].to_list() == [stack if c == SYNC else None for c in CAUSES]
    assert idle_gaps.find_gaps(run).filter(cause=SYNC)["gap_ns"].to_list() == [12 * US]
    waits = host_waits.find_waits(run).select("call", "since", "until", "stack").rows()
    assert waits == [
        ("cudaStreamSynchronize", 120 * US, 213 * US, stack),
        ("cudaStreamSynchronize", 308 * US, 311 * US, "cudaStreamSynchronize"),
    ]


def test_the_queue_holds_what_was_launched_and_had_not_begun() -> None:
    """When the second kernel is launched at 150, the third and the fourth wait, both launched at 100."""
    assert idle_gaps.find_gaps(one_step())["queued"].to_list() == [2, 0, 0, 0, 0, 0, None, 0]
    book = compute_ledger(one_step(), Look())
    assert book is not None
    queued = dict(book.items.filter(op=GAP).select("cause", "queued").iter_rows())
    assert queued == {HOST_LATE: 0.5, SYNC: 0, DEPENDENCY: 0, DISPATCH: 0, LAUNCH_UNKNOWN: None}


def test_each_device_has_a_queue_of_its_own() -> None:
    rows = [kernel(0, 10, -5, 3), kernel(100, 10, 50, 3), kernel(120, 10, 60, 3)]
    other = [{**row, "track": "gpu1/stream7", "launcher": "thread 2"} for row in rows[:2]]
    actual = (
        idle_gaps.find_gaps(made([*rows, *other])).select("device", "end", "queued").cast({"device": str})
    )
    assert sorted(actual.rows()) == [("gpu0", 100 * US, 0), ("gpu0", 120 * US, 1), ("gpu1", 100 * US, 0)]


def test_waits_of_another_thread_hold_no_launch_up() -> None:
    rows = [kernel(*k, step=1) for k in KERNELS]
    run = made([*rows, *(call(*c, track="thread 2") for c in CALLS)])
    assert set(idle_gaps.find_gaps(run)["cause"]) == {HOST_LATE, DISPATCH, DEPENDENCY, LAUNCH_UNKNOWN}


def test_without_launches_no_cause_is_claimed() -> None:
    rows = [{k: v for k, v in kernel(*k, step=1).items() if not k.startswith("launch")} for k in KERNELS]
    assert set(idle_gaps.find_gaps(made(rows))["cause"]) == {LAUNCH_UNKNOWN}


@pytest.mark.parametrize(
    ("calls", "cause"),
    [
        ([call("aten::mm", 5_990, 9)], NOTHING_ASKED),
        ([call("aten::mm", 2_000, 3_000)], HOST_LATE),
        ([call("serve.py(7): forever", -10, 9_000), call("aten::mm", 5_990, 9)], NOTHING_ASKED),
        ([], HOST_LATE),  # the thread is not recorded: nothing is known of it
    ],
)
def test_between_steps_a_thread_that_did_nothing_was_asked_nothing(
    calls: list[dict[str, Any]], cause: str
) -> None:
    kernels = [kernel(0, 1_000, -5, 3, step=1), kernel(6_007, 100, 6_000, 3, step=2)]
    actual = idle_gaps.find_gaps_between_steps(made([*kernels, *calls]))
    assert actual.select("step", "gap_ns", "cause").rows() == [(2, 5_007 * US, cause)]


def test_devices_are_judged_apart() -> None:
    rows = [kernel(0, 10, -5, 3), kernel(100, 10, 93, 3)]
    rows += [{**row, "track": "gpu1/stream7", "launcher": "thread 2"} for row in rows]
    rows[3] = {**rows[3], "launch": -4 * US}
    actual = idle_gaps.find_gaps(made(rows))
    causes = dict(actual.select("device", "cause").cast({"device": str}).rows())
    assert causes == {"gpu0": HOST_LATE, "gpu1": DEPENDENCY}


def test_bert_on_an_h100_waits_for_its_host() -> None:
    (run,) = load(shared("samples/chrome_trace/bert-small-h100.json.gz"))
    actual, idle = idle_gaps.find_gaps(run), int(device_time.compute_step_spans(run)["idle_ns"].sum())
    assert (
        idle_gaps.sum_by_cause(actual) == {HOST_LATE: idle} and idle == 3_598_388
    )  # span less the union of kernels


def test_waits_stand_on_the_device_that_is_waited_for() -> None:
    (run,) = load(shared("samples/nsys/h100_2gpu_1s.sqlite"))
    longest = host_waits.sum_waits_by_device(run).head(2).rows()
    assert [(device, stack) for device, stack, *_ in longest] == [
        ("gpu0", "aten::is_nonzero → aten::item"),
        ("gpu1", "aten::is_nonzero → aten::item"),
    ]
    assert [ns for *_, ns in longest] == [428_468_918, 428_424_529]  # of CUPTI_ACTIVITY_KIND_RUNTIME


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("number", [0, 1, 5, 200])
def test_moments_before_others_are_counted(number: int, equal: bool) -> None:
    random = Random(number)
    moments = [random.randrange(20) for _ in range(number)]
    until = sorted(random.randrange(-2, 23) for _ in range(100))
    actual = idle_gaps._count_before(pl.Series(moments, dtype=pl.Int64), pl.Series(until), equal=equal)
    assert actual.to_list() == [sum(m < u or (equal and m == u) for m in moments) for u in until]
