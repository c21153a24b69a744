"""Single slices of a timeline: the one under the cursor, those beside it, and what launched it."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis.timeline import CELLS, gaps_of, timed_rows
from tracetui.look import Look

Place = tuple[int, int, int]  # lane, start and end in ns
Parts = Mapping[str, pl.DataFrame]  # lanes, slices, gaps and window, as the answer of a timeline has them

_KERNELS: Final = ("kernel", "wait")


def slice_at(parts: Parts, place: Place | None) -> dict[str, Any] | None:
    """Return the slice or gap in the window that is at a place; else the one nearest to the middle of the
    window, of the same lane if there is any, of a lane of kernels first. None where the window is empty.
    """
    found = None
    if place is not None:
        found = _only(parts, _is_at(place))
    if found is None:
        found = _nearest(parts, place[0] if place is not None else None)
    return found


def _is_at(place: Place) -> pl.Expr:
    lane, t, end = place
    return (pl.col("lane") == lane) & (pl.col("t") == t) & (pl.col("end") == end)


def _only(parts: Parts, condition: pl.Expr) -> dict[str, Any] | None:
    for name in ("slices", "gaps"):
        rows = parts[name].filter(condition)
        if rows.height:
            return _told(parts, rows.row(0, named=True))
    return None


def _told(parts: Parts, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its kind, and the row of its lane where it is a gap."""
    gap = "row" not in row
    return {"row": 0, "kind": "gap" if gap else parts["lanes"]["kind"][row["lane"]], **row}


