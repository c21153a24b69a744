"""The timeline: lanes and their rows against plain recomputations, busy time, gaps, and where it opens."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracetui.runs import MS, decode, made, nested
from tracetui.analysis.frames.nesting import stack_nested, stack_short
from tracetui.analysis.timeline import CELLS, STEP_MARGIN_PARTS, build_timeline, find_typical_step
from tracetui.look import Look

Slices = list[tuple[int, int]]


def test_a_timeline_adds_no_overlap_up() -> None:
    actual = build_timeline(nested(), Look())
    assert actual is not None
    busy = {r["lane"]: (r["count"], r["busy_ns"], r["busy_share"]) for r in actual.lanes.to_dicts()}
    assert busy == {"main": (5, 100, 1.0), "other": (1, 5, 0.05)}
    assert actual.extent == actual.window == (0, 100)


def test_scopes_of_a_thread_lie_below_those_that_contain_them() -> None:
    actual = build_timeline(nested(), Look())
    assert actual is not None
    names = {r["name"]: r["row"] for r in actual.slices.filter(lane=0).to_dicts()}
    assert names == {"run": 0, "load": 1, "step": 1, "gemm": 2}


def test_the_cells_of_a_timeline_hold_the_busy_time() -> None:
    """What is not placed one by one is all there, and in its cells."""
    random = np.random.default_rng(1)
    starts = np.cumsum(random.integers(10, 500, 4000))
    durs = np.minimum(random.integers(1, 400, 4000), np.append(np.diff(starts), 100))
    run = made(
        [{"name": "k", "track": "gpu", "t": int(t), "dur": int(d)} for t, d in zip(starts, durs, strict=True)]
    )
    for zoom in (None, (int(starts[50]), int(starts[60])), (int(starts[50]), int(starts[50]) + 7)):
        computed = build_timeline(run, Look(zoom=zoom))
        assert computed is not None
        low, high = computed.window
        inside = np.minimum(starts + durs, high) - np.maximum(starts, low)
        width = (high - low) / CELLS
        wide = durs >= width
        assert computed.slices["wide"].sum() == (wide & (inside >= 0) & (starts < high)).sum()
        cells = np.zeros(CELLS)
        for a, b in zip(starts[~wide], (starts + durs)[~wide], strict=True):
            for cell in range(max(0, int((a - low) // width)), min(CELLS, int((b - low) // width) + 1)):
                left = low + cell * width
                cells[cell] += max(0.0, min(b, left + width) - max(a, left))
        actual = np.zeros(CELLS)
        for cell, ns in computed.cells.select("cell", "busy_ns").iter_rows():
            actual[cell] += ns
        assert actual == pytest.approx(cells, abs=1e-6 * width)
        assert computed.lanes["busy_ns"].sum() == inside[inside > 0].sum()


SLICES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=25).map(
    lambda rows: sorted(((t, t + d) for t, d in rows), key=lambda s: (s[0], -s[1]))
)


def rows_in_plain_python(slices: Slices, nests: bool) -> list[int]:
    """Each below the innermost before it that contains it, in the first row where it covers nothing."""
    rows: list[int] = []
    for i, (a, b) in enumerate(slices):
        around = [j for j in range(i) if nests and slices[j][0] <= a and slices[j][1] >= b]
        row = rows[around[-1]] + 1 if around else 0
        while any(rows[j] == row and slices[j][1] > a for j in range(i)):
            row += 1
        rows.append(row)
    return rows


@given(SLICES, st.booleans())
@settings(max_examples=300)
def test_no_slice_of_a_row_covers_another(slices: Slices, nests: bool) -> None:
    start, end = (np.array([s[i] for s in slices], dtype=np.int64) for i in (0, 1))
    rows = stack_nested(start, end, nests).tolist()
    assert rows == rows_in_plain_python(slices, nests)
    for i, (a, _) in enumerate(slices):
        for j in range(i):
            assert rows[i] != rows[j] or slices[j][1] <= a  # they lie beside each other


@given(SLICES, st.booleans(), st.lists(st.integers(0, 60), max_size=20))
@settings(max_examples=300)
def test_short_slices_lie_in_rows_that_are_free(slices: Slices, nests: bool, moments: list[int]) -> None:
    start, end = (np.array([s[i] for s in slices], dtype=np.int64) for i in (0, 1))
    rows = stack_nested(start, end, nests)
    actual = stack_short(start, end, rows, np.array(sorted(moments), dtype=np.int64), nests).tolist()
    for moment, row in zip(sorted(moments), actual, strict=True):
        taken = {r for r, (a, b) in zip(rows.tolist(), slices, strict=True) if a <= moment < b}
        if nests:
            assert row == max(taken, default=-1) + 1
        else:
            assert row == min(set(range(len(slices) + 1)) - taken)


def kernels(rows: list[tuple[str, int, int]], **more: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "kernel", "name": f"k{i}", "track": on, "t": t, "dur": d, "lens": "gpu", **more}
        for i, (on, t, d) in enumerate(rows)
    ]


TWO_STREAMS = st.lists(
    st.tuples(st.sampled_from(["gpu0/stream1", "gpu0/stream2", "gpu1/stream1"]), st.integers(0, 60),
              st.integers(1, 15)),
    min_size=1, max_size=20,
)  # fmt: skip


@given(TWO_STREAMS)
@settings(max_examples=100, deadline=None)
def test_a_gap_is_where_no_stream_of_a_device_works(rows: list[tuple[str, int, int]]) -> None:
    """Against every single nanosecond between the first and the last kernel of a device."""
    actual = build_timeline(made(kernels(rows)), Look())
    assert actual is not None
    lanes = actual.lanes["lane"].to_list()
    for device in ("gpu0", "gpu1"):
        own = [(t, t + d) for on, t, d in rows if on.startswith(device)]
        if not own:
            continue
        idle = {
            m for m in range(min(a for a, _ in own), max(b for _, b in own))
            if not any(a <= m < b for a, b in own)
        }  # fmt: skip
        gaps = [g for g in actual.gaps.to_dicts() if lanes[g["lane"]].startswith(device)]
        assert {m for g in gaps for m in range(g["t"], g["end"])} == idle
        assert sum(g["end"] - g["t"] for g in gaps) == len(idle)


def test_kernels_that_overlap_on_a_stream_lie_in_rows_of_their_own() -> None:
    actual = build_timeline(made(kernels([("gpu0", 0, 10), ("gpu0", 5, 10), ("gpu0", 10, 10)])), Look())
    assert actual is not None
    assert actual.slices["row"].to_list() == [0, 1, 0]


def test_layers_are_stretches_of_kernels_of_one_layer() -> None:
    rows = [(0, 10, 0), (10, 5, 0), (20, 5, 1), (30, 5, None), (40, 5, 1), (50, 5, 0)]
    run = made(
        [{"kind": "kernel", "name": "k", "t": t, "dur": d, "lens": "gpu", "layer": n} for t, d, n in rows]
    )
    computed = build_timeline(run, Look())
    assert computed is not None
    lane = computed.lanes["lane"].to_list().index("layers")
    actual = computed.slices.filter(lane=lane).select("name", "t", "end", "layer").rows()
    assert actual == [
        ("layer 0", 0, 15, 0), ("layer 1", 20, 25, 1), ("layer 1", 40, 45, 1), ("layer 0", 50, 55, 0),
    ]  # fmt: skip


def test_a_filter_takes_nothing_away_and_counts_what_fits() -> None:
    run = made(kernels([("gpu0", 0, 10), ("gpu0", 20, 10)]))
    actual = build_timeline(run, Look(filter="k1"))
    assert actual is not None
    assert actual.slices.select("name", "fits").rows() == [("k0", False), ("k1", True)]
    assert actual.lanes.select("count", "busy_ns").row(0) == (1, 10)
    gaps = build_timeline(run, Look(filter="^gap"))
    assert gaps is not None and gaps.gaps.select("t", "end", "fits").rows() == [(10, 20, True)]
    assert build_timeline(run, Look(filter="nothing")) is None


def test_it_opens_on_the_step_of_median_duration_of_the_phase_of_most_steps() -> None:
    walls = {0: ("prefill", 900), 1: ("decode", 50), 2: ("decode", 70), 3: ("decode", 40), 4: ("decode", 60)}
    rows, at = [], 0
    for n, (phase, wall) in walls.items():
        rows.append({"kind": "step", "name": "s", "t": at, "dur": wall * 10, "step": n, "phase": phase})
        at += wall * 10
    run = made([*rows, *kernels([("cpu", 1, at)])])
    margin = 500 // STEP_MARGIN_PARTS  # of 40, 50, 60, 70 the lower middle one, of step 1
    assert find_typical_step(run) == (9000 - margin, 9500 + margin)
    assert find_typical_step(run, "prefill") == (-9000 // STEP_MARGIN_PARTS, 9000 + 9000 // STEP_MARGIN_PARTS)
    actual = build_timeline(run, Look())
    assert actual is not None and actual.window == (8990, 9510)
    chosen = build_timeline(run, Look(window=(2, 3)))
    assert chosen is not None and chosen.window == chosen.extent == (9500, 10600)


def test_it_opens_on_a_step_of_the_steady_state() -> None:
    """Three slow steps of warm-up in front of four steady ones: of all seven step 6 is the middle one."""
    walls = [90, 80, 70, 40, 43, 42, 41]
    rows = [{"kind": "step", "name": "s", "t": 10 * sum(walls[: n - 1]), "dur": wall * 10, "step": n,
             "phase": "decode"} for n, wall in enumerate(walls, 1)]  # fmt: skip
    run = made([*rows, *kernels([("cpu", 1, 4060)])])
    margin = 410 // STEP_MARGIN_PARTS  # of 40, 41, 42, 43 the lower middle one, of step 7
    assert find_typical_step(run) == (3650 - margin, 4060 + margin)


def test_it_opens_on_what_the_device_did_where_the_host_was_far_away() -> None:
    """One stray kernel long before the step's others, launched by a step that lasts as long."""
    step = {"kind": "step", "name": "s", "t": 0, "dur": 500 * MS, "step": 1}
    far = kernels([("gpu0", 0, 1000)], step=1)
    near = kernels([("gpu0", 490 * MS + i * 100_000, 90_000) for i in range(100)], step=1)
    run = made([step, *far, *near])
    low, high = find_typical_step(run) or (0, 0)
    assert low > 480 * MS and high < 510 * MS


