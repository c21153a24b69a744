"""Single launches, and two of them compared: planted in a run whose times can be worked out on paper."""

import polars as pl

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.look import Look
from tracetui.views import Answer, ask, load_view

COPY_NS, SLOW_NS, PLAIN_NS = 300, 900, 500


def planted() -> Run:
    """Return three steps: in the last a copy runs beside a slow gemm, which waited 70 ns for its track."""
    rows = []
    for step, begin in enumerate((0, 10_000, 20_000)):
        slow = step == 2
        start = begin + 1_000 + 70 * slow
        rows += [
            {"name": "norm", "t": begin, "dur": 1_000, "track": "s7", "step": step},
            {"name": "gemm", "t": start, "dur": SLOW_NS if slow else PLAIN_NS, "track": "s7", "step": step},
        ]
        rows[-1]["grid"] = "16x1x1" if slow else "8x1x1"
    rows.append({"name": "copy", "t": 21_500, "dur": COPY_NS, "track": "s8", "step": 2})
    return made([{"kind": "kernel", "lens": "gpu", "layer": 0, **row} for row in rows])


def ask_launches(**look: object) -> Answer:
    return ask(load_view("launches"), [planted()], Look(**look))


def test_launches_are_longest_first_and_keep_their_numbers_under_a_filter() -> None:
    everything = ask_launches()
    assert everything.rows.select("number", "name", "dur_ns").rows() == [
        (1, "norm", 1_000), (3, "norm", 1_000), (5, "norm", 1_000), (6, "gemm", SLOW_NS),
        (2, "gemm", PLAIN_NS), (4, "gemm", PLAIN_NS), (7, "copy", COPY_NS),
    ]  # fmt: skip
    some = ask_launches(filter="gemm")
    assert some.rows["number"].to_list() == [6, 2, 4]


def test_two_launches_differ_in_what_was_planted() -> None:
    answer = ask_launches(focus=(("number", (2, 6)),))
    assert answer.rows.select("what", "a_ns", "b_ns", "delta_ns").rows() == [
        ("took", PLAIN_NS, SLOW_NS, SLOW_NS - PLAIN_NS),
        ("beside it: copy", 0, COPY_NS, COPY_NS),
        ("track idle before it", 0, 70, 70),
    ]
    assert answer.notes[0] == "launch 6 (b) took 900 ns, 1.80× launch 2 (a: 500 ns)"
    assert answer.notes[1] == "step 0 → 2, grid 8x1x1 → 16x1x1"


def test_launches_that_are_not_there_are_named() -> None:
    answer = ask_launches(focus=(("number", (2, 99)),))
    assert answer.rows.is_empty() and answer.notes == ("launches 2 and 99 are not both here",)


def test_launches_without_times_say_so() -> None:
    run = made([{"kind": "kernel", "name": "gemm", "dur": 5, "step": 1, "lens": "gpu"}])
    answer = ask(load_view("launches"), [run], Look())
    assert answer.rows.is_empty() and answer.missing == ("t",)


def test_numbers_count_launches_that_were_folded_away() -> None:
    """Of a growing run whose first two steps, of 3 launches each, are kept as sums."""
    old = [{"name": "gemm", "t": None, "dur": 30, "count": 3, "step": step} for step in (0, 1)]
    new = [{"name": "gemm", "t": 100 * i, "dur": 10 + i, "count": 1, "step": 2} for i in range(2)]
    rows = [{"kind": "kernel", "lens": "gpu", **row} for row in (*old, *new)]
    run = made(rows, folded={"before": 2})
    answer = ask(load_view("launches"), [run], Look())
    assert answer.rows.sort("number").select("number", "dur_ns").rows() == [(7, 10), (8, 11)]
    assert pl.Series(answer.rows["number"]).dtype == pl.Int64