def _nearest(parts: Parts, lane: int | None) -> dict[str, Any] | None:
    """Return the slice that fits and whose start is nearest to the middle; one that can be seen, if any."""
    low, high = parts["window"].row(0)[:2]
    kinds = parts["lanes"]["kind"]
    kernels = [i for i, kind in enumerate(kinds) if kind == "kernel"]
    slices = parts["slices"].lazy().filter("fits")
    wide = slices.filter("wide")
    away = ((pl.col("t") + pl.col("end")) // 2 - (low + high) // 2).abs()
    groups = [[lane]] if lane is not None else []
    for lanes in (*groups, kernels, None):
        for rows in (wide, slices):
            of_lanes = rows if lanes is None else rows.filter(pl.col("lane").is_in(lanes))
            best = of_lanes.filter(away == away.min()).head(1).collect()
            if best.height:
                return _told(parts, best.row(0, named=True))
    gaps = parts["gaps"].filter("fits")
    return _told(parts, gaps.row(0, named=True)) if gaps.height else None


def most_within(parts: Parts, lane: int, row: int, moments: tuple[float, float]) -> Place | None:
    """Return the slice of a row of a lane that takes most of a stretch of time, else the gap that does; None
    where neither reaches into it.
    """
    low, high = moments
    begins = (pl.col("t") >= low) & (pl.col("t") < high)  # even of what takes no time
    reaches = begins | ((pl.col("t") < high) & (pl.col("end") > low))
    taken = pl.col("end").clip(upper_bound=high) - pl.col("t").clip(lower_bound=low)
    slices, gaps = (parts[name].filter(reaches, lane=lane) for name in ("slices", "gaps"))
    for rows in (slices.filter(row=row), gaps if row == 0 else gaps.clear()):
        if rows.height:
            best = rows.sort(taken, descending=True, maintain_order=True).row(0, named=True)
            return best["lane"], best["t"], best["end"]
    return None


def beside(parts: Parts, place: Place | None, rows: int) -> Place | None:
    """Return the slice that many rows further down that is nearest in time to the one at a place.

    Where only a gap is in sight that is the place itself.
    """
    here = slice_at(parts, place)
    keys = parts["slices"].select("lane", "row").unique().sort("lane", "row").rows()
    if here is None or not keys:
        return place
    at = keys.index((here["lane"], here["row"])) if (here["lane"], here["row"]) in keys else 0
    lane, row = keys[max(0, min(len(keys) - 1, at + rows))]
    low, high = parts["window"].row(0)[:2]
    middle = (max(low, here["t"]) + min(high, here["end"])) // 2
    away = pl.max_horizontal(pl.col("t") - middle, middle - pl.col("end"), 0)
    own = parts["slices"].filter((pl.col("lane") == lane) & (pl.col("row") == row))
    best = own.filter(away == away.min()).row(0, named=True)
    return lane, best["t"], best["end"]


def next_slice(run: Run, look: Look, parts: Parts, direction: int) -> Place | None:
    """Return the next (1) or previous (-1) slice of the whole run that fits the filter; None at the end.

    It is one of the cursor's lane; of another lane only where nothing of this one fits. Gaps are met where
    the filter names them, and where they are long enough to be seen.
    """
    here = slice_at(parts, look.slice)
    if here is None:
        return None
    rows = _candidates(run, look, parts)
    own = rows.filter(lane=here["lane"])
    rows = own if own.height else rows
    after = (pl.col("t") > here["t"]) | ((pl.col("t") == here["t"]) & (pl.col("end") < here["end"]))
    before = (pl.col("t") < here["t"]) | ((pl.col("t") == here["t"]) & (pl.col("end") > here["end"]))
    ahead = rows.filter(after if direction > 0 else before)
    if ahead.is_empty():
        return None
    best = ahead.sort("t", "end", descending=[direction < 0, direction > 0]).row(0)
    return best[0], best[1], best[2]


def _candidates(run: Run, look: Look, parts: Parts) -> pl.DataFrame:
    """Return lane, start and end of all that fits in the run: with a filter also of gaps."""
    lanes = parts["lanes"].with_row_index("number")
    low, high = parts["window"].row(0)[:2]
    rows = timed_rows(run, look).filter("fits").select("code", "t", "end").collect()
    numbered = lanes.filter(pl.col("kind") != "layer").select("code", lane=pl.col("number").cast(pl.Int32))
    found = rows.join(numbered, on="code").select("lane", "t", "end")
    layers = [i for i, kind in enumerate(lanes["kind"]) if kind == "layer"]
    in_sight = parts["slices"].filter("fits", pl.col("lane").is_in(layers))
    candidates = [found, in_sight.select("lane", "t", "end")]
    if look.filter:
        gaps = gaps_of(run, look, parts["lanes"], (high - low) / CELLS)
        candidates.append(gaps.filter("fits").select("lane", "t", "end"))
    return pl.concat(candidates)


def linked(run: Run, parts: Parts, place: Place | None) -> Place | None:
    """Return the call that launched the kernel at a place, or the first kernel that the call there launched.

    None where the source does not tell.
    """
    here = slice_at(parts, place)
    if here is None or not (run.has("launch") and run.has("launcher")):
        return None
    keys = parts["lanes"].select("track", "kind").rows()
    rows = run.events.lazy().filter(pl.col("dur").is_not_null())
    if here["kind"] in _KERNELS:
        if here.get("launch") is None:
            return None
        at = (pl.col("kind") == "span") & (pl.col("t") == here["launch"])
        rows, kind = rows.filter(at & (pl.col("track").cast(pl.String) == str(here["launcher"]))), "span"
    else:
        track = parts["lanes"]["track"][here["lane"]]
        at = (pl.col("kind") == "kernel") & (pl.col("launch") == here["t"])
        rows, kind = rows.filter(at & (pl.col("launcher").cast(pl.String) == track)), "kernel"
    found = rows.select(pl.col("track").cast(pl.String), "t", "dur").sort("t", "dur").head(1).collect()
    if found.is_empty() or (found["track"][0], kind) not in keys:
        return None
    return keys.index((found["track"][0], kind)), found["t"][0], found["t"][0] + found["dur"][0]


def window_around(window: tuple[int, int], whole: tuple[int, int], place: Place) -> tuple[int, int]:
    """Return the window, moved within the whole where the start of what is at a place is not in sight."""
    (low, high), (_, t, end) = window, place
    span = high - low
    if low <= t and min(end, t + span // CELLS) <= high:
        return window
    begin = max(whole[0], min(t - max(span // 4, (span - (end - t)) // 2), whole[1] - span))
    return begin, begin + span
