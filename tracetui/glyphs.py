"""Text and characters in terminal cells: sparklines, bars, signs of changes, widths, short names of kernels.

CJK characters fill two cells, combining marks none, and an emoji of several code points two in all. The
tables of Unicode are those of `rich`, which Textual draws with.
"""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Final

import polars as pl
from rich.cells import cell_len, split_graphemes

from capture.clean_text import shorten_middle
from capture.native.schema import PATH_SEPARATOR

BLOCKS: Final = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS: Final = "_.-~=+*#"
OUTLIER_RATIO: Final = 3  # to the median, above which a value is an outlier
VALUES_PER_OUTLIER: Final = 8  # one outlier per 8 values does not change the scale
FLAT_MOST_RANGE: Final = 0.25  # of the largest value: noise of a larger range is drawn as it is
SCALE_MOST_HALVES: Final = 4  # a scale spans at least a sixteenth of its end
CHANGE_BOUNDS_PCT: Final = (2.0, 5.0, 20.0)  # bounds of small, medium and large changes
CHANGE_SIGNS: Final = ("▼▼▼", "▼▼", "▼", "·", "▲", "▲▲", "▲▲▲")
ASCII_CHANGE_SIGNS: Final = ("---", "--", "-", ".", "+", "++", "+++")
NARROW_CHANGE_SIGNS: Final = "▼▽▿·▵△▲"  # if there is no room to repeat a sign
ASCII_NARROW_CHANGE_SIGNS: Final = "v=-.+*^"
SENTENCE_LEAST_SPACES: Final = 4
MOST_CHARS: Final = 4096  # longer texts are shortened before they are measured
READABLE_CHARS: Final = 40  # names up to this length stay as they are
NAME_COLUMNS: Final = frozenset({"name", "name_a", "name_b", "row", "scope"})  # with names of kernels
_MANGLED_PREFIXES: Final = ("_Z", "__Z")
_MAX_NAMES: Final = 4096  # shortened per answer; later rows are negligible


def draw_sparkline(
    values: Sequence[float | None], width: int, ascii: bool = False, top: float | None = None
) -> str:
    """Draw a series as block characters; None is a blank, and one value has no shape.

    The scale is from zero to `top`, or that of `find_scale`; a series that is flat within its noise is level.
    """
    cells = average_into_cells(values, width)
    if top is not None:
        return _draw_levels(cells, (0.0, top), ascii)
    return _draw_levels(cells, find_scale(cells), ascii) if len(values) > 1 else ""


def _draw_levels(cells: Sequence[float | None], scale: tuple[float, float], ascii: bool) -> str:
    """Draw cells between the ends of a scale; one without length, at its end, is drawn level."""
    marks, (low, high) = ASCII_BLOCKS if ascii else BLOCKS, scale
    if low == high:
        level, most = "-" if ascii else "─", OUTLIER_RATIO * high
        return "".join(" " if v is None else marks[-1] if v > most else level for v in cells)
    return "".join(" " if v is None else marks[_find_level(v - low, high - low, len(marks))] for v in cells)


def find_scale(values: Sequence[float | None]) -> tuple[float, float]:
    """Return the ends of the scale of a series, ignoring a few outliers; both are equal if it is flat.

    It starts at zero, or at the last of 1/2, 3/4, 7/8 … of its end below all values, so that a growing series
    rarely changes it. Flat is a series of a small range whose neighbours differ as much as any two values:
    of 16 cells of noise 99 % are level, of lines that rise by 4 of its deviations 30 %.
    """
    top = _find_scale_top(values)
    inliers = [v for v in values if v is not None and v <= top]
    least = min(inliers, default=top)
    if top - least <= FLAT_MOST_RANGE * top and _is_without_order(inliers):
        return top, top
    bottom = 0.0
    for _ in range(SCALE_MOST_HALVES):
        if least < (bottom + top) / 2:
            break
        bottom = (bottom + top) / 2
    return bottom, top


def _is_without_order(values: Sequence[float]) -> bool:
    """Whether neighbours differ as much as in noise: by the ratio of von Neumann, which is 2 for noise."""
    if len(values) < 2:
        return True
    mean = math.fsum(values) / len(values)
    spread = math.fsum((v - mean) ** 2 for v in values) / len(values)
    steps = [(b - a) ** 2 for a, b in pairwise(values)]
    return math.fsum(steps) / len(steps) >= spread


