"""Draw with text: lines of styled spans, tables, bars with labels, and charts by plotext."""

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
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
    *(f"heat{i}" for i in range(8)),
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


Point = tuple[float, float]

_BRAILLE, _LETTERS = "braille", "*+ox#@"  # markers of a chart's series
_FRAME: Final = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_DRAWING: Final = Lock()  # plotext has one figure for the whole process


class Span(NamedTuple):
    """A piece of a line in one style of STYLES."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


@dataclass(frozen=True)
class Size:
    """The cells that a drawing may fill, and whether it must keep to ASCII."""

    width: int
    height: int
    ascii: bool = False


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
    rows: pl.DataFrame, size: Size, columns: Sequence[str] = (), cursor: int | None = None
) -> list[Line]:
    """Return a heading and the rows around the cursor, in the columns that fit.

    `columns` ranks them by importance; they stand in the order of the rows. Columns of nulls are left out.
    """
    top = _first_row(rows.height, size.height - 1, cursor)
    shown = rows.slice(top, max(0, size.height - 1))
    cells = {c: [_cell_text(c, v, size.ascii) for v in shown[c].to_list()] for c in _ranked(rows, columns)}
    widths = _widths(cells, size.width)
    order = [c for c in rows.columns if c in widths]
    right = {c: rows.schema[c].is_numeric() for c in order}

    def row(texts: Sequence[str], style: str) -> Line:
        """Return one line of the table in a style."""
        parts = [fit(t, widths[c], right[c], size.ascii) for t, c in zip(texts, order, strict=True)]
        return line(("  ".join(parts), style))

    head = row([units.heading(c) for c in order], "title")
    styles = ["cursor" if cursor == top + i else "" for i in range(shown.height)]
    return [head, *(row([cells[c][i] for c in order], style) for i, style in enumerate(styles))]


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
) -> list[Line]:
    """Return one line a value: label, bar, value, and its share of the sum or of `shares`."""
    most, total = max(values, default=0), math.fsum(values)
    shares = shares or [v / total if total > 0 else None for v in values]
    width = min(max((wide(x) for x in labels), default=0), size.width // 3)
    room = max(1, size.width - width - 20)
    return [
        line(
            fit(label, width, ascii=size.ascii),
            " ",
            (bar(value / most if most > 0 else 0, room, size.ascii), "series0"),
            f" {text(value):>10}",
            (f" {units.cell('share', share):>6}", "dim"),
        )
        for value, label, share in list(zip(values, labels, shares, strict=True))[: size.height]
    ]


def chart(
    series: Mapping[str, Sequence[Point]],
    size: Size,
    *,
    x_label: str = "",
    y_text: Callable[[float], str] = units.number,
) -> list[Line]:
    """Return the series as a chart, below a line that names them; nothing where there is no room.

    Only as many series are drawn as there are markers to tell them apart.
    """
    drawn = {name: thin(points, 2 * size.width) for name, points in series.items() if points}
    drawn = dict(list(drawn.items())[: len(_LETTERS)])
    if not drawn or size.height < 6 or size.width < 20:
        return []
    legend = [
        Span(f"{_LETTERS[i] if size.ascii else '━━'} {name}  ", f"series{i}") for i, name in enumerate(drawn)
    ]
    picture = _picture(list(drawn.values()), Size(size.width, size.height - 1, size.ascii), x_label, y_text)
    if size.ascii:
        picture = picture.translate(_FRAME)
    return [tuple(legend), *(_style_row(row) for row in picture.splitlines())]


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """Return about `most` points: the lowest and the highest of each stretch, so that no spike is lost."""
    if len(points) <= most:
        return list(points)
    out: list[Point] = []
    stretches = max(1, most // 2)
    for i in range(stretches):
        part = points[i * len(points) // stretches : (i + 1) * len(points) // stretches]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out


def _picture(
    series: Sequence[Sequence[Point]], size: Size, x_label: str, y_text: Callable[[float], str]
) -> str:
    """Return the picture of some series as plotext writes it, with a colour code for each."""
    import plotext

    plot: Any = plotext  # it has no types
    values = [y for points in series for _, y in points]
    low, top = min(0.0, *values), max(*values, 0.0) or 1.0
    marks = [low + (top - low) * i / 4 for i in range(5)]
    with _DRAWING:
        plot.terminal.limit(False, False)
        figure = plot.figure
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(size.width, size.height)
        for i, points in enumerate(series):
            marker = plot.marker(_LETTERS[i] if size.ascii else _BRAILLE, pixel=i + 1)
            figure.draw(figure.signal([x for x, _ in points], [y for _, y in points], marker=marker).lines())
        figure.ruler("y").lim(low, top).ticks(marks, [y_text(m) for m in marks])
        figure.ruler("x").frequency(max(2, size.width // 16))
        if x_label:
            figure.label(x_label)
        return str(figure.build().string())


def _style_row(row: str) -> Line:
    """Return a row of plotext's output with its colour codes turned into the styles of the series."""
    spans, style, at = [], "", 0
    for code in _SGR.finditer(row):
        if text := row[at : code.start()]:
            spans.append(Span(text, style))
        style = f"series{int(code[1].rpartition(';')[2]) - 1}" if code[1].startswith("38;5;") else ""
        at = code.end()
    if rest := row[at:]:
        spans.append(Span(rest, style))
    return tuple(spans)
