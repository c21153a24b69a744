"""Draw the rows of a flame chart: slices with their names where these fit, short ones as busy time."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.native.schema import CATEGORIES
from tracetui import glyphs, units
from tracetui.analysis.timeline import CELLS
from tracetui.shown_names import shown_name
from tracetui.views import ink
from tracetui.views._category import coloured, grounded, inked
from tracetui.views.ink import Line, Size, Span

LEAST_TEXT: Final = 3  # cells that a name needs at least
READABLE: Final = 9  # cells from which the ends of a name tell more than the beginning of its shortest form
# The signs beside the colours of the categories, in their order.
FILLS: Final = dict(zip(CATEGORIES, "█▓▒░▚▞▇▆▙▜▖═≡╌┈▪", strict=True))
ASCII_FILLS: Final = dict(zip(CATEGORIES, "#@%=&$OMSX?:+-_*", strict=True))
_FRAME: Final = re.compile(r"^(?:.*\.pyx?\(\d+\): |nn\.Module: )(.+)$")

Slice = dict[str, Any]
Cell = tuple[str, str]  # a character and its style
Selected = tuple[int, int, int] | None  # lane, start and end of the slice under the cursor


@dataclass(frozen=True)
class Frame:
    """What a row is drawn into: the window in ns, its cells, and the signs at hand."""

    low: int
    high: int
    width: int
    ascii: bool

    def column(self, t: int) -> int:
        """Return the cell in which a moment lies, within those in sight."""
        return max(0, min(self.width, (t - self.low) * self.width // (self.high - self.low)))

    def moments(self, column: int) -> tuple[float, float]:
        """Return the time that a cell stands for."""
        return self.low + column * self.cell_ns, self.low + (column + 1) * self.cell_ns

    @property
    def cell_ns(self) -> float:
        """Return how much time a cell stands for."""
        return (self.high - self.low) / self.width


@dataclass(frozen=True, eq=False)
class Row:
    """One row of a lane: its wide slices and gaps one by one, the others as busy time of the cells."""

    lane: int
    place: int
    kind: str
    slices: Sequence[Slice]
    gaps: Sequence[Slice]
    cells: Sequence[tuple[int, str | None, float]]  # cell, category, busy ns


def rows_of(lanes: pl.DataFrame, slices: pl.DataFrame, gaps: pl.DataFrame, cells: pl.DataFrame) -> list[Row]:
    """Return the rows that hold anything, from the top."""
    wide = _by_row(slices.filter("wide"))
    idle = _by_row(gaps.with_columns(row=pl.lit(0, pl.Int32)))
    short: dict[tuple[int, int], list[tuple[int, str | None, float]]] = {}
    for lane, place, cell, category, busy in cells.iter_rows():
        short.setdefault((lane, place), []).append((cell, category, busy))
    kinds = lanes["kind"].to_list()
    return [
        Row(*key, kinds[key[0]], wide.get(key, ()), idle.get(key, ()), short.get(key, ()))
        for key in sorted({*wide, *idle, *short})
    ]


def _by_row(slices: pl.DataFrame) -> dict[tuple[int, int], list[Slice]]:
    found: dict[tuple[int, int], list[Slice]] = {}
    for each in slices.iter_rows(named=True):
        found.setdefault((each["lane"], each["row"]), []).append(each)
    return found


def without_covers(rows: Sequence[Row], low: int, high: int, selected: Selected) -> list[Row]:
    """Return the rows without those above the innermost slice that fills the whole window of its lane."""

    def fills(row: Row) -> bool:
        """Tell whether the row is one slice from edge to edge."""
        return (
            row.kind == "span" and len(row.slices) == 1 and not row.cells
            and row.slices[0]["t"] <= low and row.slices[0]["end"] >= high
        )  # fmt: skip

    kept = []
    for row, below in zip(rows, [*rows[1:], None], strict=True):
        inner = below is not None and below.lane == row.lane and fills(below)
        if not (fills(row) and inner) or is_selected(row.slices[0], selected):
            kept.append(row)
    return kept


def is_selected(each: Slice, selected: Selected) -> bool:
    """Tell whether a slice is the one under the cursor."""
    return selected == (each["lane"], each["t"], each["end"])


def drawn(row: Row, frame: Frame, height: int, selected: Selected) -> list[Line]:
    """Return the row in as many lines: the first has names, the others what a slice was and how long."""
    lines: list[list[Cell]] = [[(" ", "")] * frame.width for _ in range(height)]
    for gap in row.gaps:
        _put_gap(lines[0], gap, frame, selected)
    _put_short(lines, row, frame)
    for number, each in enumerate(row.slices):
        first, last = frame.column(each["t"]), frame.column(each["end"])
        here = is_selected(each, selected)
        if last > first:
            for place, cells in enumerate(lines):
                cells[first:last] = _block(each, row, number, place, last - first, frame.ascii, here)
        elif here and first < frame.width:
            lines[0][first] = (lines[0][first][0].strip() or "|", "cursor")
    return [ink.line(*_joined(cells)) for cells in lines]


def _put_gap(cells: list[Cell], gap: Slice, frame: Frame, selected: Selected) -> None:
    """Put a dotted line where nothing ran, with its length in the middle where that fits."""
    first, last = frame.column(gap["t"]), frame.column(gap["end"])
    style = "cursor" if is_selected(gap, selected) else "dim" if gap["fits"] else ""
    room, text = last - first, f" {gap['name']} {units.duration(gap['end'] - gap['t'])} "
    short = f" {units.duration(gap['end'] - gap['t'])} ".replace(" ", "" if room < len(text) else " ")
    words = next((t for t in (text, short) if ink.wide(t) <= room - 2), "")
    dots = ("." if frame.ascii else "┄") * (room - ink.wide(words))
    cut = len(dots) // 2
    cells[first:last] = [(c, style) for c in dots[:cut] + words + dots[cut:]]


def _put_short(lines: list[list[Cell]], row: Row, frame: Frame) -> None:
    """Put blocks as high as the cell was busy, in the colour of the category that took most of it."""
    marks = glyphs.ASCII_BLOCKS if frame.ascii else glyphs.BLOCKS
    for column, took in _busy(row, frame).items():
        style = _styles(row.kind, max(took, key=lambda c: took[c]), 0)[0]
        filled = min(1.0, sum(took.values()) / frame.cell_ns) * len(lines)
        for place, cells in enumerate(reversed(lines)):
            part = filled - place
            if part > 0 or place == 0:
                cells[column] = (marks[max(0, min(7, int(part * 8)))], style)


def _busy(row: Row, frame: Frame) -> dict[int, dict[str, float]]:
    """Return for each cell of the screen how long each category was busy, of what is no cell wide."""
    busy: dict[int, dict[str, float]] = {}

    def add(column: int, category: str | None, ns: float) -> None:
        """Add the time of a slice, or of some."""
        took = busy.setdefault(column, {})
        took[category or ""] = took.get(category or "", 0.0) + ns

    for cell, category, ns in row.cells:
        first = cell * frame.width // CELLS
        columns = range(first, max(first + 1, (cell + 1) * frame.width // CELLS))
        for column in columns:
            add(column, category, ns / len(columns))
    for each in row.slices:
        column = frame.column(each["t"])
        if frame.column(each["end"]) == column < frame.width:
            add(column, each.get("category"), min(each["end"], frame.high) - max(each["t"], frame.low))
    return busy


def _block(each: Slice, row: Row, number: int, place: int, room: int, ascii: bool, here: bool) -> list[Cell]:
    """Return the cells of one line of a slice: an edge, a text where it fits, the fill of its category."""
    category = each.get("category") or ""
    ink_style, ground = _styles(row.kind, category, number)
    if not each["fits"]:
        ink_style = ground = "dim"
    if here:
        ink_style = ground = "cursor"
    fill = "-" if ascii else "─"
    if row.kind in ("kernel", "wait"):
        fill = (ASCII_FILLS if ascii else FILLS)[coloured(category)]
    if room < 2:
        return [(fill, ink_style)]
    text = _text(each, row.kind, place, room - 1, ascii)
    edge = "|" if ascii else "▏"
    cells = [(c, ground) for c in edge + text] + [(fill, ink_style)] * (room - 1 - ink.wide(text))
    return cells + [("", ground)] * (room - len(cells))  # after a wide character


def _styles(kind: str, category: str, number: int) -> tuple[str, str]:
    """Return the style of the fill and that of the text; where all are alike, neighbours differ."""
    if kind in ("kernel", "wait"):
        return inked(category), grounded(category)
    shade = {"step": 3, "layer": 2}.get(kind, 1) + number % 2
    return f"shade{shade}", f"shade{shade}"


def _text(each: Slice, kind: str, place: int, room: int, ascii: bool) -> str:
    """Return what stands in a line of a slice; empty where nothing fits."""
    if room < LEAST_TEXT:
        return ""
    if place == 0:
        texts = list(_names(each, kind))
    elif place == 1:
        texts = [units.duration(each["end"] - each["t"])]
    else:
        texts = [str(each["op"])] if each.get("op") else []
    whole = next((t for t in texts if ink.wide(t) <= room), "")
    if whole or place:
        return whole
    return ink.fit(texts[0], room, ascii=ascii) if room >= READABLE else ink.clipped(texts[-1], room)


def _names(each: Slice, kind: str) -> Iterator[str]:
    """Yield what a slice may be called, the best name first and shorter ones after it."""
    step = each.get("step")
    if kind == "step" and step is not None:
        yield f"step {step} {each.get('phase') or ''}".rstrip()
        yield f"step {step}"
        yield str(step)
    elif kind == "layer":
        yield str(each["name"])
        yield str(each.get("layer"))
    else:
        frame = _FRAME.match(str(each["name"]))
        name = frame[1] if frame else shown_name(str(each["name"]))
        yield name
        if kind == "span":
            yield name.rpartition("::")[2]
        if each.get("op"):
            yield str(each["op"])
            yield str(each["op"]).rpartition(".")[2]


def _joined(cells: Sequence[Cell]) -> Iterator[Span]:
    """Yield spans of neighbouring cells in one style."""
    start = 0
    for i in range(1, len(cells) + 1):
        if i == len(cells) or cells[i][1] != cells[start][1]:
            yield Span("".join(c for c, _ in cells[start:i]), cells[start][1])
            start = i


def legend(totals: Mapping[str, int], size: Size) -> Line:
    """Return one line with the sign, colour and name of each category, as many as fit."""
    fills = ASCII_FILLS if size.ascii else FILLS
    spans: list[Span] = []
    for name in totals:
        word = f" {name}  "
        if sum(ink.wide(s.text) for s in spans) + 2 + len(word) > size.width:
            break
        spans += [Span(fills[name] * 2, inked(name)), Span(word, "dim")]
    return tuple(spans)


def bars(rows: Sequence[tuple[str, str, int]], size: Size, whole: int = 0) -> list[Line]:
    """Return a line for each label, category and time: the time, its share of the whole, and a bar."""
    fills = ASCII_FILLS if size.ascii else FILLS
    whole, most = whole or sum(ns for *_, ns in rows) or 1, max((ns for *_, ns in rows), default=0) or 1
    label = min(max((ink.wide(text) for text, *_ in rows), default=0), max(14, size.width // 2))
    room = max(4, size.width - label - 22)
    lines = []
    for text, category, ns in rows[: size.height]:
        bar = fills[category] * max(1, round(room * ns / most))
        figures = f" {units.duration(ns):>10} {units.share(ns / whole):>6}  "
        lines.append(
            ink.line((ink.fit(text, label, ascii=size.ascii), "name"), figures, (bar, inked(category)))
        )
    return lines
