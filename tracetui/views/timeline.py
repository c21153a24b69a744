"""Timeline: a flame chart of devices with steps and layers, and of threads with their scopes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.display_names import with_short_names
from tracetui.analysis.slices import SlicePosition, TimelineFrames, find_longest_within, find_slice
from tracetui.analysis.timeline import build_timeline
from tracetui.glyphs import count_cells, fit_cells, fit_code_line
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, _category, _flame_chart, ink
from tracetui.views._flame_chart import DrawArea, FlameRow, SelectedSlice
from tracetui.views.ink import DrawSize, Line

MAX_LABEL_CELLS, MIN_LABEL_CELLS = 22, 10  # of lane names
MAX_ROW_LINES: Final = 3  # of a row of kernels
TALL_BUSY_RATIO: Final = 20  # lanes of kernels less busy than 1/20 of the busiest are drawn flat
MIN_LEGEND_HEIGHT: Final = 12  # smaller drawings have no legend, and one line for the slice under the cursor


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per lane; slices, gaps and the displayed time range are parts."""
    chart = build_timeline(runs[0], look)
    if chart is None:
        if selection.has_start_times(runs[0], ("step", "span", "kernel")):
            return Answer(pl.DataFrame(), (selection.NO_MATCH,))
        note = "this source does not report t of timed rows; the timeline view needs it"
        return Answer(pl.DataFrame(), (note,), missing=("t",))
    (low, high), (start, end) = chart.window, chart.extent
    first, last, total = (units.format_duration(t - start) for t in (low, high, end))
    where = f"{first} to {last} of {total}"
    parts = {
        "lanes": chart.lanes,
        "slices": with_short_names(chart.slices, runs),
        "cells": chart.cells.with_columns(pl.col("category").cast(pl.String)),
        "gaps": chart.gaps,
        "names": with_short_names(chart.names, runs),
        "window": pl.DataFrame({"low": [low], "high": [high], "start": [start], "end": [end]}),
    }
    rows = chart.lanes.filter(pl.col("count") > 0).drop("track", "code")
    return Answer(rows, (where, *selection.note_folding(runs[0])), ("lane",), parts)


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw a ruler, the rows around the cursor, the categories, and the slice under the cursor."""
    if answer.rows.is_empty():
        return []
    page = _build_layout(answer.parts, look, size)
    low, high, start, _ = answer.parts["window"].row(0)
    body = _draw_rows(page, answer.parts["lanes"]["lane"].to_list())
    spare = size.with_height(page.room - len(body))
    below = _draw_breakdown(answer.parts["names"], page.totals, spare) if page.legend else []
    keys = [_flame_chart.draw_fill_legend(page.totals, size)] if page.legend and not below else []
    gap = [ink.make_line()] * max(0, size.height - 1 - len(body) - len(below) - len(keys) - len(page.foot))
    ruler = _draw_ruler(low - start, high - start, page.label, page.area.width)
    return ink.clip_lines([ruler, *body, *gap[:1], *below, *gap[1:], *keys, *page.foot], size)


def find_slice_in_cell(
    answer: Answer, look: Look, size: DrawSize, column: int, line: int
) -> SlicePosition | None:
    """Return the slice or gap drawn in a cell; None if it is empty."""
    if answer.rows.is_empty():
        return None
    page = _build_layout(answer.parts, look, size)
    column, line = column - page.label, line - 1  # right of the names, below the ruler
    if not 0 <= column < page.area.width:
        return None
    for row, height in page.rows:
        if 0 <= line < height:
            return find_longest_within(answer.parts, row.lane, row.row_in_lane, page.area.time_range(column))
        line -= height
    return None


@dataclass(frozen=True, eq=False)
class _PictureLayout:
    """Layout of the drawing: rows with their heights below a ruler, then a foot."""

    area: DrawArea
    label: int  # width of the lane names
    rows: Sequence[tuple[FlameRow, int]]
    room: int  # lines between the ruler and the foot
    selected: SelectedSlice
    totals: Mapping[str, int]
    legend: bool
    foot: Sequence[Line]


def _build_layout(parts: TimelineFrames, look: Look, size: DrawSize) -> _PictureLayout:
    low, high, start, _ = parts["window"].row(0)
    at_cursor = find_slice(parts, look.slice)
    selected = None if at_cursor is None else (at_cursor["lane"], at_cursor["t"], at_cursor["end"])
    names = parts["lanes"]["lane"].to_list()
    label = max(MIN_LABEL_CELLS, min(MAX_LABEL_CELLS, size.width // 6, max(map(count_cells, names)) + 1))
    frame = DrawArea(low, high, max(10, size.width - label), size.ascii)
    foot = _draw_cursor_text(at_cursor, names, start, look.full_names, size)
    totals = _sum_categories(parts["names"])
    legend = bool(totals) and size.height >= MIN_LEGEND_HEIGHT
    room = max(1, size.height - 1 - len(foot) - legend)
    rows = _flame_chart.build_rows(parts["lanes"], parts["slices"], parts["gaps"], parts["cells"])
    rows = _flame_chart.drop_covering_rows(rows, low, high, selected)
    heights = _choose_heights(rows, parts["lanes"]["busy_ns"].to_list(), room)
    visible = [(rows[i], heights[i]) for i in _select_visible_rows(rows, heights, room, at_cursor)]
    return _PictureLayout(frame, label, visible, room, selected, totals, legend, foot)


def _draw_rows(page: _PictureLayout, names: Sequence[str]) -> list[Line]:
    """Draw the visible rows, with the name of each lane at its first row."""
    body: list[Line] = []
    before = None
    for row, height in page.rows:
        name = names[row.lane] if row.lane != before else ""
        before = row.lane
        lines = _flame_chart.draw_row(row, page.area, height, page.selected)
        style = "accent" if page.selected is not None and before == page.selected[0] else "name"
        label = fit_cells(name, page.label, ascii=page.area.ascii)
        labels = [label, *[" " * page.label] * (len(lines) - 1)]
        body += [ink.make_line((text, style), *ln) for text, ln in zip(labels, lines, strict=True)]
    return body


def _draw_ruler(low: int, high: int, label: int, width: int) -> Line:
    """Return a line with the time at the left edge, and how much later it is at three places on the way."""
    quarter = width // 4
    marks = (fit_cells(f"|+{units.format_duration((high - low) * i // 4)}", quarter) for i in range(1, 4))
    begin = fit_cells(f"|{units.format_duration(low)}", quarter)
    return ink.make_line(" " * label, (begin + "".join(marks), "dim"))


def _choose_heights(rows: Sequence[FlameRow], busy: Sequence[int], room: int) -> list[int]:
    """Return the lines of each row: more for busy lanes of kernels, if there is room."""
    busiest = max((busy[row.lane] for row in rows if row.kind == "kernel"), default=0)
    tall = [row.kind == "kernel" and TALL_BUSY_RATIO * busy[row.lane] >= busiest for row in rows]
    height = max(1, min(MAX_ROW_LINES, 1 + (room - len(rows)) // max(1, sum(tall))))
    return [height if is_tall else 1 for is_tall in tall]


def _select_visible_rows(
    rows: Sequence[FlameRow], heights: Sequence[int], room: int, at_cursor: Mapping[str, Any] | None
) -> range:
    """Return the visible rows: all from the top, or those around the cursor's row."""
    key = (at_cursor["lane"], at_cursor["row"]) if at_cursor else None
    at = next((i for i, r in enumerate(rows) if (r.lane, r.row_in_lane) == key), 0)
    first, to_cursor, to_end = 0, sum(heights[: at + 1]), sum(heights)
    while first < at and to_cursor > room * 2 // 3 and to_end > room:
        to_cursor, to_end = to_cursor - heights[first], to_end - heights[first]
        first += 1
    last, used = first, 0
    while last < len(rows) and used + heights[last] <= room:
        used += heights[last]
        last += 1
    return range(first, last)


