"""JSON objects that are laid out as the first one, all at once: a pattern of its keys cuts the lines.

A line fits where it has these keys in this order, and plain values: texts without escapes, numbers that a
float holds to the last digit, null. The others are left to be read one by one.
"""

import re
from typing import Final

import polars as pl

from capture.loaders._separated import LINE, Table
from capture.loaders.plain.columns import TIMES
from capture.loaders.plain.layout import Layout

_PLAIN_KEY: Final = re.compile(r"[\w .:()\[\]%/µ-]{1,100}")
_TEXT: Final = r'"[^"\\\x00-\x1f]*"'
_WHOLE: Final = r"0|-?[1-9][0-9]{0,17}"
_POSITIVE: Final = r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,6})?"
_NEGATIVE: Final = r"-(?:0\.[0-9]{1,6}|[1-9][0-9]{0,17}(?:\.[0-9]{1,6})?)"
DIGITS: Final = 15  # of a number with a point, which a float holds
_NUMBERS: Final = (*TIMES, "count", "step", "layer", "bytes", "flops")  # columns in which 1.50 is 1.5


def split(lines: pl.Series, layout: Layout) -> Table:
    """Return the lines that fit as cells, by the places of their keys, and the others by their numbers."""
    pattern = _pattern(layout)
    text = lines.alias("text").to_frame().with_row_index(LINE)
    if pattern is None:
        return Table(text.clear().select(LINE), text.rows())
    places = [f"at{found.at}" for found in layout.columns.values()]
    cells = text.lazy().select(LINE, cells=pl.col("text").str.extract_groups(pattern)).unnest("cells")
    short = [~pl.col(c).str.contains(".", literal=True) | _is_held(pl.col(c)) for c in places]
    read = cells.select(
        LINE, pl.all_horizontal(short).alias("fits"), *(_value(pl.col(c)).alias(c[2:]) for c in places)
    ).collect(engine="streaming")
    fits = read["fits"].fill_null(value=False)
    return Table(read.filter(fits).drop("fits"), text.filter(~fits).rows())


def _is_held(text: pl.Expr) -> pl.Expr:
    """Return whether a value is a text, or a number that a float holds to the last digit."""
    return text.str.starts_with('"') | (text.str.len_bytes() <= DIGITS + 1)


def _value(text: pl.Expr) -> pl.Expr:
    """Return what a JSON value says, as text: null for null."""
    return pl.when(text != "null").then(text.str.strip_chars('"'))


def number_pattern(layout: Layout, at: int) -> str:
    """Return a pattern of the numbers that are plain values of a key."""
    column = next((column for column, found in layout.columns.items() if found.at == at), "t")
    return f"{_POSITIVE}|{_NEGATIVE}" if column in _NUMBERS else _WHOLE


def _pattern(layout: Layout) -> str | None:
    """Return a pattern with a group for each column that is understood; None where a key is out of the
    ordinary.
    """
    if not all(_PLAIN_KEY.fullmatch(key) for key in layout.headings):
        return None
    understood = {found.at for found in layout.columns.values()}
    members = []
    for at, key in enumerate(layout.headings):
        number = number_pattern(layout, at)
        group = f"(?P<at{at}>" if at in understood else "(?:"
        members.append(rf'"{re.escape(key)}" *: *{group}{_TEXT}|{number}|null)')
    return r"^[ \t]*\{ *" + " *, *".join(members) + r" *\}[ \t]*$"
