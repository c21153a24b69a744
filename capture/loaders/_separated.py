"""Tables of separated values at once: polars splits the lines that fit, the others are left line by line.

A line fits where it has one cell for each column, and each cell is either quoted whole or holds no quote.
Nothing is guessed: a table that polars has split is compared with its text, byte for byte.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

LINE: Final = "line"  # the column of `Table.cells` that holds the number of each line

_LARGEST: Final = 1 << 60
_REACH: Final = 16  # digits before the point, from which `_numbers.exact` gives None
_FURTHEST: Final = 1 << 62
_DIGITS: Final = 20  # characters that no number of 64 bits needs more of
_LONGEST: Final = 28  # characters, from which Python's decimals may round twice
BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))  # what Python takes off


class Table(NamedTuple):
    """Lines as cells, a column of text for each and `line`; and the other lines by their numbers."""

    cells: pl.DataFrame
    others: list[tuple[int, str]]


def split(text: bytes, separator: str, names: Sequence[str]) -> Table:
    """Return the lines of a text in UTF-8, which end with `\\n` alone, as cells under the given names."""
    text = text.rstrip(b"\n")
    cells = _cells(text, separator, names) if b"\r" not in text else None
    if cells is not None and not (separator.isspace() and _blank_lines(cells)):
        return Table(cells.with_row_index(LINE), [])
    lines = pl.DataFrame({"text": text.decode().split("\n")}).with_row_index(LINE)
    fits = lines["text"].str.contains(_fitting(separator, len(names))) & ~blank(lines["text"])
    fitting = lines.filter(fits)
    cells = _cells("\n".join(fitting["text"]).encode(), separator, names) if fitting.height else None
    if cells is None:
        return Table(_no_cells(names), lines.rows())
    return Table(cells.insert_column(0, fitting[LINE]), lines.filter(~fits).rows())


def records(
    text: bytes, separator: str, names: Sequence[str], cells: Callable[[str], Sequence[str] | None]
) -> tuple[pl.DataFrame, list[int]]:
    """Return the lines that have a cell for each name, in their order, and the numbers of the others.

    `cells` splits a line that is not regular, and gives None for one that cannot be. Blank lines are neither.
    """
    regular, others = split(text, separator, names)
    parsed = [(at, cells(line)) for at, line in others if line.strip()]
    kept = [(at, *found) for at, found in parsed if found is not None and len(found) == len(names)]
    bad = [at for at, found in parsed if found is None or len(found) != len(names)]
    more = pl.DataFrame(kept, schema=regular.schema, orient="row")
    return (pl.concat([regular, more]).sort(LINE) if kept else regular), bad


def _no_cells(names: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame(schema={LINE: pl.get_index_type(), **dict.fromkeys(names, pl.String)})


def _blank_lines(cells: pl.DataFrame) -> bool:
    """Return whether there are lines of white space alone, which Python's csv splits and nobody means."""
    return bool(cells.select(pl.all_horizontal(pl.all().str.strip_chars(BLANKS) == "").any()).item())


def _fitting(separator: str, width: int) -> str:
    """Return a pattern for the lines that polars and Python's csv split alike."""
    between = rf'[^"\r\n\x{{{ord(separator):x}}}]'
    cell = rf'(?:"(?:[^"\r]|"")*"|{between}*)'
    return rf"^{cell}(?:\x{{{ord(separator):x}}}{cell}){{{width - 1}}}$"


def _cells(text: bytes, separator: str, names: Sequence[str]) -> pl.DataFrame | None:
    """Return all lines of a text as cells; None where one of them does not have a cell for each name."""
    lines, quotes = text.count(b"\n") + 1, text.count(b'"')
    try:
        cells = pl.read_csv(
            text, has_header=False, separator=separator, schema=dict.fromkeys(names, pl.String),
            empty_string_is_null=False,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    kept = sum(cells.select(pl.all().str.len_bytes().cast(pl.Int64).sum()).row(0))
    within = sum(cells.select(pl.all().str.count_matches('"', literal=True).sum()).row(0)) if quotes else 0
    between = lines * len(names) - 1  # separators and ends of lines
    whole = cells.height == lines and quotes % 2 == 0 and kept + quotes - within + between == len(text)
    return cells if whole else None


def whole_numbers(
    texts: pl.Series,
    scale: int,
    parse: Callable[[str], int | None],
    *,
    most: int = _LARGEST,
    comma: bool = False,
) -> pl.Series:
    """Return printed numbers in units of 1/scale, rounded half to even.

    What is not printed plainly, or is `most` and more, is what `parse` makes of it, each distinct text once;
    and so is all where the scale is no power of ten. `comma` says that a single comma may stand for the
    decimal point.
    """
    decimals = len(str(scale)) - 1
    if scale != 10**decimals:
        return _completed(pl.Series([None], dtype=pl.Int64).new_from_index(0, len(texts)), texts, parse)
    limit = min(most, _LARGEST, 10 ** (_REACH + decimals))
    texts = _pointed(texts) if comma else texts
    short = pl.when(texts.str.len_bytes() < _LONGEST).then(texts)
    numbers = pl.select(short).to_series().cast(pl.Decimal(38, decimals), strict=False).to_physical()
    numbers = pl.select(pl.when(numbers.abs() < limit).then(numbers)).to_series()
    return _completed(numbers.cast(pl.Int64), texts, parse)


def integers(texts: pl.Series, parse: Callable[[str], int | None]) -> pl.Series:
    """Return printed whole numbers; what is not printed in digits alone is what `parse` makes of it.

    Those of which two might not fit a difference are null.
    """
    plain = pl.when((texts.str.len_bytes() < _DIGITS) & ~texts.str.starts_with("+")).then(texts)
    numbers = _completed(pl.select(plain).to_series().cast(pl.Int64, strict=False), texts, parse)
    return pl.select(pl.when(numbers.is_between(-_FURTHEST, _FURTHEST)).then(numbers)).to_series()


def reals(texts: pl.Series, parse: Callable[[str], float | None], *, comma: bool = False) -> pl.Series:
    """Return printed numbers as floats; what is not printed plainly is what `parse` makes of it."""
    texts = _pointed(texts) if comma else texts
    numbers = texts.cast(pl.Float64, strict=False)
    finite = pl.select(pl.when(numbers.is_finite() & (texts.str.len_bytes() < _LONGEST)).then(numbers))
    return _completed(finite.to_series(), texts, parse)


def _pointed(texts: pl.Series) -> pl.Series:
    """Return texts with a decimal point where the one comma among digits can only be that."""
    return texts.zip_with(~texts.str.contains(r"^[0-9]+,[0-9]+$"), texts.str.replace(",", ".", literal=True))


def _completed(numbers: pl.Series, texts: pl.Series, parse: Callable[[str], Any]) -> pl.Series:
    """Return numbers with what `parse` makes of the texts that gave none."""
    lacking = numbers.is_null()
    if not lacking.any():
        return numbers
    words = texts.filter(lacking).unique().drop_nulls()
    values = pl.Series([parse(word) for word in words], dtype=numbers.dtype, strict=False)
    if values.null_count() == len(values):
        return numbers
    parsed = texts.replace_strict(words, values, default=None, return_dtype=numbers.dtype)
    return numbers.zip_with(~lacking, parsed)


def blank(texts: pl.Series) -> pl.Series:
    """Return which texts hold nothing but white space."""
    return texts.str.strip_chars(BLANKS) == ""
