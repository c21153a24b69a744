"""What a drawing is made of: lines of styled text, tables, sparklines, bars, heat cells, plotext charts."""

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple

import polars as pl

from tracetui import units

# Style names are roles; the screen maps them to a theme, a report to plain text or SGR codes.
STYLES: Final = (
    "", "dim", "bold", "title", "name", "number", "good", "bad", "warn", "accent", "cursor",
    *(f"heat{i}" for i in range(8)), *(f"series{i}" for i in range(6)),
    "fall3", "fall2", "fall1", "level", "rise1", "rise2", "rise3",
)  # fmt: skip

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.-~=+*#"
SHADES: Final = "··░░▒▒▓█"  # beside the eight heat styles, so that colour is never alone
ASCII_SHADES: Final = "..:-=+*#"

DRIFTS: Final = (2.0, 5.0, 20.0)  # per cent from which a change is drawn as small, plain and large
MARKS: Final = ("▼▼▼", "▼▼", "▼", "·", "▲", "▲▲", "▲▲▲")
ASCII_MARKS: Final = ("---", "--", "-", ".", "+", "++", "+++")

Point = tuple[float, float]

_BRAILLE, _LETTERS = "braille", "*+ox#@"  # markers of a chart's series
_FRAME: Final = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
_SGR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_DRAWING: Final = Lock()  # plotext has one figure for the whole process


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


@dataclass(frozen=True)
class Size:
    """The cells a drawing may fill, and whether the terminal knows more than ASCII."""

    width: int
    height: int
    ascii: bool = False


def line(*parts: Span | str | tuple[str, str]) -> Line:
    return tuple(
        p if isinstance(p, Span) else Span(p) if isinstance(p, str) else Span(*p) for p in parts if p
    )


def clip(lines: Sequence[Line], size: Size) -> list[Line]:
    """A drawing cut to its size."""
    return [_clipped(ln, size.width) for ln in lines[: size.height]]


def _clipped(ln: Line, room: int) -> Line:
    if sum(wide(s.text) for s in ln) <= room:
        return ln
    out = []
    for span in ln:
        text = _cut(span.text, room)
        out.append(Span(text, span.style))
        room -= wide(text)
    return tuple(s for s in out if s.text)


def plain(lines: Sequence[Line]) -> str:
    """A drawing as text without styles."""
    return "\n".join("".join(span.text for span in ln).rstrip() for ln in lines)


def sparkline(values: Sequence[float | None], width: int, ascii: bool = False) -> str:
    """A series as block characters, from zero to its maximum; a gap stays blank."""
    marks = ASCII_BLOCKS if ascii else BLOCKS
    cells = squeeze(values, width)
    top = max((v for v in cells if v is not None), default=0.0)
    return "".join(" " if v is None else marks[_level(v, top, len(marks))] for v in cells)


def bar(fraction: float, width: int, ascii: bool = False) -> str:
    """A horizontal bar for a fraction of one."""
    cells = max(0.0, min(1.0, fraction)) * width
    if ascii:
        return ("#" * round(cells)).ljust(width)
    eighths = round(cells * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)


def signed_bar(fraction: float, width: int, ascii: bool = False) -> str:
    """A bar from the middle: to the left what fell, to the right what rose."""
    half = (width - 1) // 2
    left = "".ljust(half) if fraction >= 0 else _leftward(-fraction, half, ascii)
    right = bar(fraction, width - half - 1, ascii)
    return f"{left}{'|' if ascii else '│'}{right}"


