"""Draw with text: lines of styled spans, tables, bars with labels."""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import polars as pl

from capture.native.schema import CATEGORIES
from tracetui import units
from tracetui.glyphs import bar, sparkline

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
    *(f"shade{i}" for i in range(1, 5)),  # grounds of neighbours that are alike
    *(f"series{i}" for i in range(6)),
    "fall3",
    "fall2",
    "fall1",
    "level",
    "rise1",
    "rise2",
    "rise3",
    *(f"{on}_{category}" for category in CATEGORIES for on in ("cat", "on")),  # as ink, and as the ground
)


class Span(NamedTuple):
    """A piece of a line in one style of STYLES."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


@dataclass(frozen=True)
class Size:
    """The cells that a drawing may fill, and what it may use: signs, colours, names of keys."""

    width: int
    height: int
    ascii: bool = False
    colours: bool = True
    keys: tuple[tuple[str, str], ...] = ()  # of views that a person gave another key than their own


def line(*parts: Span | str | tuple[str, str]) -> Line:
    """Return a line of spans; a text alone has no style, and empty parts are left out."""
    return tuple(
        p if isinstance(p, Span) else Span(p) if isinstance(p, str) else Span(*p) for p in parts if p
    )


def clip(lines: Sequence[Line], size: Size) -> list[Line]:
    """Return as much of a drawing as fits into the size."""
    return [_clip_line(ln, size.width) for ln in lines[: size.height]]


def _clip_line(ln: Line, room: int) -> Line:
    if sum(wide(s.text) for s in ln) <= room:
        return ln
    out = []
    for span in ln:
        text = clipped(span.text, room)
        out.append(Span(text, span.style))
        room -= wide(text)
    return tuple(s for s in out if s.text)


def plain(lines: Sequence[Line]) -> str:
    """Return a drawing as text without styles."""
    return "\n".join("".join(span.text for span in ln).rstrip() for ln in lines)


def wide(text: str) -> int:
    """Return how many cells a text fills."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def fit(text: str, width: int, right: bool = False, ascii: bool = False) -> str:
    """Return the text in exactly `width` cells; a long one loses its middle, where names differ least."""
    if width <= 0:
        return ""
    if wide(text) > width:
        tail = (width - 1) // 2
        text = clipped(text, width - 1 - tail) + ("~" if ascii else "…") + clipped(text[::-1], tail)[::-1]
    gap = " " * (width - wide(text))
    return gap + text if right else text + gap


def clipped(text: str, width: int) -> str:
    """Return the longest beginning that fits into `width` cells."""
    used = 0
    for i, c in enumerate(text):
        used += wide(c)
        if used > width:
            return text[:i]
    return text


def table(
    rows: pl.DataFrame,
    size: Size,
    columns: Sequence[str] = (),
    cursor: int | None = None,
    tones: Mapping[str, Sequence[str]] | None = None,
) -> list[Line]:
    """Return a heading and the rows around the cursor, in the columns that fit.

    `columns` ranks them by importance; they stand in the order of the rows. Columns of nulls are left out.
    `tones` has styles of cells, for each row, by column.
    """
    top = _first_row(rows.height, size.height - 1, cursor)
    shown = rows.slice(top, max(0, size.height - 1))
    cells = {c: [_cell_text(c, v, size.ascii) for v in shown[c].to_list()] for c in _ranked(rows, columns)}
    widths = _widths(cells, size.width)
    order = [c for c in rows.columns if c in widths]
    right = {c: rows.schema[c].is_numeric() for c in order}

    def row(texts: Sequence[str], style: str, own: Sequence[str] = ()) -> Line:
        """Return one line of the table in a style, or cell by cell in styles of their own."""
        parts = [fit(t, widths[c], right[c], size.ascii) for t, c in zip(texts, order, strict=True)]
        if not any(own):
            return line(("  ".join(parts), style))
        return line(*(Span(f"{p}  ", tone) for p, tone in zip(parts, own, strict=True)))

    def one(i: int) -> Line:
        """Return the line of a row."""
        texts, here = [cells[c][i] for c in order], cursor == top + i
        own = [] if here or not tones else [tones[c][top + i] if c in tones else "" for c in order]
        return row(texts, "cursor" if here else "", own)

    return [row([units.heading(c) for c in order], "title"), *map(one, range(shown.height))]


def _ranked(rows: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the columns that hold anything, by falling importance."""
    return [c for c in columns or rows.columns if c in rows.columns and rows[c].null_count() < rows.height]


def _first_row(count: int, height: int, cursor: int | None) -> int:
    """Return the first row to show, so that the row of the cursor is shown too."""
    return max(0, min((cursor or 0) - height // 2, count - height))


def _cell_text(column: str, value: Any, ascii: bool) -> str:
    return sparkline(value, 16, ascii) if isinstance(value, list) else units.cell(column, value)


def _widths(cells: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Return the width of each column that finds room; the first gets what the others leave."""
    natural = {c: max(wide(units.heading(c)), *map(wide, texts), 1) for c, texts in cells.items()}
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


def bars(
    values: Sequence[float],
    labels: Sequence[str],
    size: Size,
    text: Callable[[float], str] = units.number,
    shares: Sequence[float | None] = (),
    styles: Sequence[str] = (),
) -> list[Line]:
    """Return one line a value: label, bar, value, and its share of the sum or of `shares`; `styles` has the
    colour of each bar, where they differ.
    """
    most, total = max(values, default=0), math.fsum(values)
    styles = styles or ["series0"] * len(values)
    shares = shares or [v / total if total > 0 else None for v in values]
    width = min(max((wide(x) for x in labels), default=0), size.width // 3)
    room = max(1, size.width - width - 20)
    return [
        line(
            fit(label, width, ascii=size.ascii),
            " ",
            (bar(value / most if most > 0 else 0, room, size.ascii), style),
            f" {text(value):>10}",
            (f" {units.cell('share', share):>6}", "dim"),
        )
        for value, label, share, style in list(zip(values, labels, shares, styles, strict=True))[
            : size.height
        ]
    ]