def _sum_categories(names: pl.DataFrame) -> dict[str, int]:
    """Return the time of each category in the displayed range, largest first."""
    timed = names.filter(pl.col("category").is_not_null() & (pl.col("total_ns") > 0))
    sums = timed.group_by("category").agg(pl.col("total_ns").sum())
    return dict(sums.sort("total_ns", "category", descending=[True, False]).iter_rows())


def _draw_breakdown(names: pl.DataFrame, totals: Mapping[str, int], size: DrawSize) -> list[Line]:
    """Draw the time by category and by name, if there is room."""
    if size.height <= len(totals):
        return []
    rows = [(name, name, ns) for name, ns in totals.items()]
    lines = _flame_chart.draw_category_bars(rows, size)
    room = size.height - len(lines) - 1
    if room < 2:
        return lines
    kernels = names.head(room).select("short", "category", "count", "total_ns").iter_rows()
    rows = [
        (f"{count:>5,}× {name}", _category.resolve_category(category), ns)
        for name, category, count, ns in kernels
    ]
    bars = _flame_chart.draw_category_bars(rows, size.with_height(room), sum(totals.values()))
    return [*lines, ink.make_line(), *bars]


def _draw_cursor_text(
    at_cursor: Mapping[str, Any] | None, lanes: Sequence[str], start: int, in_full: bool, size: DrawSize
) -> list[Line]:
    """Draw what is under the cursor: its name, then its position and attributes."""
    if at_cursor is None:
        return []
    name = str(at_cursor["name"])
    short = str(at_cursor.get("short") or name)
    name = name if in_full or count_cells(name) <= size.width else short
    facts, code = _describe_slice(at_cursor, lanes, start), str(at_cursor.get("line") or "")
    if size.height < MIN_LEGEND_HEIGHT:
        return [ink.make_line((f"{short} ", "bold"), " · ".join([*facts, *([code] if code else [])]))]
    parts = [name[i : i + size.width] for i in range(0, len(name), size.width)][: 3 if in_full else 1]
    wrapped = _wrap_facts(facts, code, size)
    return [*(ink.make_line((part, "bold")) for part in parts), *map(ink.make_line, wrapped)]