def has_shape(values: pl.Series) -> bool:
    """Whether a column can be drawn: of lists, one has to have more than one value."""
    return not isinstance(values.dtype, pl.List) or int(values.list.len().max() or 0) > 1  # type: ignore[arg-type]


def draw_bar(fraction: float, width: int, ascii: bool = False) -> str:
    """Draw a horizontal bar of `width` cells, filled to a fraction of one."""
    cells = max(0.0, min(1.0, fraction)) * width
    if ascii:
        return ("#" * round(cells)).ljust(width)
    eighths = round(cells * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()).ljust(width)


def draw_signed_bar(fraction: float, width: int, ascii: bool = False) -> str:
    """Draw a bar that starts in the middle and extends to the left for a negative fraction."""
    half = (width - 1) // 2
    left = "".ljust(half) if fraction >= 0 else _draw_leftward_bar(-fraction, half, ascii)
    right = draw_bar(fraction, width - half - 1, ascii)
    return f"{left}{'|' if ascii else '│'}{right}"


def _draw_leftward_bar(fraction: float, width: int, ascii: bool) -> str:
    """Draw a bar that ends at the right edge, in half cells: fonts have no finer right blocks."""
    halves = round(min(1.0, fraction) * width * 2)
    text = "#" * round(halves / 2) if ascii else "▐" * (halves % 2) + "█" * (halves // 2)
    return text.rjust(width)


def select_change_style(percent: float, bounds: Sequence[float] = CHANGE_BOUNDS_PCT) -> str:
    """Return the style of a change: one hue for a fall, one for a rise, stronger with its size."""
    strength = sum(abs(percent) >= bound for bound in bounds)
    return "level" if not strength else f"{'rise' if percent > 0 else 'fall'}{strength}"


def format_change_sign(
    percent: float,
    ascii: bool = False,
    bounds: Sequence[float] = CHANGE_BOUNDS_PCT,
    room: int = len(CHANGE_SIGNS[0]),
) -> str:
    """Return the sign of a change, repeated with its size; if `room` is too small, one sign per size."""
    strength = sum(abs(percent) >= bound for bound in bounds)
    if room >= len(CHANGE_SIGNS[0]):
        signs: Sequence[str] = ASCII_CHANGE_SIGNS if ascii else CHANGE_SIGNS
    else:
        signs = ASCII_NARROW_CHANGE_SIGNS if ascii else NARROW_CHANGE_SIGNS
    return signs[3 + (strength if percent > 0 else -strength)]


def select_sign_style(value: float | None) -> str:
    """Return the style of a time difference: positive is bad, negative is good, 0 and None are plain."""
    return "" if not value else "bad" if value > 0 else "good"


def average_into_cells(values: Sequence[float | None], width: int) -> list[float | None]:
    """Return at most `width` values: means of equal parts of the series, None if all are None."""
    n = len(values)
    if n <= width or width <= 0:
        return list(values)
    return [_compute_mean(values[i * n // width : (i + 1) * n // width]) for i in range(width)]


def _compute_mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values, ignoring None; None if all are None."""
    part = [v for v in values if v is not None]
    return math.fsum(part) / len(part) if part else None


def draw_stable_sparkline(values: Sequence[float | None], width: int, ascii: bool = False) -> str:
    """Draw a growing series so that drawn characters rarely change: scale and cells stay put.

    A cell is a value, or the mean of 2, 4, 8 …. A few outliers do not flatten the rest.
    """
    size = 1
    while size * max(1, width) < len(values):
        size *= 2
    cells = [_compute_mean(values[i : i + size]) for i in range(0, len(values), size)]
    complete = cells[:-1] or cells  # the last cell may not be complete yet
    return _draw_levels(cells, find_scale(complete), ascii) if len(values) > 1 else ""


def _find_scale_top(values: Sequence[float | None]) -> float:
    """Return the largest value of a series, ignoring a few outliers."""
    ordered = sorted(v for v in values if v is not None)
    if not ordered:
        return 0.0
    inliers = [v for v in ordered if v <= OUTLIER_RATIO * ordered[len(ordered) // 2]]
    return inliers[-1] if len(ordered) - len(inliers) <= len(ordered) // VALUES_PER_OUTLIER else ordered[-1]


def _find_level(value: float, top: float, steps: int) -> int:
    """Return the step, from 0 to steps - 1, of a value between zero and `top`."""
    if top <= 0 or not math.isfinite(value):
        return 0
    return max(0, min(steps - 1, int(value / top * steps)))


def count_cells(text: str) -> int:
    """Return the number of cells that a text fills."""
    return len(text) if text.isascii() else cell_len(text)


def clip_cells(text: str, width: int) -> str:
    """Return the longest beginning of a text that fits into `width` cells."""
    if text.isascii():
        return text[: max(0, width)]
    for start, _, cells in split_graphemes(text)[0]:
        width -= cells
        if width < 0:
            return text[:start]
    return text


def _clip_cells_left(text: str, width: int) -> str:
    """Return the longest ending of a text that fits into `width` cells."""
    if text.isascii():
        return text[max(0, len(text) - width) :]
    for _, end, cells in reversed(split_graphemes(text)[0]):
        width -= cells
        if width < 0:
            return text[end:]
    return text


def is_sentence(text: str) -> bool:
    """Whether a text is words, not a name, a path or a number with its unit."""
    return text.count(" ") >= SENTENCE_LEAST_SPACES and PATH_SEPARATOR not in text


def fit_sentence(text: str, width: int, ascii: bool = False) -> str:
    """Return a text in exactly `width` cells: padded, or cut at its end."""
    if count_cells(text) > width > 0:
        text = clip_cells(text, width - 1) + ("~" if ascii else "…")
    return fit_cells(text, width)


def fit_cells(text: str, width: int, right: bool = False, ascii: bool = False) -> str:
    """Return a text in exactly `width` cells: padded, or cut in its middle, where names differ least."""
    if width <= 0:
        return ""
    if len(text) > MOST_CHARS:
        text = shorten_middle(text, MOST_CHARS)
    if count_cells(text) > width:
        tail = (width - 1) // 2
        text = clip_cells(text, width - 1 - tail) + ("~" if ascii else "…") + _clip_cells_left(text, tail)
    padding = " " * (width - count_cells(text))
    return padding + text if right else text + padding


def fit_code_line(text: str, width: int, ascii: bool = False) -> str:
    """Return `folder/file.py(7): function` in exactly `width` cells, cut where the file and its line stay.

    The function is cut first, then the beginning of the path.
    """
    if len(text) > MOST_CHARS:
        text = shorten_middle(text, MOST_CHARS)
    place = re.sub(r"\): .*", ")", text)
    if count_cells(text) <= width or not place.endswith(")"):
        return fit_cells(text, width, ascii=ascii)
    if count_cells(place) < width:
        return fit_sentence(text, width, ascii)
    if count_cells(place) > width > 0:
        place = ("~" if ascii else "…") + _clip_cells_left(place, width - 1)
    return fit_cells(place, width)


def map_display_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name that is too long to its display name; different names stay different.

    Indentation of a name is kept.
    """
    forms: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        forms.setdefault(name.lstrip(" "), []).append(name)
    long = dict.fromkeys(islice(filter(is_unreadable, forms), _MAX_NAMES))
    if not long:
        return {}
    from capture.classify.short_names import shorten_names  # loads with the first long name

    short = {
        name: as_
        for name, as_ in shorten_names(long).items()
        if len(as_) < len(name) and (as_ not in forms or as_ in long)  # different from every other name
    }
    return {form: form.removesuffix(name) + as_ for name, as_ in short.items() for form in forms[name]}


def format_display_name(name: str) -> str:
    """Return the display name of one name; it may coincide with that of another."""
    from capture.classify.short_names import shorten_name

    return shorten_name(name) if is_unreadable(name) else name


def is_unreadable(name: str) -> bool:
    """Whether a name is too long, or mangled, to be shown as it is."""
    return len(name) > READABLE_CHARS or name.startswith(_MANGLED_PREFIXES)
