"""Draw with text: lines of styled spans, tables, labelled bars."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
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


# Of the sixteen colours those that are readable on black; red, blue and magenta are not.
_ANSI_CATEGORY: Final = {
    "matmul": "cyan", "attention": "yellow", "norm": "green", "elementwise": "bright_magenta",
    "softmax": "bright_green", "reduce": "bright_cyan", "conv": "bright_cyan", "moe": "bright_yellow",
    "ssm": "bright_green", "sampling": "bright_white", "quantize": "bright_white", "copy": "white",
    "comm": "bright_red", "wait": "bright_black", "host": "bright_black", "other": "white",
}  # fmt: skip
# Style names in the sixteen colours of every terminal, in the words of Rich.
ANSI_STYLES: Final = {
    "": "", "dim": "dim", "bold": "bold", "title": "bold", "name": "", "number": "", "good": "cyan",
    "bad": "yellow", "warn": "bold yellow", "accent": "cyan", "cursor": "reverse", "bar": "dim",
    "bar_on": "bold reverse", "bar_warn": "bold yellow", "head": "bold underline",
    "shade1": "", "shade2": "cyan", "shade3": "bold", "shade4": "bold cyan",
    "fall3": "bold reverse cyan", "fall2": "reverse cyan", "fall1": "cyan", "level": "dim",
    "rise1": "yellow", "rise2": "reverse yellow", "rise3": "bold reverse yellow",
    "series0": "cyan", "series1": "yellow", "series2": "green", "series3": "bright_magenta",
    "series4": "bright_red", "series5": "white",
    **{f"cat_{category}": colour for category, colour in _ANSI_CATEGORY.items()},
    **{f"on_{category}": f"black on {colour}" for category, colour in _ANSI_CATEGORY.items()},
}  # fmt: skip
_COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
# White text cannot be read on a white terminal: the terminal's own colour stands for it.
_SGR_CODES: Final = {
    **{colour: str(30 + i) for i, colour in enumerate(_COLOURS)},
    **{f"bright_{colour}": str(90 + i) for i, colour in enumerate(_COLOURS)},
    **{f"on {colour}": str(40 + i) for i, colour in enumerate(_COLOURS)},
    **{f"on bright_{colour}": str(100 + i) for i, colour in enumerate(_COLOURS)},
    "bold": "1",
    "dim": "2",
    "underline": "4",
    "reverse": "7",
    "white": "",
    "bright_white": "1",
}


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


def format_sgr(lines: Sequence[Line]) -> str:
    """Return a drawing as text with escape sequences of the sixteen colours, for a terminal."""
    return "\n".join("".join(map(_format_sgr_span, ln)).rstrip() for ln in lines)


def _format_sgr_span(span: Span) -> str:
    style = "accent" if span.style == "cursor" else span.style  # a printed answer has no cursor
    words = ANSI_STYLES[style].replace("on ", "on_").split()
    codes = ";".join(filter(None, (_SGR_CODES[word.replace("on_", "on ")] for word in words)))
    return f"\x1b[{codes}m{span.text}\x1b[0m" if codes else span.text


def draw_table(
    rows: pl.DataFrame,
    size: DrawSize,
    columns: Sequence[str] = (),
    cursor: int | None = None,
    styles: Mapping[str, Sequence[str]] | None = None,
    headings: Mapping[str, str] = MappingProxyType({}),
) -> list[Line]:
    """Draw a heading and the rows around the cursor, in the columns that fit.

    `columns` ranks them by importance; they keep the order of the rows. Columns of nulls are dropped.
    `styles` has the style of each cell, by column; `headings` those that differ from the usual ones.
    """
    room = max(0, size.height - 1)
    top = find_first_visible(rows.height, size.height - 1, cursor or 0)
    present = [
        c
        for c in columns or rows.columns
        if c in rows.columns and rows[c].null_count() < rows.height and has_shape(rows[c])
    ]
    cells = {c: _format_cells(rows[c].slice(top, room), size.ascii) for c in present}
    titles = mark_headings(present, (), headings)
    widths = _choose_widths(cells, titles, size.width)
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

    head = make_line(("  ".join(fit(titles[c] for c in order)), "title"))
    return [head, *map(draw_row, range(top, min(top + room, rows.height)))]


def mark_headings(
    columns: Iterable[str],
    orders: Sequence[tuple[str, bool]],
    headings: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the heading of each column, with the sign of those that rows are sorted by."""
    return {c: headings.get(c, units.format_heading(c)) + find_sort_sign(orders, c) for c in columns}


def find_sort_sign(orders: Sequence[tuple[str, bool]], column: str) -> str:
    """Return the sign of a column that rows are sorted by, hollow if it only sorts equal rows."""
    for level, (name, descending) in enumerate(orders):
        if name == column:
            return ("▽" if level else "▼") if descending else ("△" if level else "▲")
    return ""


def find_first_visible(count: int, room: int, cursor: int) -> int:
    """Return the first of `room` visible rows, so that the cursor's row is visible."""
    return max(0, min(cursor - room // 2, count - room))


def _format_cells(values: pl.Series, ascii: bool) -> list[str]:
    return [
        draw_sparkline(v, 16, ascii) if isinstance(v, list) else units.format_cell(values.name, v)
        for v in values.to_list()
    ]


def _choose_widths(
    cells: Mapping[str, Sequence[str]], titles: Mapping[str, str], room: int
) -> dict[str, int]:
    """Return the width of each column that fits; the first column gets the remaining room."""
    natural = {c: max(1, *map(count_cells, (titles[c], *texts))) for c, texts in cells.items()}
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