def test_the_timeline_of_a_run_of_our_own_has_steps_layers_and_kernels() -> None:
    actual = build_timeline(decode(steps=4, layers=2), Look(window=(1, 1)))
    assert actual is not None
    assert actual.lanes.select("lane", "kind", "count").rows() == [
        ("steps", "step", 1), ("layers", "layer", 2), ("gpu0", "kernel", 6),
    ]  # fmt: skip


def test_a_gap_tells_its_cause_where_the_launch_is_known() -> None:
    """The second kernel is launched long after the first has ended."""
    host = {"kind": "span", "name": "cudaLaunchKernel", "lens": "host", "track": "thread 1"}
    launched = [
        {**kernels([("gpu0", t, 1000)])[0], "launch": at, "launch_dur": 10, "launcher": "thread 1"}
        for t, at in ((100, 0), (501_100, 500_000))
    ]
    run = made([{**host, "t": 0, "dur": 10}, {**host, "t": 500_000, "dur": 10}, *launched])
    actual = build_timeline(run, Look())
    assert actual is not None
    assert actual.gaps.select("name", "t", "end").rows() == [("gap: host late", 1100, 501_100)]
    late = build_timeline(run, Look(filter="host late"))
    assert late is not None and late.gaps["fits"].to_list() == [True]
