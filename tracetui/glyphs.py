"""Write numbers as glyphs: sparklines, bars and changes, in characters and in style names."""

import math
from collections.abc import Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.-~=+*#"

FAR: Final = 3  # times the median: what stands out of a series
SOME: Final = 8  # of so many values one may stand out without changing the scale
DRIFTS: Final = (2.0, 5.0, 20.0)  # per cent from which a change is drawn as small, plain and large
MARKS: Final = ("▼▼▼", "▼▼", "▼", "·", "▲", "▲▲", "▲▲▲")
ASCII_MARKS: Final = ("---", "--", "-", ".", "+", "++", "+++")
NARROW_MARKS: Final = "▼▽▿·▵△▲"  # the same where a sign has no room to be repeated
ASCII_NARROW_MARKS: Final = "v=-.+*^"


def sparkline(
    values: Sequence[float | None], width: int, ascii: bool = False, top: float | None = None
) -> str:
    """Return a series as block characters, scaled from zero to `top`, else its maximum; None is a blank."""
    marks = ASCII_BLOCKS if ascii else BLOCKS
    cells = squeeze(values, width)
    top = max((v for v in cells if v is not None), default=0.0) if top is None else top
    return "".join(" " if v is None else marks[_level(v, top, len(marks))] for v in cells)


def bar(fraction: float, width: int, ascii: bool = False) -> str:
    """Return a horizontal bar of `width` cells, filled to a fraction of one."""
    cells = max(0.0, min(1.0, fraction)) * width
    if ascii:
        return ("#" * round(cells)).ljust(width)
    eighths = round(cells * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)


def signed_bar(fraction: float, width: int, ascii: bool = False) -> str:
    """Return a bar that begins in the middle: to the left for a negative fraction."""
    half = (width - 1) // 2
    left = "".ljust(half) if fraction >= 0 else _leftward(-fraction, half, ascii)
    right = bar(fraction, width - half - 1, ascii)
    return f"{left}{'|' if ascii else '│'}{right}"


def _leftward(fraction: float, width: int, ascii: bool) -> str:
    """Return a bar that ends at the right edge, in steps of half a cell: no font has finer blocks."""
    halves = round(min(1.0, fraction) * width * 2)
    text = "#" * round(halves / 2) if ascii else "▐" * (halves % 2) + "█" * (halves // 2)
    return text.rjust(width)


def drift(percent: float, bounds: Sequence[float] = DRIFTS) -> str:
    """Return the style of a change: one hue for a fall, another for a rise, stronger with its size."""
    strength = sum(abs(percent) >= bound for bound in bounds)
    return "level" if not strength else f"{'rise' if percent > 0 else 'fall'}{strength}"


def drift_mark(
    percent: float, ascii: bool = False, bounds: Sequence[float] = DRIFTS, room: int = len(MARKS[0])
) -> str:
    """Return the sign of a change: repeated with its size, or in less room another one for each size."""
    strength = sum(abs(percent) >= bound for bound in bounds)
    wide, narrow = (ASCII_MARKS, ASCII_NARROW_MARKS) if ascii else (MARKS, NARROW_MARKS)
    return (wide if room >= len(wide[0]) else narrow)[3 + (strength if percent > 0 else -strength)]


def sign_tone(value: float | None) -> str:
    """Return the style of a difference of times: longer is bad, shorter is good, none or None is plain."""
    return "" if not value else "bad" if value > 0 else "good"


def squeeze(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most `width` values: means of equal shares of the series, None where all are None."""
    n = len(values)
    if n <= width or width <= 0:
        return list(values)
    out: list[float | None] = []
    for i in range(width):
        part = [v for v in values[i * n // width : (i + 1) * n // width] if v is not None]
        out.append(math.fsum(part) / len(part) if part else None)
    return out


def course(values: Sequence[float | None], width: int, ascii: bool = False) -> str:
    """Return a series as block characters that stay where they are while it grows at its end.

    A few values that stand far out do not flatten the others.
    """
    cells = _halved(values, width)
    whole = cells[:-1] or cells  # the last cell may still be of fewer values
    return sparkline(cells, width, ascii, _top_of(whole))


def _halved(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most `width` values: those of the series, else means of two each, of four, of eight …"""
    each = 1
    while each * max(1, width) < len(values):
        each *= 2
    return _means(values, each)


def _means(values: Sequence[float | None], each: int) -> list[float | None]:
    """Return the mean of every so many values, None where all are None."""
    parts = ([v for v in values[i : i + each] if v is not None] for i in range(0, len(values), each))
    return [math.fsum(part) / len(part) if part else None for part in parts]


def _top_of(values: Sequence[float | None]) -> float:
    """Return where the scale of a series ends: its largest value, without a few that stand far out."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return 0.0
    usual = [v for v in known if v <= FAR * known[len(known) // 2]]
    return usual[-1] if len(known) - len(usual) <= len(known) // SOME else known[-1]


def _level(value: float, top: float, steps: int) -> int:
    """Return the step, from 0 to steps - 1, in which a value between zero and `top` falls."""
    if top <= 0 or not math.isfinite(value):
        return 0
    return max(0, min(steps - 1, int(value / top * steps)))
