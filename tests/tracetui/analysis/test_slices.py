"""Single slices of a timeline: what the cursor finds, goes on to, and follows to its launch."""

from typing import Any

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.slices import Parts, beside, linked, next_slice, slice_at, window_around
from tracetui.look import Look
from tracetui.views import ask, view


def traced() -> Run:
    """Two kernels with a gap between them, launched on a thread within a scope; a stream of copies."""
    kernel: dict[str, Any] = {"kind": "kernel", "lens": "gpu"}
    call = {"kind": "span", "lens": "host", "track": "thread 1"}
    return made(
        [
            {**call, "name": "forward", "t": 0, "dur": 100},
            {**call, "name": "launch", "t": 5, "dur": 5},
            {**call, "name": "launch", "t": 20, "dur": 5},
            {**kernel, "name": "gemm", "track": "gpu0/stream7", "t": 200, "dur": 100,
             "launch": 5, "launch_dur": 5, "launcher": "thread 1"},
            {**kernel, "name": "norm", "track": "gpu0/stream7", "t": 400, "dur": 10,
             "launch": 20, "launch_dur": 5, "launcher": "thread 1"},
            {**kernel, "name": "copy", "track": "gpu0/stream9", "t": 405, "dur": 10},
        ]
    )  # fmt: skip


def parts(look: Look) -> Parts:
    return ask(view("timeline"), [traced()], look).parts


LANES = ("gpu0/stream7", "gpu0/stream9", "thread 1")
GEMM, NORM, COPY = (0, 200, 300), (0, 400, 410), (1, 405, 415)
FORWARD, FIRST, SECOND = (2, 0, 100), (2, 5, 10), (2, 20, 25)


def test_the_lanes_are_devices_before_threads() -> None:
    assert tuple(parts(Look())["lanes"]["lane"]) == LANES


def test_what_stands_under_the_cursor() -> None:
    found = parts(Look())
    assert (slice_at(found, NORM) or {})["name"] == "norm"
    assert (slice_at(found, SECOND) or {})["row"] == 1
    gap = slice_at(found, (0, 300, 400)) or {}
    assert gap["kind"] == "gap" and gap["name"].startswith("gap")
    middle = slice_at(found, None) or {}
    assert middle["name"] == "gemm"  # the middle is at 207
    elsewhere = slice_at(found, (1, 3, 4)) or {}
    assert elsewhere["name"] == "copy"  # nothing is there, but something of the same lane


def test_the_cursor_goes_to_the_next_row_at_the_same_time() -> None:
    found = parts(Look())
    assert beside(found, NORM, 1) == COPY
    assert beside(found, COPY, 1) == FORWARD
    assert beside(found, FORWARD, 1) == SECOND  # the nearest to its middle
    assert beside(found, SECOND, 5) == SECOND and beside(found, GEMM, -5) == GEMM


def test_next_and_previous_stay_in_the_lane() -> None:
    run, found = traced(), parts(Look())
    assert next_slice(run, Look(slice=GEMM), found, 1) == NORM
    assert next_slice(run, Look(slice=NORM), found, 1) is None
    assert next_slice(run, Look(slice=NORM), found, -1) == GEMM
    assert next_slice(run, Look(slice=FORWARD), found, 1) == FIRST
    assert next_slice(run, Look(slice=FIRST), found, -1) == FORWARD


def test_next_is_found_outside_of_the_window() -> None:
    look = Look(zoom=(200, 300), slice=GEMM)
    assert next_slice(traced(), look, parts(look), 1) == NORM


def test_a_filter_says_what_is_next() -> None:
    run = traced()
    gaps = Look(filter="^gap", slice=GEMM)
    assert next_slice(run, gaps, parts(gaps), 1) == (0, 300, 400)
    other = Look(filter="copy", slice=GEMM)
    assert next_slice(run, other, parts(other), 1) == COPY  # its own lane has none
    own = Look(filter="norm|copy", slice=GEMM)
    assert next_slice(run, own, parts(own), 1) == NORM


def test_a_kernel_leads_to_its_launch_and_back() -> None:
    run, found = traced(), parts(Look())
    assert linked(run, found, GEMM) == FIRST and linked(run, found, NORM) == SECOND
    assert linked(run, found, FIRST) == GEMM and linked(run, found, SECOND) == NORM
    assert linked(run, found, COPY) is None and linked(run, found, FORWARD) is None


def test_a_window_moves_only_where_it_has_to() -> None:
    whole = (0, 1000)
    assert window_around((100, 200), whole, (0, 150, 160)) == (100, 200)
    low, high = window_around((100, 200), whole, (0, 500, 510))
    assert high - low == 100 and low <= 500 < high
    assert window_around((100, 200), whole, (0, 990, 1000)) == (900, 1000)
    low, high = window_around((100, 200), whole, (0, 300, 900))  # longer than the window: its begin is seen
    assert high - low == 100 and low <= 300 < high


def test_inside_a_gap_there_is_no_row_to_go_to() -> None:
    run = made([{"name": "k", "t": t, "dur": 10, "lens": "gpu", "track": "gpu0"} for t in (0, 10**6)])
    parts = ask(view("timeline"), [run], Look(zoom=(400_000, 600_000))).parts
    assert parts["slices"].is_empty() and slice_at(parts, None) is not None
    assert [beside(parts, place, 1) for place in (None, (0, 10, 10**6))] == [None, (0, 10, 10**6)]
