"""Draw charts as characters with plotext: curves on linear axes, lines and marks on logarithmic axes."""

import contextlib
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Any, Final, NamedTuple

from tracetui import units
from tracetui.glyphs import fit_cells
from tracetui.views.ink import DrawSize, Line, Span, make_line

Point = tuple[float, float]
Ticks = tuple[list[float], list[str]]

_BRAILLE, _LETTERS = "braille", "*+ox#@"  # markers of a chart's series
_ASCII_FRAME: Final = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_PLOTEXT_LOCK: Final = Lock()  # plotext has one figure for the whole process
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


class ChartMark(NamedTuple):
    """A point of a chart, drawn as one character."""

    sign: str
    at: Point
    style: str


def draw_chart(
    series: Mapping[str, Sequence[Point]],
    size: DrawSize,
    *,
    x_label: str = "",
    y_text: Callable[[float], str] = units.format_number,
    styles: Sequence[str] = (),
) -> list[Line]:
    """Draw the series as a chart below a line with their names; nothing if there is too little room.

    At most as many series as there are different markers; `styles` replaces the default colours.
    """
    drawn = {name: thin_points(points, 2 * size.width) for name, points in series.items() if points}
    drawn = dict(islice(drawn.items(), len(_LETTERS)))
    if not drawn or size.height < 6 or size.width < 20:
        return []
    styles = styles or [f"series{i}" for i in range(len(drawn))]
    legend = tuple(
        Span(f"{letter if size.ascii else '━━'} {name}  ", style)
        for letter, name, style in zip(_LETTERS, drawn, styles, strict=False)
    )
    markers = _LETTERS if size.ascii else [_BRAILLE] * len(drawn)
    picture = list(zip(drawn.values(), markers, strict=False))
    y_ticks = _list_quarters(list(chain(*drawn.values())), y_text)
    return [legend, *_draw_with_plotext(picture, size, styles, x_label, y_ticks)]


def _list_quarters(points: Sequence[Point], text: Callable[[float], str]) -> Ticks:
    """Return five values from the lowest, or zero, to the highest on the y axis, also as text."""
    low, top = min(0.0, *(y for _, y in points)), max(*(y for _, y in points), 0.0) or 1.0
    marks = [low + (top - low) * i / 4 for i in range(5)]
    return marks, list(map(text, marks))


def thin_points(points: Sequence[Point], limit: int) -> list[Point]:
    """Return about `limit` points: minimum and maximum of each segment, so that no spike is lost."""
    if len(points) <= limit:
        return list(points)
    out: list[Point] = []
    stretches = max(1, limit // 2)
    for i in range(stretches):
        part = points[i * len(points) // stretches : (i + 1) * len(points) // stretches]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out


def draw_log_chart(
    lines: Sequence[Sequence[Point]], marks: Sequence[ChartMark], size: DrawSize, *, title: str, x_label: str
) -> list[Line]:
    """Draw lines and marks on two logarithmic axes, below a title; nothing if there is too little room."""
    if size.height < 8 or size.width < 30 or not marks:
        return []
    curve = "." if size.ascii else _BRAILLE
    shapes = [*((line, curve) for line in lines), *(([mark.at], mark.sign) for mark in marks)]
    points = [point for part, _ in shapes for point in part]
    scaled = [([(math.log10(x), math.log10(y)) for x, y in part], sign) for part, sign in shapes]
    styles = [*["dim"] * len(lines), *(mark.style for mark in marks)]
    y_ticks, x_ticks = _list_decades(points, 1), _list_decades(points, 0)
    head = make_line((fit_cells(title, size.width).rstrip(), "title"))
    return [head, *_draw_with_plotext(scaled, size, styles, x_label, y_ticks, x_ticks)]


def _list_decades(points: Sequence[Point], axis: int) -> Ticks:
    """Return the powers of ten around the points on an axis, as logarithms and as text."""
    places = [point[axis] for point in points]
    low, high = math.floor(math.log10(min(places))), math.ceil(math.log10(max(places)))
    step = 1 + (high - low) // 8
    marks = range(low, high + step, step)
    texts = [
        f"{10 ** (n % 3)}{_PREFIXES[n // 3]}" if 0 <= n < 3 * len(_PREFIXES) else f"{10.0**n:g}"
        for n in marks
    ]
    return list(map(float, marks)), texts


def _draw_with_plotext(
    series: Sequence[tuple[Sequence[Point], str]],
    size: DrawSize,
    styles: Sequence[str],
    x_label: str,
    y: Ticks,
    x: Ticks | None = None,
) -> list[Line]:
    """Draw series, each with its marker and style, below a line for a head; a single point is no line."""
    import plotext

    plot: Any = plotext  # untyped
    advice = io.StringIO()  # plotext prints hints, which would land on the screen
    with _PLOTEXT_LOCK, contextlib.redirect_stderr(advice), contextlib.redirect_stdout(advice):
        plot.terminal.limit(False, False)
        figure = plot.figure
        figure.clear()
        figure.theme("colorless")
        figure.plot_size(size.width, size.height - 1)
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
        picture = str(figure.build().string())
    rows = (picture.translate(_ASCII_FRAME) if size.ascii else picture).splitlines()
    return [_convert_colour_codes(row, styles) for row in rows]


def _convert_colour_codes(row: str, styles: Sequence[str]) -> Line:
    """Convert the colour codes of a row of plotext to the styles of the series."""
    spans, style, at = [], "", 0
    for code in _SGR.finditer(row):
        if text := row[at : code.start()]:
            spans.append(Span(text, style))
        style = styles[int(code[1].rpartition(";")[2]) - 1] if code[1].startswith("38;5;") else ""
        at = code.end()
    if rest := row[at:]:
        spans.append(Span(rest, style))
    return tuple(spans)
