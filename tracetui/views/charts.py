"""Draw charts of characters by plotext: curves over a plain axis, lines and marks over logarithmic ones."""

import contextlib
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from tracetui import units
from tracetui.views.ink import Line, Size, Span, fit, line

Point = tuple[float, float]
Ticks = tuple[list[float], list[str]]

_BRAILLE, _LETTERS = "braille", "*+ox#@"  # markers of a chart's series
_FRAME: Final = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_DRAWING: Final = Lock()  # plotext has one figure for the whole process
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


class Mark(NamedTuple):
    """A point of a chart that is drawn as one sign."""

    sign: str
    at: Point
    style: str


def chart(
    series: Mapping[str, Sequence[Point]],
    size: Size,
    *,
    x_label: str = "",
    y_text: Callable[[float], str] = units.number,
    styles: Sequence[str] = (),
) -> list[Line]:
    """Return the series as a chart, below a line that names them; nothing where there is no room.

    Only as many series are drawn as there are markers to tell them apart; `styles` has their colours, where
    these mean something.
    """
    drawn = {name: thin(points, 2 * size.width) for name, points in series.items() if points}
    drawn = dict(list(drawn.items())[: len(_LETTERS)])
    if not drawn or size.height < 6 or size.width < 20:
        return []
    styles = styles or [f"series{i}" for i in range(len(drawn))]
    legend = [
        Span(f"{_LETTERS[i] if size.ascii else '━━'} {name}  ", style)
        for i, (name, style) in enumerate(zip(drawn, styles, strict=True))
    ]
    picture = _picture(list(drawn.values()), Size(size.width, size.height - 1, size.ascii), x_label, y_text)
    if size.ascii:
        picture = picture.translate(_FRAME)
    return [tuple(legend), *(_style_row(row, styles) for row in picture.splitlines())]


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
    values = [y for points in series for _, y in points]
    low, top = min(0.0, *values), max(*values, 0.0) or 1.0
    marks = [low + (top - low) * i / 4 for i in range(5)]
    drawn = [(points, _LETTERS[i] if size.ascii else _BRAILLE) for i, points in enumerate(series)]
    return _plotted(drawn, size, x_label, (marks, [y_text(m) for m in marks]))


def log_chart(
    lines: Sequence[Sequence[Point]], marks: Sequence[Mark], size: Size, *, title: str, x_label: str
) -> list[Line]:
    """Return lines and marks on two logarithmic axes, below a title; nothing where there is no room."""
    if size.height < 8 or size.width < 30 or not marks:
        return []  # a later mark covers an earlier one
    styles = [*["dim"] * len(lines), *(mark.style for mark in marks)]
    rows = _log_picture(lines, marks, Size(size.width, size.height - 1, size.ascii), x_label).splitlines()
    head = line((fit(title, size.width).rstrip(), "title"))
    return [head, *(_style_row(row, styles) for row in rows)]


def _log_picture(lines: Sequence[Sequence[Point]], marks: Sequence[Mark], size: Size, x_label: str) -> str:
    """Return lines and marks as plotext writes them, with a colour code for each."""
    curve = "." if size.ascii else _BRAILLE
    shapes = [*((ln, curve) for ln in lines), *(([m.at], m.sign) for m in marks)]
    points = [point for part, _ in shapes for point in part]
    scaled = [(_logarithms(part), sign) for part, sign in shapes]
    picture = _plotted(scaled, size, x_label, _decades(points, 1), _decades(points, 0))
    return picture.translate(_FRAME) if size.ascii else picture


def _logarithms(points: Sequence[Point]) -> list[Point]:
    return [(math.log10(x), math.log10(y)) for x, y in points]


def _decades(points: Sequence[Point], axis: int) -> Ticks:
    """Return the powers of ten around the places on an axis, as logarithms and in words."""
    places = [point[axis] for point in points]
    low, high = math.floor(math.log10(min(places))), math.ceil(math.log10(max(places)))
    step = 1 + (high - low) // 8
    marks = [float(n) for n in range(low, high + step, step)]
    return marks, [_power(round(n)) for n in marks]


def _power(n: int) -> str:
    """Write a power of ten with the prefix that fits."""
    return f"{10 ** (n % 3)}{_PREFIXES[n // 3]}" if 0 <= n < 3 * len(_PREFIXES) else f"{10.0**n:g}"


def _plotted(
    series: Sequence[tuple[Sequence[Point], str]], size: Size, x_label: str, y: Ticks, x: Ticks | None = None
) -> str:
    """Return the picture of some series, each with its marker, as plotext writes it; one point is no line."""
    import plotext

    plot: Any = plotext  # it has no types
    said = io.StringIO()  # advice, which it would print over the screen
    with _DRAWING, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        plot.terminal.limit(False, False)
        figure = plot.figure
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(size.width, size.height)
        for i, (points, sign) in enumerate(series):
            marker = plot.marker(sign, pixel=i + 1)
            signal = figure.signal([x for x, _ in points], [y for _, y in points], marker=marker)
            figure.draw(signal.lines() if len(points) > 1 or sign == _BRAILLE else signal)
        figure.ruler("y").lim(y[0][0], y[0][-1]).ticks(*y)
        if x is None:
            figure.ruler("x").frequency(max(2, size.width // 16))
        else:
            figure.ruler("x").lim(x[0][0], x[0][-1]).ticks(*x)
        if x_label:
            figure.label(x_label)
        return str(figure.build().string())


def _style_row(row: str, styles: Sequence[str]) -> Line:
    """Return a row of plotext's output with its colour codes turned into the styles of the series."""
    spans, style, at = [], "", 0
    for code in _SGR.finditer(row):
        if text := row[at : code.start()]:
            spans.append(Span(text, style))
        style = styles[int(code[1].rpartition(";")[2]) - 1] if code[1].startswith("38;5;") else ""
        at = code.end()
    if rest := row[at:]:
        spans.append(Span(rest, style))
    return tuple(spans)
