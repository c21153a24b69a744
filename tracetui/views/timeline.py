"""Timeline: what ran when, as a flame chart: devices with steps and layers, threads with their scopes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import select
from tracetui.analysis.slices import Parts, Place, most_within, slice_at
from tracetui.analysis.timeline import timeline
from tracetui.look import Look
from tracetui.shown_names import shown_name
from tracetui.views import Answer, Focus, View, _category, _flame, ink
from tracetui.views._flame import Frame, Row, Selected
from tracetui.views.ink import Line, Size

WIDEST_LABEL, NARROWEST_LABEL = 22, 10  # cells for the name of a lane
TALLEST: Final = 3  # lines of a row of kernels
BUSY: Final = 20  # times as busy is the busiest lane at most, where one of kernels is drawn tall
TALL: Final = 12  # lines from which there is a legend, and a second line for what the cursor stands on


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a lane; what lies in the lanes, the gaps and the window are parts."""
    shown = timeline(runs[0], look)
    if shown is None:
        timed = select.on_timeline(runs[0], ("step", "span", "kernel"))
        if timed:
            return Answer(pl.DataFrame(), (select.NOTHING,))
        note = "this source tells t of no timed rows; the timeline view needs it"
        return Answer(pl.DataFrame(), (note,), missing=("t",))
    low, high = shown.window
    start, end = shown.whole
    where = (
        f"{units.duration(low - start)} to {units.duration(high - start)} of {units.duration(end - start)}"
    )
    parts = {
        "lanes": shown.lanes,
        "slices": shown.slices,
        "cells": shown.cells.with_columns(pl.col("category").cast(pl.String)),
        "gaps": shown.gaps,
        "names": shown.names,
        "window": pl.DataFrame({"low": [low], "high": [high], "start": [start], "end": [end]}),
    }
    rows = shown.lanes.filter(pl.col("count") > 0).drop("track", "code")
    return Answer(rows, (where, *select.folding(runs[0])), ("lane",), parts)


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw a ruler, the rows around the cursor, the categories, and what the cursor stands on in full."""
    if answer.rows.is_empty():
        return []
    page = _page(answer.parts, look, size)
    low, high, start, _ = answer.parts["window"].row(0)
    body = _rows(page, answer.parts["lanes"]["lane"].to_list())
    spare = Size(size.width, page.room - len(body), size.ascii)
    below = _below(answer.parts["names"], page.totals, spare) if page.legend else []
    keys = [_flame.legend(page.totals, size)] if page.legend and not below else []
    gap = [ink.line()] * max(0, size.height - 1 - len(body) - len(below) - len(keys) - len(page.foot))
    ruler = _ruler(low - start, high - start, page.label, page.frame.width)
    return ink.clip([ruler, *body, *gap[:1], *below, *gap[1:], *keys, *page.foot], size)


def pointed(answer: Answer, look: Look, size: Size, column: int, line: int) -> Place | None:
    """Return the slice or gap that the picture has in a cell; None where nothing is drawn."""
    if answer.rows.is_empty():
        return None
    page = _page(answer.parts, look, size)
    column, line = column - page.label, line - 1  # beside the names, below the ruler
    if not 0 <= column < page.frame.width:
        return None
    for row, height in page.rows:
        if 0 <= line < height:
            return most_within(answer.parts, row.lane, row.place, page.frame.moments(column))
        line -= height
    return None


@dataclass(frozen=True, eq=False)
class _Page:
    """How the picture is divided: rows with their heights below a ruler, then a foot."""

    frame: Frame
    label: int  # cells for the names of lanes
    rows: Sequence[tuple[Row, int]]
    room: int  # lines between the ruler and the foot
    selected: Selected
    totals: Mapping[str, int]
    legend: bool
    foot: Sequence[Line]


def _page(parts: Parts, look: Look, size: Size) -> _Page:
    """Return how the picture of a look is divided in a size."""
    low, high, start, _ = parts["window"].row(0)
    here = slice_at(parts, look.slice)
    selected: Selected = None if here is None else (here["lane"], here["t"], here["end"])
    names = parts["lanes"]["lane"].to_list()
    label = max(NARROWEST_LABEL, min(WIDEST_LABEL, size.width // 6, max(map(ink.wide, names)) + 1))
    frame = Frame(low, high, max(10, size.width - label), size.ascii)
    foot, totals = _foot(here, names, start, look.full_names, size), _totals(parts["names"])
    legend = bool(totals) and size.height >= TALL
    room = max(1, size.height - 1 - len(foot) - legend)
    rows = _flame.rows_of(parts["lanes"], parts["slices"], parts["gaps"], parts["cells"])
    rows = _flame.without_covers(rows, low, high, selected)
    heights = _heights(rows, parts["lanes"]["busy_ns"].to_list(), room)
    shown = [(rows[i], heights[i]) for i in _in_sight(rows, heights, room, here)]
    return _Page(frame, label, shown, room, selected, totals, legend, foot)


def _rows(page: _Page, names: Sequence[str]) -> list[Line]:
    """Return the lines of the rows in sight, each with the name of its lane where that begins."""
    body: list[Line] = []
    before = None
    for row, height in page.rows:
        name = names[row.lane] if row.lane != before else ""
        before = row.lane
        lines = _flame.drawn(row, page.frame, height, page.selected)
        style = "accent" if page.selected is not None and before == page.selected[0] else "name"
        label = ink.fit(name, page.label, ascii=page.frame.ascii)
        labels = [label, *[" " * page.label] * (len(lines) - 1)]
        body += [ink.line((text, style), *ln) for text, ln in zip(labels, lines, strict=True)]
    return body


def _ruler(low: int, high: int, label: int, width: int) -> Line:
    """Return a line with the time at the left edge, and how much later it is at three places on the way."""
    quarter = width // 4
    marks = (ink.fit(f"|+{units.duration((high - low) * i // 4)}", quarter) for i in range(1, 4))
    begin = ink.fit(f"|{units.duration(low)}", quarter)
    return ink.line(" " * label, (begin + "".join(marks), "dim"))


def _heights(rows: Sequence[Row], busy: Sequence[int], room: int) -> list[int]:
    """Return how many lines each row gets: those of busy lanes of kernels more, where there is room."""
    most = max((busy[row.lane] for row in rows if row.kind == "kernel"), default=0)
    tall = [row.kind == "kernel" and BUSY * busy[row.lane] >= most for row in rows]
    height = max(1, min(TALLEST, 1 + (room - len(rows)) // max(1, sum(tall))))
    return [height if each else 1 for each in tall]


def _in_sight(
    rows: Sequence[Row], heights: Sequence[int], room: int, here: Mapping[str, Any] | None
) -> range:
    """Return the rows that are shown: all from the top, or those around the row of the cursor."""
    key = (here["lane"], here["row"]) if here else None
    at = next((i for i, r in enumerate(rows) if (r.lane, r.place) == key), 0)
    first = 0
    while first < at and sum(heights[first : at + 1]) > room * 2 // 3 and sum(heights[first:]) > room:
        first += 1
    last, used = first, 0
    while last < len(rows) and used + heights[last] <= room:
        used += heights[last]
        last += 1
    return range(first, last)


def _totals(names: pl.DataFrame) -> dict[str, int]:
    """Return the time of each category in the window, the largest first."""
    known = names.filter(pl.col("category").is_not_null() & (pl.col("total_ns") > 0))
    sums = known.group_by("category").agg(pl.col("total_ns").sum())
    return dict(sums.sort("total_ns", "category", descending=[True, False]).iter_rows())


def _below(names: pl.DataFrame, totals: Mapping[str, int], size: Size) -> list[Line]:
    """Return what the window is made of, category by category and name by name, where there is room."""
    if size.height <= len(totals):
        return []
    rows = [(name, name, ns) for name, ns in totals.items()]
    lines = _flame.bars(rows, size)
    room = size.height - len(lines) - 1
    if room < 2:
        return lines
    kernels = names.head(room).select("name", "category", "count", "total_ns").iter_rows()
    rows = [
        (f"{count:>5,}× {shown_name(name)}", _category.coloured(category), ns)
        for name, category, count, ns in kernels
    ]
    return [*lines, ink.line(), *_flame.bars(rows, Size(size.width, room, size.ascii), sum(totals.values()))]


def _foot(
    here: Mapping[str, Any] | None, lanes: Sequence[str], start: int, in_full: bool, size: Size
) -> list[Line]:
    """Return what the cursor stands on: its name, then where it is and what is known of it."""
    if here is None:
        return []
    name = str(here["name"])
    name = name if in_full or ink.wide(name) <= size.width else shown_name(name)
    facts = [units.duration(here["end"] - here["t"]), *_known(here, lanes, start)]
    if size.height < TALL:
        return [ink.line((f"{shown_name(str(here['name']))} ", "bold"), " · ".join(facts))]
    parts = [name[i : i + size.width] for i in range(0, len(name), size.width)][: 3 if in_full else 1]
    told = wrap(f" {'.' if size.ascii else '·'} ".join(facts), size.width)
    return [*(ink.line((part, "bold")) for part in parts), *map(ink.line, told[: 1 + (size.height >= TALL)])]


def _known(here: Mapping[str, Any], lanes: Sequence[str], start: int) -> list[str]:
    """Return what is known of a slice besides its duration, in words."""
    words = [str(here[c]) for c in ("op", "category") if here.get(c) is not None]
    words += [f"layer {here['layer']}"] if here.get("layer") is not None else []
    words += [lanes[here["lane"]], f"at {(here['t'] - start) / 1e6:,.4f} ms"]
    if here.get("step") is not None:
        words.append(f"step {here['step']} {here.get('phase') or ''}".rstrip())
    words += [f"waited in {here['by']}"] if here.get("by") is not None else []
    words += [str(here["line"])] if here.get("line") is not None else []
    if here.get("launch") is not None:
        words.append(f"launched {units.duration(here['t'] - here['launch'])} before (t)")
    return words


def enter(answer: Answer, look: Look) -> Focus:
    """Return the kernel under the cursor."""
    here = slice_at(answer.parts, look.slice) if answer.parts else None
    if here is None or here["kind"] not in ("kernel", "wait"):
        return ()
    return (("name", str(here["name"])),)


VIEW = View(
    "timeline",
    "Timeline",
    answer,
    draw,
    needs=frozenset({"dur", "t"}),
    alone="it shows single launches at their moments",
    over_time=True,
    row_key=(),
    enter=enter,
    pointed=pointed,
)
