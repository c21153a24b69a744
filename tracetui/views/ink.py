"""Draw with text: lines of styled spans, tables, labelled bars."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from capture.native.schema import CATEGORIES
from tracetui import units
from tracetui.glyphs import clip_cells, count_cells, draw_bar, draw_sparkline, fit_cells, has_shape

# Style names are roles; the screen maps them to a theme, a report to plain text or SGR codes.
STYLES: Final = (
    *("", "dim", "bold", "title", "name", "number", "good", "bad", "warn", "accent", "cursor"),
    *(f"shade{i}" for i in range(1, 5)),  # backgrounds of similar neighbours
    *(f"series{i}" for i in range(6)),
    *("fall3", "fall2", "fall1", "level", "rise1", "rise2", "rise3"),
    *(f"{on}_{category}" for category in CATEGORIES for on in ("cat", "on")),  # foreground and background
)


class Span(NamedTuple):
    """A piece of a line in one style of STYLES."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class DrawSize(Struct, frozen=True):
    """The cells that a drawing may fill, and what it may use: characters, colours, names of keys."""

    width: int
    height: int
    ascii: bool = False
    colours: bool = True
    keys: tuple[tuple[str, str], ...] = ()  # of views, if the user changed them

    def with_height(self, height: int) -> "DrawSize":
        """Return the size with another height."""
        return replace(self, height=height)


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
    room = max(0, size.height - 1)
    top = find_first_visible(rows.height, size.height - 1, cursor or 0)
    present = [
        c
        for c in columns or rows.columns
        if c in rows.columns and rows[c].null_count() < rows.height and has_shape(rows[c])
    ]
    cells = {c: _format_cells(rows[c].slice(top, room), size.ascii) for c in present}
    widths = _choose_widths(cells, size.width)
    order = [c for c in rows.columns if c in widths]
    right = {c: rows.schema[c].is_numeric() for c in order}

    def fit(texts: Iterable[str]) -> list[str]:
        return [fit_cells(t, widths[c], right[c], size.ascii) for t, c in zip(texts, order, strict=True)]

    def draw_row(i: int) -> Line:
        parts = fit(cells[c][i - top] for c in order)
        tones = [styles[c][i] if c in styles else "" for c in order] if styles and i != cursor else []
        if any(tones):
            return make_line(*(Span(f"{p}  ", tone) for p, tone in zip(parts, tones, strict=True)))
        return make_line(("  ".join(parts), "cursor" if i == cursor else ""))

    head = make_line(("  ".join(fit(map(units.format_heading, order))), "title"))
    return [head, *map(draw_row, range(top, min(top + room, rows.height)))]


def find_first_visible(count: int, room: int, cursor: int) -> int:
    """Return the first of `room` visible rows, so that the cursor's row is visible."""
    return max(0, min(cursor - room // 2, count - room))


def _format_cells(values: pl.Series, ascii: bool) -> list[str]:
    return [
        draw_sparkline(v, 16, ascii) if isinstance(v, list) else units.format_cell(values.name, v)
        for v in values.to_list()
    ]


def _choose_widths(cells: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Return the width of each column that fits; the first column gets the remaining room."""
    natural = {c: max(1, *map(count_cells, (units.format_heading(c), *texts))) for c, texts in cells.items()}
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
        for value, label, share, style in islice(
            zip(values, labels, shares, styles, strict=True), size.height
        )
    ]
