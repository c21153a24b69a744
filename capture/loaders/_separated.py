"""Tables of separated values at once: the lines that fit are split, the others are left line by line.

A line fits where it has one cell for each column, and each cell is either quoted whole or holds no quote.
The compiled scanner splits a text whose lines all fit; where it cannot, or is not there, polars does. Nothing
is guessed: a table that polars has split is compared with its text, byte for byte.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

from capture.loaders._scan import scanner
from capture.loaders._scan.arrow import columns

LINE: Final = "line"  # the column of `Table.cells` that holds the number of each line

_LARGEST: Final = 1 << 60
_REACH: Final = 16  # digits before the point, from which `_numbers.exact` gives None
_FURTHEST: Final = 1 << 62
_DIGITS: Final = 20  # characters that no number of 64 bits needs more of
_LARGE: Final = 1 << 22  # bytes, of which it is sooner to look at many at once
_NOWHERE: Final = b"\x01"  # in a text; one that holds it is split by Python
_PIECE: Final = 1 << 18  # bytes that stay in the cache of a core
LONGEST: Final = 28  # characters, from which Python's decimals may round twice
BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))  # what Python takes off


class Table(NamedTuple):
    """Lines as cells, a column of text for each and `line`; and the other lines by their numbers."""

    cells: pl.DataFrame
    others: list[tuple[int, str]]


def split(text: bytes, separator: str, names: Sequence[str], skip: int = 0) -> Table:
    """Return the lines of a text in UTF-8, which end with `\\n` alone, as cells under the given names.

    The first lines are not read, as many as `skip` says; the numbers of the others begin behind them.
    """
    text = text.rstrip(b"\n") if text.endswith(b"\n\n") else text
    cells = _cells(text, separator, names, skip) if b"\r" not in text else None
    if cells is not None and not (separator.isspace() and _blank_lines(cells)):
        return Table(cells.with_row_index(LINE), [])
    below = text.removesuffix(b"\n").decode().split("\n")[skip:]
    lines = pl.DataFrame({"text": below}, schema={"text": pl.String}).with_row_index(LINE)
    fits = lines["text"].str.contains(_fitting(separator, len(names))) & ~blank(lines["text"])
    fitting = lines.filter(fits)
    cells = _cells("\n".join(fitting["text"]).encode(), separator, names) if fitting.height else None
    if cells is None:
        return Table(_no_cells(names), lines.rows())
    return Table(cells.insert_column(0, fitting[LINE]), lines.filter(~fits).rows())


def records(
    text: bytes,
    separator: str,
    names: Sequence[str],
    cells: Callable[[str], Sequence[str] | None],
    skip: int = 0,
) -> tuple[pl.DataFrame, list[int]]:
    """Return the lines that have a cell for each name, in their order, and the numbers of the others.

    `cells` splits a line that is not regular, and gives None for one that cannot be. Blank lines are neither.
    `skip` is as in `split`.
    """
    regular, others = split(text, separator, names, skip)
    parsed = [(at, cells(line)) for at, line in others if line.strip()]
    kept = [(at, *found) for at, found in parsed if found is not None and len(found) == len(names)]
    bad = [at for at, found in parsed if found is None or len(found) != len(names)]
    more = pl.DataFrame(kept, schema=regular.schema, orient="row")
    return (pl.concat([regular, more]).sort(LINE) if kept else regular), bad


def cut_at_once(
    text: bytes,
    separator: str,
    names: Sequence[str],
    begin: int,
    end: int | None = None,
    *,
    quoted: bool = False,
) -> pl.DataFrame | None:
    """Return the lines between two places of a text in UTF-8 as cells, as the compiled scanner cuts them.

    None where there is no scanner, and where one of them is not regular; so is one that does not begin with a
    quote, where all are `quoted`.
    """
    module = scanner()
    if module is None or text.find(b"\r", begin, end) >= 0:
        return None
    part = memoryview(text)[begin:end]
    cut = module.cells(part, separator, len(names), quoted, pl.thread_pool_size())
    return None if cut is None else columns(cut, names)


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


def _cells(text: bytes, separator: str, names: Sequence[str], skip: int = 0) -> pl.DataFrame | None:
    """Return all lines of a text as cells; None where one of them does not have a cell for each name."""
    first = begin_of(text, skip)
    cut = cut_at_once(text, separator, names, first)
    if cut is not None:
        return cut
    ends, quotes = _counts(text, first)
    between = (ends + (not text.endswith(b"\n"))) * len(names)  # separators, and the end of each line
    try:
        cells = pl.read_csv(
            text, has_header=False, separator=separator, schema=dict.fromkeys(names, pl.String),
            empty_string_is_null=False, skip_lines=skip,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    if cells.height * len(names) != between or quotes % 2:
        return None
    kept = sum(cells.select(pl.all().str.len_bytes().cast(pl.Int64).sum()).row(0))
    within = _quotes_within(cells) if quotes else 0
    size = len(text) - first + (not text.endswith(b"\n"))
    return cells if kept + quotes - within + between == size else None


def _quotes_within(cells: pl.DataFrame) -> int:
    """Return how many quotes stand in cells; a column of one word is not searched row by row."""
    if cells.is_empty():
        return 0
    is_one_word = cells.select((pl.col(c) == pl.col(c).first()).all() for c in cells.columns).row(0)
    quotes: int = sum(s[0].count('"') * s.len() for s, one in zip(cells, is_one_word, strict=True) if one)
    several = [name for name, one in zip(cells.columns, is_one_word, strict=True) if not one]
    counts = [pl.col(name).str.count_matches('"', literal=True).sum() for name in several]
    quotes += sum(cells.select(counts).row(0) if counts else ())
    return quotes


def pieces(text: bytes, separator: str, width: int, skip: int) -> pl.DataFrame | None:
    """Return the lines of a text cut at each separator, by the numbers of the pieces.

    None where they do not all have as many pieces. The first lines are not read, as many as `skip` says.
    """
    names = [str(at) for at in range(width)]
    try:
        table = pl.read_csv(
            text, has_header=False, separator=separator, quote_char=None,
            schema=dict.fromkeys(names, pl.String), empty_string_is_null=False, skip_lines=skip,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    kept = sum(table.select(pl.all().str.len_bytes().cast(pl.Int64).sum()).row(0))
    between = table.height * width  # separators, and the end of each line
    size = len(text) - begin_of(text, skip) + (not text.endswith(b"\n"))
    return table if kept + between == size else None


def lines_of(text: bytes) -> pl.Series:
    """Return the lines of a text in UTF-8; whether there is one behind the last end of a line is open.

    Polars splits it where it does so as Python does.
    """
    if len(text) >= _LARGE and not any(letter in text for letter in (b"\r", _NOWHERE)):
        lines = pieces(text, _NOWHERE.decode(), 1, 0)
        if lines is not None:
            return lines["0"]
    return pl.Series(text.decode().split("\n"), dtype=pl.String)


def ends_of(lines: pl.Series) -> pl.Series:
    """Return where each line of a text ends, its end counted in."""
    return (lines.str.len_bytes().cast(pl.Int64) + 1).cum_sum()


def begin_of(text: bytes, line: int) -> int:
    """Return where a line begins, counted from zero; the end of the text where there are fewer."""
    begin = 0
    for _ in range(line):
        begin = text.find(b"\n", begin) + 1 or len(text)
    return begin


def _counts(text: bytes, first: int) -> tuple[int, int]:
    """Return how many ends of lines and how many quotes stand in a text, from a place on."""
    if len(text) < _LARGE:
        return text.count(b"\n", first), text.count(b'"', first)
    import numpy as np

    letters, ends, quotes = np.frombuffer(text, np.uint8), 0, 0
    for at in range(first, len(text), _PIECE):
        piece = letters[at : at + _PIECE]
        ends += int(np.count_nonzero(piece == ord("\n")))
        quotes += int(np.count_nonzero(piece == ord('"')))
    return ends, quotes


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
    limit = min(most, _LARGEST, 10 ** (_REACH + decimals)) - 1
    texts = _pointed(texts) if comma else texts
    numbers = _printed(texts, decimals)
    near = numbers.is_between(-limit, limit)
    numbers = numbers if near.all() else pl.select(pl.when(near).then(numbers)).to_series()
    return _completed(numbers, texts, parse)


def _printed(texts: pl.Series, decimals: int) -> pl.Series:
    """Return plainly printed numbers in units of their last decimal, and null for others."""
    if not decimals and not (whole := texts.cast(pl.Int64, strict=False)).null_count():
        return whole
    short = texts.str.len_bytes() < LONGEST
    texts = texts if short.all() else pl.select(pl.when(short).then(texts)).to_series()
    scaled = texts.cast(pl.Decimal(38, decimals), strict=False).to_physical()
    return scaled.cast(pl.Int64, strict=False)


def integers(texts: pl.Series, parse: Callable[[str], int | None]) -> pl.Series:
    """Return printed whole numbers; what is not printed in digits alone is what `parse` makes of it.

    Those of which two might not fit a difference are null.
    """
    plain = (texts.str.len_bytes() < _DIGITS) & ~texts.str.starts_with("+")
    printed = texts if plain.all() else pl.select(pl.when(plain).then(texts)).to_series()
    numbers = _completed(printed.cast(pl.Int64, strict=False), texts, parse)
    near = numbers.is_between(-_FURTHEST, _FURTHEST)
    return numbers if near.all() else pl.select(pl.when(near).then(numbers)).to_series()


def reals(texts: pl.Series, parse: Callable[[str], float | None], *, comma: bool = False) -> pl.Series:
    """Return printed numbers as floats; what is not printed plainly is what `parse` makes of it."""
    texts = _pointed(texts) if comma else texts
    numbers = texts.cast(pl.Float64, strict=False)
    finite = pl.select(pl.when(numbers.is_finite() & (texts.str.len_bytes() < LONGEST)).then(numbers))
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
