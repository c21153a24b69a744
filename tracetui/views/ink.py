"""Draw with text: lines of styled spans, tables, labelled bars."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import polars as pl

from capture.native.schema import CATEGORIES
from tracetui import units
from tracetui.cell_width import clip_cells, count_cells, fit_cells
from tracetui.glyphs import draw_bar, draw_sparkline

# Style names are roles; the screen maps them to a theme, a report to plain text or SGR codes.
STYLES: Final = (
    "",
    "dim",
    "bold",
    "title",
    "name",
    "number",
    "good",
    "bad",
    "warn",
    "accent",
    "cursor",
    *(f"shade{i}" for i in range(1, 5)),  # backgrounds of similar neighbours
    *(f"series{i}" for i in range(6)),
    "fall3",
    "fall2",
    "fall1",
    "level",
    "rise1",
    "rise2",
    "rise3",
    *(f"{on}_{category}" for category in CATEGORIES for on in ("cat", "on")),  # foreground and background
)


class Span(NamedTuple):
    """A piece of a line in one style of STYLES."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


@dataclass(frozen=True)
class DrawSize:
    """The cells that a drawing may fill, and what it may use: characters, colours, names of keys."""

    width: int
    height: int
    ascii: bool = False
    colours: bool = True
    keys: tuple[tuple[str, str], ...] = ()  # of views, if the user changed them


def make_line(*parts: Span | str | tuple[str, str]) -> Line:
    """Make a line of spans; plain text has no style, and empty parts are dropped."""
    return tuple(
        p if isinstance(p, Span) else Span(p) if isinstance(p, str) else Span(*p) for p in parts if p
    )


def clip_lines(lines: Sequence[Line], size: DrawSize) -> list[Line]:
    """Return the part of a drawing that fits into the size."""
    return [_clip_line(ln, size.width) for ln in lines[: size.height]]


def _clip_line(ln: Line, room: int) -> Line:
    if sum(count_cells(s.text) for s in ln) <= room:
        return ln
    out = []
    for span in ln:
        text = clip_cells(span.text, room)
        out.append(Span(text, span.style))
        room -= count_cells(text)
    return tuple(s for s in out if s.text)


def format_plain(lines: Sequence[Line]) -> str:
    """Return a drawing as text without styles."""
    return "\n".join("".join(span.text for span in ln).rstrip() for ln in lines)


def draw_table(
    rows: pl.DataFrame,
    size: DrawSize,
    columns: Sequence[str] = (),
    cursor: int | None = None,
    styles: Mapping[str, Sequence[str]] | None = None,
) -> list[Line]:
    """Draw a heading and the rows around the cursor, in the columns that fit.

    `columns` ranks them by importance; they keep the order of the rows. Columns of nulls are dropped.
    `styles` has the style of each cell, by column.
    """
    top = _find_first_row(rows.height, size.height - 1, cursor)
    visible = rows.slice(top, max(0, size.height - 1))
    cells = {
        c: [_format_table_cell(c, v, size.ascii) for v in visible[c].to_list()]
        for c in _rank_columns(rows, columns)
    }
    widths = _choose_widths(cells, size.width)
    order = [c for c in rows.columns if c in widths]
    right = {c: rows.schema[c].is_numeric() for c in order}

    def draw_cells(texts: Sequence[str], style: str, own_styles: Sequence[str] = ()) -> Line:
        """Draw one line of the table in a style, or cell by cell in styles of their own."""
        parts = [fit_cells(t, widths[c], right[c], size.ascii) for t, c in zip(texts, order, strict=True)]
        if not any(own_styles):
            return make_line(("  ".join(parts), style))
        return make_line(*(Span(f"{p}  ", tone) for p, tone in zip(parts, own_styles, strict=True)))

    def draw_row(i: int) -> Line:
        texts, is_here = [cells[c][i] for c in order], cursor == top + i
        own_styles = (
            [] if is_here or not styles else [styles[c][top + i] if c in styles else "" for c in order]
        )
        return draw_cells(texts, "cursor" if is_here else "", own_styles)

    return [
        draw_cells([units.format_heading(c) for c in order], "title"),
        *map(draw_row, range(visible.height)),
    ]


def _rank_columns(rows: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the columns that are not all null, by falling importance."""
    return [c for c in columns or rows.columns if c in rows.columns and rows[c].null_count() < rows.height]


def _find_first_row(count: int, height: int, cursor: int | None) -> int:
    """Return the first visible row, so that the cursor's row is visible."""
    return max(0, min((cursor or 0) - height // 2, count - height))


def _format_table_cell(column: str, value: Any, ascii: bool) -> str:
    return draw_sparkline(value, 16, ascii) if isinstance(value, list) else units.format_cell(column, value)


def _choose_widths(cells: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Return the width of each column that fits; the first column gets the remaining room."""
    natural = {
        c: max(count_cells(units.format_heading(c)), *map(count_cells, texts), 1)
        for c, texts in cells.items()
    }
    if not natural:
        return {}
    first, *others = natural
    chosen = {first: min(natural[first], max(12, room // 3))}
    left = room - chosen[first]
    for c in others:
        if natural[c] + 2 <= left:
            chosen[c] = natural[c]
            left -= natural[c] + 2
    chosen[first] = min(natural[first], chosen[first] + left)
    return chosen


def draw_bars(
    values: Sequence[float],
    labels: Sequence[str],
    size: DrawSize,
    text: Callable[[float], str] = units.format_number,
    shares: Sequence[float | None] = (),
    styles: Sequence[str] = (),
) -> list[Line]:
    """Draw one line per value: label, bar, value, and its share of the sum (or `shares`).

    `styles` has the colour of each bar.
    """
    largest, total = max(values, default=0), math.fsum(values)
    styles = styles or ["series0"] * len(values)
    shares = shares or [v / total if total > 0 else None for v in values]
    width = min(max((count_cells(x) for x in labels), default=0), size.width // 3)
    room = max(1, size.width - width - 20)
    return [
        make_line(
            fit_cells(label, width, ascii=size.ascii),
            " ",
            (draw_bar(value / largest if largest > 0 else 0, room, size.ascii), style),
            f" {text(value):>10}",
            (f" {units.format_cell('share', share):>6}", "dim"),
        )
        for value, label, share, style in list(zip(values, labels, shares, styles, strict=True))[
            : size.height
        ]
    ]
