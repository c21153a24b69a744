"""Timeline: what ran when, one lane a track."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis import select
from tracetui.analysis.timeline import CELLS, NAMED, timeline
from tracetui.look import Look
from tracetui.shown_names import shown_name
from tracetui.views import Answer, View, ink
from tracetui.views.ink import Line, Size

LABEL: Final = 18  # cells for the name of a lane


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a lane, with its cells, names and window as parts."""
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
        "cells": shown.cells,
        "names": shown.names,
        "window": pl.DataFrame({"low": [low], "high": [high], "start": [start], "end": [end]}),
    }
    return Answer(shown.lanes, (where, *select.folding(runs[0])), ("lane",), parts)


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw two lines a lane: how busy it is, and the names that fit below."""
    if answer.rows.is_empty():
        return []
    width = max(10, size.width - LABEL)
    low, high, start, _ = answer.parts["window"].row(0)
    room = max(1, (size.height - 1) // 2)
    top = max(0, min(look.cursor[0] - room // 2, answer.rows.height - room))
    lines = [_ruler(low - start, high - start, width)]
    for i, (lane, kind) in enumerate(answer.rows.select("lane", "kind").iter_rows()):
        if top <= i < top + room:
            here = i == look.cursor[0]
            lines.append(_busy(answer.parts["cells"], lane, kind, width, size, here))
            lines.append(_names(answer.parts["names"], lane, kind, (low, high), width, size))
    return ink.clip(lines, size)


def _ruler(low: int, high: int, width: int) -> Line:
    """Return a line with the times at four places of the window."""
    quarter = width // 4
    marks = (ink.fit("|" + units.duration(low + (high - low) * i // 4), quarter) for i in range(4))
    return ink.line(" " * LABEL, ("".join(marks), "dim"))


def _busy(cells: pl.DataFrame, lane: str, kind: str, width: int, size: Size, here: bool) -> Line:
    own = cells.filter((pl.col("lane") == lane) & (pl.col("kind") == kind))
    busy_by_cell = dict(own.select("cell", "busy").iter_rows())
    values = [busy_by_cell.get(i, 0.0) for i in range(CELLS)]
    busy = [v or 0.0 for v in glyphs.squeeze(values, width)] if width < CELLS else values
    marks = glyphs.ASCII_BLOCKS if size.ascii else glyphs.BLOCKS
    text = "".join(" " if v <= 0 else marks[min(7, int(v * 8))] for v in busy)
    style = {"step": "series1", "span": "series2"}.get(kind, "series0")
    return ink.line(
        (ink.fit(lane, LABEL - 1, ascii=size.ascii) + " ", "cursor" if here else "name"), (text, style)
    )


def _names(
    names: pl.DataFrame, lane: str, kind: str, window: tuple[int, int], width: int, size: Size
) -> Line:
    """Return a line with the names of rows wide enough, longest first, never over each other."""
    low, high = window
    own = names.filter((pl.col("lane") == lane) & (pl.col("kind") == kind))
    rows = own.sort(pl.col("b") - pl.col("a"), "a", descending=[True, False])
    cells, taken = [" "] * width, [False] * width
    for a, b, name in rows.select("a", "b", "name").iter_rows():
        first, last = ((x - low) * width // (high - low) for x in (a, b))
        room = last - first - 1
        if room >= NAMED and not any(taken[first:last]):
            text = ink.fit(shown_name(str(name)), room, ascii=size.ascii)
            cells[first:last] = ["|" + text, *[""] * room]
            taken[first:last] = [True] * (last - first)
    return ink.line(" " * LABEL, ("".join(cells), "dim"))


VIEW = View("timeline", "Timeline", answer, draw, needs=frozenset({"dur", "t"}), over_time=True)
