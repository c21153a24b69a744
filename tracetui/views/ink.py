"""What a drawing is made of: lines of styled text, sparklines, bars, heat cells, plotext charts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# Style names are roles; the screen maps them to a theme, a report to plain text or SGR codes.
STYLES: Final = (
    "", "dim", "bold", "title", "name", "number", "good", "bad", "warn", "accent", "cursor",
    *(f"heat{i}" for i in range(8)), *(f"series{i}" for i in range(6)),
)  # fmt: skip

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.-~=+*#"


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


def heat(value: float | None, low: float, high: float) -> str:
    """The style of a heat cell."""
    if value is None or high <= low:
        return "dim" if value is None else "heat0"
    return f"heat{_level(value - low, high - low, 8)}"


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
