"""The replay of host and device, on timelines of a few rows that are worked out by hand."""

import json
from typing import Any

import pytest

from capture.errors import UsageError
from capture.run import Run
from tests.tracetui.analysis.time.test_idle_gaps import US, call, kernel
from tests.tracetui.runs import made
from tracetui.analysis.ledger.what_if import Prediction, parse_change, predict_changes
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import load_view


def step(*rows: dict[str, Any]) -> Run:
    return made([{"step": 1, **row} if row["kind"] == "kernel" else row for row in rows])


def predict(run: Run, *changes: tuple[str, float]) -> Prediction:
    return predict_changes(run, Look(what_if=changes))[-1]


def figures(run: Run, *changes: tuple[str, float]) -> tuple[float, float, float, float]:
    """Step, predicted step, what was asked for and what the host hides, in µs."""
    p = predict(run, *changes)
    assert p.saved_ns == p.step_ns - p.predicted_ns
    return p.step_ns / US, p.predicted_ns / US, p.asked_ns / US, p.host_ns / US


LATE = step(kernel(7, 10, 0, 3, name="a"), kernel(57, 10, 50, 3, name="b"))
IN_TIME = step(
    kernel(7, 10, 0, 1, name="a"), kernel(17, 10, 1, 1, name="b"), kernel(27, 10, 2, 1, name="c"),
    kernel(107, 5, 100, 1, name="d"),  # tells that a launch takes 7 µs
)  # fmt: skip


def test_a_faster_kernel_under_a_late_host_buys_nothing() -> None:
    assert figures(LATE, ("a", 0.5)) == (60, 60, 5, 5)
    assert figures(LATE, ("b", 0.5)) == (60, 55, 5, 0)


def test_a_slower_kernel_takes_the_slack_of_a_late_host_first() -> None:
    assert figures(LATE, ("a", 2)) == (60, 60, -10, 0)
    assert figures(LATE, ("a", 6)) == (60, 70, -50, 0)  # ends at 67, where the next began at 57


def test_rows_that_queue_move_up() -> None:
    """The last was launched when all had ended: up to it everything moves, itself it stays."""
    assert figures(IN_TIME, ("b", 0.5)) == (105, 105, 5, 5)
    queue = step(*(row for row in IN_TIME.events.drop_nulls("name").to_dicts() if row["name"] != "d"))
    assert figures(queue, ("b", 0.5)) == (30, 25, 5, 0)
    assert figures(queue, ("a", 0.5), ("b", 0.0)) == (30, 15, 15, 0)


def test_a_launch_that_was_just_in_time_hides_a_part() -> None:
    """c is called at 31: with its 7 µs it cannot start before 38, where a b of 5 µs would end at 35."""
    run = step(
        kernel(0, 3, -7, 1, name="x"), kernel(20, 10, 13, 1, name="a"),  # tells the 7 µs of a launch
        kernel(30, 10, 14, 1, name="b"), kernel(40, 10, 31, 1, name="c"),
    )  # fmt: skip
    assert figures(run, ("b", 0.5)) == (50, 48, 5, 3)


def test_what_waits_for_a_faster_kernel_launches_sooner() -> None:
    """The host waits from 10 to 109 for a kernel that ends at 107, and calls the next 3 µs later."""
    wait = call("cudaStreamSynchronize", 10, 99)
    run = step(kernel(7, 100, 0, 3, name="a"), kernel(119, 10, 112, 3, name="b"), wait)
    assert figures(run, ("a", 0.5)) == (122, 72, 50, 0)
    assert figures(run, ("a", 0.01)) == (
        122,
        25,
        99,
        2,
    )  # the wait returns at 12, b is called at 15, starts at 22


def test_a_kernel_waits_for_another_stream() -> None:
    other = kernel(9, 48, 2, 1, name="copy", track="gpu0/stream9")  # as soon as it was launched
    after = kernel(58, 10, 3, 1, name="b")  # 1 µs after the copy on the other stream
    run = step(kernel(7, 10, 0, 1, name="a"), other, after)
    assert figures(run, ("copy", 0.5)) == (61, 37, 24, 0)
    assert figures(run, ("a", 0.5)) == (61, 61, 5, 0)


def test_the_first_kernel_of_a_stream_waits_for_another_one() -> None:
    """The copy was launched 16 µs before it started, just as a ended."""
    run = step(kernel(7, 10, 0, 1, name="a"), kernel(17, 40, 1, 1, name="copy", track="gpu0/stream9"))
    assert figures(run, ("a", 0.5)) == (50, 45, 5, 0)


def test_without_launches_one_follows_the_other() -> None:
    rows = [{"kind": "kernel", "name": n, "t": t, "dur": d, "lens": "wall", "step": 1, "track": "cpu"}
            for n, t, d in (("a", 0, 100), ("b", 110, 50), ("a", 170, 100))]  # fmt: skip
    assert [predict(made(rows), ("a", f)).predicted_ns for f in (1, 0.5, 2)] == [270, 170, 470]


def test_an_op_is_meant_with_all_below_it() -> None:
    rows = [{"kind": "kernel", "name": op, "op": op, "t": t, "dur": 10, "lens": "wall", "step": 1}
            for t, op in ((0, "mlp.up"), (10, "mlp.down"), (20, "mlpx"))]  # fmt: skip
    assert predict(made(rows), ("mlp", 0.5)).asked_ns == 10


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("attn.core=-30%", ("attn.core", 0.7)),
        ("norm = +10 %".replace(" = ", "="), ("norm", 1.1)),
        ("a=b=x2", ("a=b", 2)),
    ],
)
def test_a_change_is_read(text: str, change: tuple[str, float]) -> None:
    op, factor = parse_change(text)
    assert (op, pytest.approx(factor)) == change


@pytest.mark.parametrize("text", ["attn.core", "attn.core=", "attn.core=30%", "=-30%", "a=-130%", "a=x"])
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a change of an op"):
        parse_change(text)


def test_an_op_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="has the op 'z'") as refused:
        predict(LATE, ("z", 0.5))
    assert "a, b" in str(refused.value)


def test_the_view_tells_what_the_host_hides() -> None:
    actual = json.loads(
        format_report(load_view("fix"), [LATE], Look(what_if=(("a", 0.5), ("b", 0.5))), "json")
    )
    fields = [
        [row[c] for c in ("what_if", "step_ns", "predicted_ns", "saved_ns", "host_ns")]
        for row in actual["rows"]
    ]
    assert fields == [
        ["a -50 %", 60 * US, 60 * US, 0, 5 * US],
        ["b -50 %", 60 * US, 55 * US, 5 * US, 0],
        ["all together", 60 * US, 55 * US, 5 * US, 5 * US],
    ]
    assert actual["notes"][0] == (
        "a -50 %: a step of 60.00 µs would take 60.00 µs: of the 5.000 µs removed, it saves 0 ns, "
        "5.000 µs stay hidden by the host"
    )
