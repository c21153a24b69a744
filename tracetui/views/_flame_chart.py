"""Draw the rows of a flame chart, its legend, and bars of time by category."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.native.schema import CATEGORIES
from tracetui import glyphs, units
from tracetui.analysis.timeline import CELLS
from tracetui.glyphs import clip_cells, count_cells, fit_cells
from tracetui.views import ink
from tracetui.views._category import resolve_category, select_ground_style, select_ink_style
from tracetui.views.ink import DrawSize, Line, Span

MIN_TEXT_CELLS: Final = 3  # below these a slice has no name
READABLE_CELLS: Final = 9  # from these on a name is cut in the middle; below, its shortest form at the end
# Fill characters of the categories, in addition to their colours.
FILLS: Final = dict(zip(CATEGORIES, "█▓▒░▚▞▇▆▙▜▖═≡╌┈▪", strict=True))
ASCII_FILLS: Final = dict(zip(CATEGORIES, "#@%=&$OMSX?:+-_*", strict=True))
_PYTHON_FRAME: Final = re.compile(r"^(?:.*\.pyx?\(\d+\): |nn\.Module: )(.+)$")

Slice = dict[str, Any]
Cell = tuple[str, str]  # a character and its style
SelectedSlice = tuple[int, int, int] | None  # lane, start and end of the slice under the cursor


@dataclass(frozen=True)
class DrawArea:
    """The time range of a row in ns, its width in cells, and the available characters."""

    low: int
    high: int
    width: int
    ascii: bool

    def column(self, t: int) -> int:
        """Return the visible cell that contains a time."""
        return max(0, min(self.width, (t - self.low) * self.width // (self.high - self.low)))

    def time_range(self, column: int) -> tuple[float, float]:
        """Return the start and end of the time that a cell covers."""
        return self.low + column * self.cell_ns, self.low + (column + 1) * self.cell_ns

    @property
    def cell_ns(self) -> float:
        """Duration of a cell in ns."""
        return (self.high - self.low) / self.width


@dataclass(frozen=True, eq=False)
class FlameRow:
    """One row of a lane: wide slices and gaps one by one, the others as busy time per cell."""

    lane: int
    row_in_lane: int
    kind: str
    slices: Sequence[Slice]
    gaps: Sequence[Slice]
    cells: Sequence[tuple[int, str | None, float]]  # which of CELLS parts of the time, category, busy ns


def build_rows(
    lanes: pl.DataFrame, slices: pl.DataFrame, gaps: pl.DataFrame, cells: pl.DataFrame
) -> list[FlameRow]:
    """Return the rows that are not empty, from the top."""
    wide = _group_by_row(slices.filter("wide"))
    idle = _group_by_row(gaps.with_columns(row=pl.lit(0, pl.Int32)))
    short: dict[tuple[int, int], list[Any]] = defaultdict(list)  # cell, category, busy ns
    for lane, row, *cell in cells.iter_rows():
        short[lane, row].append(cell)
    kinds = lanes["kind"].to_list()
    return [
        FlameRow(*key, kinds[key[0]], wide.get(key, ()), idle.get(key, ()), short.get(key, ()))
        for key in sorted({*wide, *idle, *short})
    ]


def _group_by_row(slices: pl.DataFrame) -> dict[tuple[int, int], list[Slice]]:
    slices_by_row = defaultdict(list)
    for entry in slices.iter_rows(named=True):
        slices_by_row[entry["lane"], entry["row"]].append(entry)
    return slices_by_row


def drop_covering_rows(
    rows: Sequence[FlameRow], low: int, high: int, selected: SelectedSlice
) -> list[FlameRow]:
    """Drop the rows whose only slice fills the whole width, except the innermost of them."""

    def is_full(row: FlameRow) -> bool:
        return (
            row.kind == "span" and len(row.slices) == 1 and not row.cells
            and row.slices[0]["t"] <= low and row.slices[0]["end"] >= high
        )  # fmt: skip

    remaining = []
    for row, below in zip(rows, [*rows[1:], None], strict=True):
        inner = below is not None and below.lane == row.lane and is_full(below)
        if not (is_full(row) and inner) or is_selected(row.slices[0], selected):
            remaining.append(row)
    return remaining


def is_selected(entry: Slice, selected: SelectedSlice) -> bool:
    """Whether a slice is the one under the cursor."""
    return selected == (entry["lane"], entry["t"], entry["end"])


def draw_row(row: FlameRow, area: DrawArea, height: int, selected: SelectedSlice) -> list[Line]:
    """Draw the row in `height` lines: names in the first, durations and ops below."""
    lines: list[list[Cell]] = [[(" ", "")] * area.width for _ in range(height)]
    for gap in row.gaps:
        _draw_gap(lines[0], gap, area, selected)
    _draw_short_slices(lines, row, area)
    for number, entry in enumerate(row.slices):
        first, last = area.column(entry["t"]), area.column(entry["end"])
        is_here = is_selected(entry, selected)
        if last > first:
            for line_index, cells in enumerate(lines):
                cells[first:last] = _draw_slice(
                    entry, row, number, line_index, last - first, area.ascii, is_here
                )
        elif is_here and first < area.width:
            lines[0][first] = (lines[0][first][0].strip() or "|", "cursor")
    return [ink.make_line(*_join_cells(cells)) for cells in lines]


def _draw_gap(cells: list[Cell], gap: Slice, area: DrawArea, selected: SelectedSlice) -> None:
    """Draw a dotted line in a gap, with its length in the middle if that fits."""
    first, last = area.column(gap["t"]), area.column(gap["end"])
    style = "cursor" if is_selected(gap, selected) else "dim" if gap["fits"] else ""
    room, length = last - first, units.format_duration(gap["end"] - gap["t"])
    text = f" {gap['name']} {length} "
    short = f" {length} " if room >= len(text) else length.replace(" ", "")
    label = next((t for t in (text, short) if count_cells(t) <= room - 2), "")
    dots = ("." if area.ascii else "┄") * (room - count_cells(label))
    cut = len(dots) // 2
    cells[first:last] = [(c, style) for c in dots[:cut] + label + dots[cut:]]


def _draw_short_slices(lines: list[list[Cell]], row: FlameRow, area: DrawArea) -> None:
    """Draw blocks as high as each cell was busy, in the colour of the largest category."""
    marks = glyphs.ASCII_BLOCKS if area.ascii else glyphs.BLOCKS
    for column, busy in _sum_busy_time(row, area).items():
        style = _select_styles(row.kind, max(busy, key=lambda c: busy[c]), 0)[0]
        filled = min(1.0, sum(busy.values()) / area.cell_ns) * len(lines)
        for line_index, cells in enumerate(reversed(lines)):
            part = filled - line_index
            if part > 0 or line_index == 0:
                cells[column] = (marks[max(0, min(7, int(part * 8)))], style)


def _sum_busy_time(row: FlameRow, area: DrawArea) -> dict[int, dict[str, float]]:
    """Return the busy ns per cell and category of slices that are narrower than a cell."""
    busy: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for cell, category, ns in row.cells:
        first = cell * area.width // CELLS
        columns = range(first, max(first + 1, (cell + 1) * area.width // CELLS))
        for column in columns:
            busy[column][category or ""] += ns / len(columns)
    for entry in row.slices:
        column = area.column(entry["t"])
        if area.column(entry["end"]) == column < area.width:
            ns = min(entry["end"], area.high) - max(entry["t"], area.low)
            busy[column][entry.get("category") or ""] += ns
    return busy


def _draw_slice(
    entry: Slice, row: FlameRow, number: int, line_index: int, room: int, ascii: bool, is_here: bool
) -> list[Cell]:
    """Return one line of a slice: an edge, a text if it fits, and the fill of its category."""
    category = entry.get("category") or ""
    ink_style, ground = _select_styles(row.kind, category, number)
    if not entry["fits"]:
        ink_style = ground = "dim"
    if is_here:
        ink_style = ground = "cursor"
    fill = "-" if ascii else "─"
    if row.kind in ("kernel", "wait"):
        fill = (ASCII_FILLS if ascii else FILLS)[resolve_category(category)]
    if room < 2:
        return [(fill, ink_style)]
    text = _choose_text(entry, row.kind, line_index, room - 1, ascii)
    edge = "|" if ascii else "▏"
    cells = [(c, ground) for c in edge + text] + [(fill, ink_style)] * (room - 1 - count_cells(text))
    return cells + [("", ground)] * (room - len(cells))  # after a wide character


def _select_styles(kind: str, category: str, number: int) -> tuple[str, str]:
    """Return the style of the fill and of the text; neighbours of the same kind alternate."""
    if kind in ("kernel", "wait"):
        return select_ink_style(category), select_ground_style(category)
    shade = {"step": 3, "layer": 2}.get(kind, 1) + number % 2
    return f"shade{shade}", f"shade{shade}"


def _choose_text(entry: Slice, kind: str, line_index: int, room: int, ascii: bool) -> str:
    """Return the text in a line of a slice; empty if nothing fits."""
    if room < MIN_TEXT_CELLS:
        return ""
    if line_index == 0:
        texts = list(_iter_names(entry, kind))
    elif line_index == 1:
        texts = [units.format_duration(entry["end"] - entry["t"])]
    else:
        texts = [str(entry["op"])] if entry.get("op") else []
    fitting = next((t for t in texts if count_cells(t) <= room), "")
    if fitting or line_index:
        return fitting
    return fit_cells(texts[0], room, ascii=ascii) if room >= READABLE_CELLS else clip_cells(texts[-1], room)


def _iter_names(entry: Slice, kind: str) -> Iterator[str]:
    """Yield names of a slice, the best first, then shorter ones."""
    step = entry.get("step")
    if kind == "step" and step is not None:
        yield f"step {step} {entry.get('phase') or ''}".rstrip()
        yield f"step {step}"
        yield str(step)
    elif kind == "layer":
        yield str(entry["name"])
        yield str(entry.get("layer"))
    else:
        frame = _PYTHON_FRAME.match(str(entry["name"]))
        name = frame[1] if frame else str(entry.get("short") or entry["name"])
        yield name
        if kind == "span":
            yield name.rpartition("::")[2]
        if entry.get("op"):
            yield str(entry["op"])
            yield str(entry["op"]).rpartition(".")[2]


def _join_cells(cells: Sequence[Cell]) -> Iterator[Span]:
    """Join neighbouring cells of the same style."""
    start = 0
    for i in range(1, len(cells) + 1):
        if i == len(cells) or cells[i][1] != cells[start][1]:
            yield Span("".join(c for c, _ in cells[start:i]), cells[start][1])
            start = i


def draw_fill_legend(totals: Mapping[str, int], size: DrawSize) -> Line:
    """Draw one line with the sign, colour and name of each category, as many as fit."""
    fills = ASCII_FILLS if size.ascii else FILLS
    spans: list[Span] = []
    for name in totals:
        word = f" {name}  "
        if sum(count_cells(s.text) for s in spans) + 2 + len(word) > size.width:
            break
        spans += [Span(fills[name] * 2, select_ink_style(name)), Span(word, "dim")]
    return tuple(spans)


def draw_category_bars(rows: Sequence[tuple[str, str, int]], size: DrawSize, total_ns: int = 0) -> list[Line]:
    """Draw a line per (label, category, ns): the time, its share of `total_ns`, and a bar."""
    fills = ASCII_FILLS if size.ascii else FILLS
    times = [ns for *_, ns in rows]
    total_ns, max_ns = total_ns or sum(times) or 1, max(times, default=0) or 1
    label = min(max((count_cells(text) for text, *_ in rows), default=0), max(14, size.width // 2))
    room = max(4, size.width - label - 22)
    lines = []
    for text, category, ns in rows[: size.height]:
        bar = fills[category] * max(1, round(room * ns / max_ns))
        figures = f" {units.format_duration(ns):>10} {units.format_share(ns / total_ns):>6}  "
        name = fit_cells(text, label, ascii=size.ascii)
        lines.append(ink.make_line((name, "name"), figures, (bar, select_ink_style(category))))
    return lines