def _leftward(fraction: float, width: int, ascii: bool) -> str:
    """No font has blocks that grow to the left by eighths, but it has a half."""
    halves = round(min(1.0, fraction) * width * 2)
    text = "#" * round(halves / 2) if ascii else "▐" * (halves % 2) + "█" * (halves // 2)
    return text.rjust(width)


def heat(value: float | None, low: float, high: float) -> str:
    """The style of a heat cell."""
    if value is None or high <= low:
        return "dim" if value is None else "heat0"
    return f"heat{_level(value - low, high - low, 8)}"


def shade(value: float | None, low: float, high: float, ascii: bool = False) -> str:
    """The character of a heat cell."""
    if value is None:
        return " "
    marks = ASCII_SHADES if ascii else SHADES
    return marks[_level(value - low, high - low, 8)]


def drift(percent: float) -> str:
    """The style of a change: one hue for what fell, another for what rose, stronger with its size."""
    strength = sum(abs(percent) >= bound for bound in DRIFTS)
    return "level" if not strength else f"{'rise' if percent > 0 else 'fall'}{strength}"


def drift_mark(percent: float, ascii: bool = False) -> str:
    """The same in signs."""
    strength = sum(abs(percent) >= bound for bound in DRIFTS)
    return (ASCII_MARKS if ascii else MARKS)[3 + (strength if percent > 0 else -strength)]


def sign_tone(value: float | None) -> str:
    """What took longer is bad, what took less is good."""
    return "" if not value else "bad" if value > 0 else "good"


def wide(text: str) -> int:
    """The cells a text fills."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def fit(text: str, width: int, right: bool = False, ascii: bool = False) -> str:
    """The text in exactly `width` cells; a long one loses its middle, where names differ least."""
    if width <= 0:
        return ""
    if wide(text) > width:
        tail = (width - 1) // 2
        text = _cut(text, width - 1 - tail) + ("~" if ascii else "…") + _cut(text[::-1], tail)[::-1]
    gap = " " * (width - wide(text))
    return gap + text if right else text + gap


def _cut(text: str, width: int) -> str:
    """The longest beginning that fits into `width` cells."""
    used = 0
    for i, c in enumerate(text):
        used += wide(c)
        if used > width:
            return text[:i]
    return text


def squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
    """At most `width` values: each the mean of its share of the series."""
    n = len(values)
    if n <= width or width <= 0:
        return list(values)
    out: list[float | None] = []
    for i in range(width):
        part = [v for v in values[i * n // width : (i + 1) * n // width] if v is not None]
        out.append(math.fsum(part) / len(part) if part else None)
    return out


def _level(value: float, top: float, steps: int) -> int:
    if top <= 0 or not math.isfinite(value):
        return 0
    return max(0, min(steps - 1, int(value / top * steps)))


def table(
    rows: pl.DataFrame, size: Size, columns: Sequence[str] = (), cursor: int | None = None
) -> list[Line]:
    """A heading and the rows around the cursor, in the columns that fit; the most important come first."""
    top = _top(rows.height, size.height - 1, cursor)
    shown = rows.slice(top, max(0, size.height - 1))
    ranked = [c for c in columns or rows.columns if c in rows.columns and rows[c].null_count() < rows.height]
    cells = {c: [_text(c, v, size.ascii) for v in shown[c].to_list()] for c in ranked}
    widths = _widths(cells, size.width)
    order = [c for c in rows.columns if c in widths]
    right = {c: rows.schema[c].is_numeric() for c in order}

    def row(texts: Sequence[str], style: str) -> Line:
        parts = [fit(t, widths[c], right[c], size.ascii) for t, c in zip(texts, order, strict=True)]
        return line(("  ".join(parts), style))

    head = row([units.heading(c) for c in order], "title")
    body = [
        row([cells[c][i] for c in order], "cursor" if cursor == top + i else "") for i in range(shown.height)
    ]
    return [head, *body]


def _top(count: int, height: int, cursor: int | None) -> int:
    """The first row in sight, so that the cursor is in sight too."""
    return max(0, min((cursor or 0) - height // 2, count - height))


def _text(column: str, value: Any, ascii: bool) -> str:
    return sparkline(value, 16, ascii) if isinstance(value, list) else units.cell(column, value)


def _widths(cells: Mapping[str, Sequence[str]], room: int) -> dict[str, int]:
    """Column → its width, for the columns that find room; the first gets what the others leave."""
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
    """One bar a line: label, bar, value, and its part of all."""
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
    """Lines over a common x axis; the first line names the series, each with its style and marker."""
    drawn = {name: thin(points, 2 * size.width) for name, points in series.items() if points}
    drawn = dict(list(drawn.items())[: len(_LETTERS)])
    if not drawn or size.height < 6 or size.width < 20:
        return []
    legend = [
        Span(f"{_LETTERS[i] if size.ascii else '━━'} {name}  ", f"series{i}") for i, name in enumerate(drawn)
    ]
    picture = _plotext(list(drawn.values()), Size(size.width, size.height - 1, size.ascii), x_label, y_text)
    if size.ascii:
        picture = picture.translate(_FRAME)
    return [tuple(legend), *(_styled(row) for row in picture.splitlines())]


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points: of each stretch the lowest and the highest, so that no spike is lost."""
    if len(points) <= most:
        return list(points)
    out: list[Point] = []
    stretches = max(1, most // 2)
    for i in range(stretches):
        part = points[i * len(points) // stretches : (i + 1) * len(points) // stretches]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out


def _plotext(
    series: Sequence[Sequence[Point]], size: Size, x_label: str, y_text: Callable[[float], str]
) -> str:
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


def _styled(row: str) -> Line:
    """A row of plotext's output: its colour codes become the styles of the series."""
    spans, style, at = [], "", 0
    for code in _SGR.finditer(row):
        if text := row[at : code.start()]:
            spans.append(Span(text, style))
        style = f"series{int(code[1].rpartition(';')[2]) - 1}" if code[1].startswith("38;5;") else ""
        at = code.end()
    if rest := row[at:]:
        spans.append(Span(rest, style))
    return tuple(spans)
