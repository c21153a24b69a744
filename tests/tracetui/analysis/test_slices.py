"""Single slices of a timeline: what the cursor finds, goes on to, and follows to its launch."""

from typing import Any

from capture.run import Run
from tests.tracetui.runs import made
from tracetui.analysis.slices import (
    TimelineFrames,
    find_launch_counterpart,
    find_next_slice,
    find_slice,
    find_slice_below,
    move_window_to,
)
from tracetui.look import Look
from tracetui.views import ask, load_view


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


def parts(look: Look) -> TimelineFrames:
    return ask(load_view("timeline"), [traced()], look).parts


LANES = ("gpu0/stream7", "gpu0/stream9", "thread 1")
GEMM, NORM, COPY = (0, 200, 300), (0, 400, 410), (1, 405, 415)
FORWARD, FIRST, SECOND = (2, 0, 100), (2, 5, 10), (2, 20, 25)


def test_the_lanes_are_devices_before_threads() -> None:
    assert tuple(parts(Look())["lanes"]["lane"]) == LANES


def test_what_stands_under_the_cursor() -> None:
    actual = parts(Look())
    assert (find_slice(actual, NORM) or {})["name"] == "norm"
    assert (find_slice(actual, SECOND) or {})["row"] == 1
    gap = find_slice(actual, (0, 300, 400)) or {}
    assert gap["kind"] == "gap" and gap["name"].startswith("gap")
    middle = find_slice(actual, None) or {}
    assert middle["name"] == "gemm"  # the middle is at 207
    elsewhere = find_slice(actual, (1, 3, 4)) or {}
    assert elsewhere["name"] == "copy"  # nothing is there, but something of the same lane


def test_the_cursor_goes_to_the_next_row_at_the_same_time() -> None:
    actual = parts(Look())
    assert find_slice_below(actual, NORM, 1) == COPY
    assert find_slice_below(actual, COPY, 1) == FORWARD
    assert find_slice_below(actual, FORWARD, 1) == SECOND  # the nearest to its middle
    assert find_slice_below(actual, SECOND, 5) == SECOND and find_slice_below(actual, GEMM, -5) == GEMM


def test_next_and_previous_stay_in_the_lane() -> None:
    run, actual = traced(), parts(Look())
    assert find_next_slice(run, Look(slice=GEMM), actual, 1) == NORM
    assert find_next_slice(run, Look(slice=NORM), actual, 1) is None
    assert find_next_slice(run, Look(slice=NORM), actual, -1) == GEMM
    assert find_next_slice(run, Look(slice=FORWARD), actual, 1) == FIRST
    assert find_next_slice(run, Look(slice=FIRST), actual, -1) == FORWARD


def test_next_is_found_outside_of_the_window() -> None:
    look = Look(zoom=(200, 300), slice=GEMM)
    assert find_next_slice(traced(), look, parts(look), 1) == NORM


def test_a_filter_says_what_is_next() -> None:
    run = traced()
    gaps = Look(filter="^gap", slice=GEMM)
    assert find_next_slice(run, gaps, parts(gaps), 1) == (0, 300, 400)
    other = Look(filter="copy", slice=GEMM)
    assert find_next_slice(run, other, parts(other), 1) == COPY  # its own lane has none
    own = Look(filter="norm|copy", slice=GEMM)
    assert find_next_slice(run, own, parts(own), 1) == NORM


def test_a_kernel_leads_to_its_launch_and_back() -> None:
    run, actual = traced(), parts(Look())
    assert (
        find_launch_counterpart(run, actual, GEMM) == FIRST
        and find_launch_counterpart(run, actual, NORM) == SECOND
    )
    assert (
        find_launch_counterpart(run, actual, FIRST) == GEMM
        and find_launch_counterpart(run, actual, SECOND) == NORM
    )
    assert (
        find_launch_counterpart(run, actual, COPY) is None
        and find_launch_counterpart(run, actual, FORWARD) is None
    )


def test_a_window_moves_only_where_it_has_to() -> None:
    whole = (0, 1000)
    assert move_window_to((100, 200), whole, (0, 150, 160)) == (100, 200)
    low, high = move_window_to((100, 200), whole, (0, 500, 510))
    assert high - low == 100 and low <= 500 < high
    assert move_window_to((100, 200), whole, (0, 990, 1000)) == (900, 1000)
    low, high = move_window_to((100, 200), whole, (0, 300, 900))  # longer than the window: its begin is seen
    assert high - low == 100 and low <= 300 < high


def test_inside_a_gap_there_is_no_row_to_go_to() -> None:
    run = made([{"name": "k", "t": t, "dur": 10, "lens": "gpu", "track": "gpu0"} for t in (0, 10**6)])
    parts = ask(load_view("timeline"), [run], Look(zoom=(400_000, 600_000))).parts
    assert parts["slices"].is_empty() and find_slice(parts, None) is not None
    assert [find_slice_below(parts, place, 1) for place in (None, (0, 10, 10**6))] == [None, (0, 10, 10**6)]
