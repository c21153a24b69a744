"""Single slices of a timeline: the one under the cursor, its neighbours, and its launch."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis.timeline import CELLS, find_gap_slices, select_timeline_rows
from tracetui.look import Look

SlicePosition = tuple[int, int, int]  # lane, start and end in ns
TimelineFrames = Mapping[str, pl.DataFrame]  # lanes, slices, gaps and window of a timeline answer

_KERNELS: Final = ("kernel", "wait")


def find_slice(frames: TimelineFrames, position: SlicePosition | None) -> dict[str, Any] | None:
    """Return the slice or gap at a position, else the one nearest to the middle of the window.

    Of the same lane if possible, else of a kernel lane. None if the window is empty.
    """
    if position is None:
        return _find_nearest(frames, None)
    lane, t, end = position
    for rows in (frames[name].filter(lane=lane, t=t, end=end) for name in ("slices", "gaps")):
        if rows.height:
            return _with_kind(frames, rows.row(0, named=True))
    return _find_nearest(frames, lane)


def _with_kind(frames: TimelineFrames, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its kind, and row 0 for a gap."""
    is_gap = "row" not in row
    return {"row": 0, "kind": "gap" if is_gap else frames["lanes"]["kind"][row["lane"]], **row}


def _find_nearest(frames: TimelineFrames, lane: int | None) -> dict[str, Any] | None:
    """Return the matching slice with the start nearest to the middle, a wide one if possible."""
    low, high = frames["window"].row(0)[:2]
    kinds = frames["lanes"]["kind"]
    kernels = [i for i, kind in enumerate(kinds) if kind == "kernel"]
    slices = frames["slices"].lazy().filter("fits")
    wide = slices.filter("wide")
    distance = ((pl.col("t") + pl.col("end")) // 2 - (low + high) // 2).abs()
    lane_groups = [[lane]] if lane is not None else []
    for lanes in (*lane_groups, kernels, None):
        for rows in (wide, slices):
            of_lanes = rows if lanes is None else rows.filter(pl.col("lane").is_in(lanes))
            best = of_lanes.filter(distance == distance.min()).head(1).collect()
            if best.height:
                return _with_kind(frames, best.row(0, named=True))
    gaps = frames["gaps"].filter("fits")
    return _with_kind(frames, gaps.row(0, named=True)) if gaps.height else None


def find_longest_within(
    frames: TimelineFrames, lane: int, row: int, time_range: tuple[float, float]
) -> SlicePosition | None:
    """Return the slice of a lane row that takes most of a time range, else such a gap; None without any."""
    low, high = time_range
    starts_inside = (pl.col("t") >= low) & (pl.col("t") < high)  # also slices without duration
    is_inside = starts_inside | ((pl.col("t") < high) & (pl.col("end") > low))
    overlap = pl.col("end").clip(upper_bound=high) - pl.col("t").clip(lower_bound=low)
    slices, gaps = (frames[name].filter(is_inside, lane=lane) for name in ("slices", "gaps"))
    for rows in (slices.filter(row=row), gaps if row == 0 else gaps.clear()):
        if rows.height:
            best = rows.sort(overlap, descending=True, maintain_order=True).row(0, named=True)
            return best["lane"], best["t"], best["end"]
    return None


def find_slice_below(
    frames: TimelineFrames, position: SlicePosition | None, rows: int
) -> SlicePosition | None:
    """Return the slice `rows` further down that is nearest in time to the one at a position.

    If only a gap is visible, the position itself.
    """
    current = find_slice(frames, position)
    keys = frames["slices"].select("lane", "row").unique().sort("lane", "row").rows()
    if current is None or not keys:
        return position
    key = current["lane"], current["row"]
    index = keys.index(key) if key in keys else 0
    lane, row = keys[max(0, min(len(keys) - 1, index + rows))]
    low, high = frames["window"].row(0)[:2]
    middle = (max(low, current["t"]) + min(high, current["end"])) // 2
    distance = pl.max_horizontal(pl.col("t") - middle, middle - pl.col("end"), 0)
    in_row = frames["slices"].filter(lane=lane, row=row)
    best = in_row.filter(distance == distance.min()).row(0, named=True)
    return lane, best["t"], best["end"]


def find_next_slice(run: Run, look: Look, frames: TimelineFrames, direction: int) -> SlicePosition | None:
    """Return the next (1) or previous (-1) slice of the run that matches the filter; None at the end.

    It is in the cursor's lane, unless nothing there matches. Gaps are included if the filter names them and
    they are long enough to be visible.
    """
    current = find_slice(frames, look.slice)
    if current is None:
        return None
    rows = _list_candidates(run, look, frames)
    in_lane = rows.filter(lane=current["lane"])
    rows = in_lane if in_lane.height else rows
    t, end = pl.col("t"), pl.col("end")
    is_after = (t > current["t"]) | ((t == current["t"]) & (end < current["end"]))
    is_before = (t < current["t"]) | ((t == current["t"]) & (end > current["end"]))
    ahead = rows.filter(is_after if direction > 0 else is_before)
    if ahead.is_empty():
        return None
    lane, start, stop = ahead.sort("t", "end", descending=[direction < 0, direction > 0]).row(0)
    return lane, start, stop


def _list_candidates(run: Run, look: Look, frames: TimelineFrames) -> pl.DataFrame:
    """Return lane, start and end of everything that matches in the run, with a filter also of gaps."""
    lanes = frames["lanes"].with_row_index("number")
    low, high = frames["window"].row(0)[:2]
    rows = select_timeline_rows(run, look).filter("fits").select("code", "t", "end").collect()
    numbered = lanes.filter(pl.col("kind") != "layer").select("code", lane=pl.col("number").cast(pl.Int32))
    slices = rows.join(numbered, on="code").select("lane", "t", "end")
    layers = [i for i, kind in enumerate(lanes["kind"]) if kind == "layer"]
    layer_slices = frames["slices"].filter("fits", pl.col("lane").is_in(layers))
    candidates = [slices, layer_slices.select("lane", "t", "end")]
    if look.filter:
        gaps = find_gap_slices(run, look, frames["lanes"], (high - low) / CELLS)
        candidates.append(gaps.filter("fits").select("lane", "t", "end"))
    return pl.concat(candidates)


def find_launch_counterpart(
    run: Run, frames: TimelineFrames, position: SlicePosition | None
) -> SlicePosition | None:
    """Return the call that launched the kernel at a position, or the first kernel that the call launched.

    None if the source does not report it.
    """
    current = find_slice(frames, position)
    if current is None or not (run.has("launch") and run.has("launcher")):
        return None
    keys = frames["lanes"].select("track", "kind").rows()
    rows = run.events.lazy().filter(pl.col("dur").is_not_null())
    if current["kind"] in _KERNELS:
        if current.get("launch") is None:
            return None
        is_counterpart = (pl.col("kind") == "span") & (pl.col("t") == current["launch"])
        on_thread = pl.col("track").cast(pl.String) == str(current["launcher"])
        rows, kind = rows.filter(is_counterpart & on_thread), "span"
    else:
        track = frames["lanes"]["track"][current["lane"]]
        is_counterpart = (pl.col("kind") == "kernel") & (pl.col("launch") == current["t"])
        rows, kind = rows.filter(is_counterpart & (pl.col("launcher").cast(pl.String) == track)), "kernel"
    counterpart = rows.select(pl.col("track").cast(pl.String), "t", "dur").sort("t", "dur").head(1).collect()
    if counterpart.is_empty() or (counterpart["track"][0], kind) not in keys:
        return None
    track, t, dur = counterpart.row(0)
    return keys.index((track, kind)), t, t + dur


def move_window_to(
    window: tuple[int, int], extent: tuple[int, int], position: SlicePosition
) -> tuple[int, int]:
    """Return the window, moved within the extent if the start of the slice at a position is not visible."""
    (low, high), (_, t, end) = window, position
    span = high - low
    if low <= t and min(end, t + span // CELLS) <= high:
        return window
    begin = max(extent[0], min(t - max(span // 4, (span - (end - t)) // 2), extent[1] - span))
    return begin, begin + span