def _wrap_facts(facts: Sequence[str], code: str, size: DrawSize) -> list[str]:
    """Return facts in two lines, with the line of code in what they leave, or on the second."""
    separator = f" {'.' if size.ascii else '·'} "
    lines = wrap(separator.join(facts), size.width)[:2]
    room = size.width - count_cells(lines[-1] + separator)
    if not code:
        return lines
    if room < count_cells(code) and len(lines) < 2:
        return [*lines, fit_code_line(code, size.width, size.ascii).rstrip()]
    lines[-1] += separator + fit_code_line(code, room, size.ascii).rstrip() if room > 0 else ""
    return lines


def _describe_slice(slice_: Mapping[str, Any], lanes: Sequence[str], start: int) -> list[str]:
    """Return the duration and the attributes of a slice, without its line of code."""
    parts = [units.format_duration(slice_["end"] - slice_["t"])]
    parts += [str(slice_[c]) for c in ("op", "category") if slice_.get(c) is not None]
    parts += [f"layer {slice_['layer']}"] if slice_.get("layer") is not None else []
    parts += [lanes[slice_["lane"]], f"at {(slice_['t'] - start) / 1e6:,.4f} ms"]
    if slice_.get("step") is not None:
        parts.append(f"step {slice_['step']} {slice_.get('phase') or ''}".rstrip())
    parts += [f"waited in {slice_['by']}"] if slice_.get("by") is not None else []
    if slice_.get("launch") is not None:
        parts.append(f"launched {units.format_duration(slice_['t'] - slice_['launch'])} before (t)")
    return parts


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the kernel under the cursor."""
    slice_ = find_slice(answer.parts, look.slice) if answer.parts else None
    if slice_ is None or slice_["kind"] not in ("kernel", "wait"):
        return ()
    return (("name", str(slice_["name"])),)


VIEW = View(
    "timeline",
    "Timeline",
    answer,
    draw,
    needs=frozenset({"dur", "t"}),
    not_merged_because="it shows single launches over time",
    has_time_axis=True,
    row_key=(),
    find_focus=find_focus,
    find_slice_in_cell=find_slice_in_cell,
)
