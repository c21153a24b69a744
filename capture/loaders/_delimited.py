"""Split delimited text into columns in bulk, and parse columns of printed numbers.

Irregular lines are returned with their numbers, for a slower reader; odd numbers go to a `parse` callback.
A line is regular if it has one cell per column and each cell is either fully quoted or free of quotes. The C
scanner splits a text of regular lines only; otherwise, or without the scanner, polars does, and its result is
checked against the text: every byte must be accounted for.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import polars as pl

from capture.loaders._scan import load_scanner, read_arrow_columns

LINE: Final = "line"  # column of `DelimitedTable.cells`: the number of each line

_LARGE_TEXT_BYTES: Final = 1 << 22  # from here on bulk operations are faster
_UNUSED_BYTE: Final = b"\x01"  # a separator that texts do not contain; one that does is split by Python
_BLOCK_BYTES: Final = 1 << 18  # fits the CPU cache

_MAX_SCALED: Final = 1 << 60  # larger scaled numbers are left to `parse`
_MAX_INTEGER: Final = 1 << 62  # larger integers are null
_MAX_INTEGER_DIGITS: Final = 16  # digits before the point; more give None in `scale_to_integer`
_MAX_INT64_CHARACTERS: Final = 20  # characters of the longest 64-bit integer
MIN_INEXACT_LENGTH: Final = 28  # characters from which decimal arithmetic may round twice
BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))  # what str.strip removes


class DelimitedTable(NamedTuple):
    """The regular lines of a text, split, and its irregular lines, whole."""

    cells: pl.DataFrame  # a text column per name, and LINE
    irregular: list[tuple[int, str]]  # number and text


def split_delimited(text: bytes, separator: str, names: Sequence[str], skip: int = 0) -> DelimitedTable:
    """Split UTF-8 text into cells under these names; its lines must end with `\\n`.

    The first `skip` lines are ignored; lines are numbered from the one after them.
    """
    text = text.rstrip(b"\n") if text.endswith(b"\n\n") else text
    cells = _split_regular(text, separator, names, skip) if b"\r" not in text else None
    if cells is not None and not (separator.isspace() and _has_blank_lines(cells)):
        return DelimitedTable(cells.with_row_index(LINE), [])
    lines_below = text.removesuffix(b"\n").decode().split("\n")[skip:]
    lines = pl.DataFrame({"text": lines_below}, schema={"text": pl.String}).with_row_index(LINE)
    pattern = _build_line_pattern(separator, len(names))
    is_regular = lines["text"].str.contains(pattern) & ~is_blank(lines["text"])
    regular_lines = lines.filter(is_regular)
    regular_text = "\n".join(regular_lines["text"]).encode()
    cells = _split_regular(regular_text, separator, names) if regular_lines.height else None
    if cells is None:
        schema = {LINE: pl.get_index_type(), **dict.fromkeys(names, pl.String)}
        return DelimitedTable(pl.DataFrame(schema=schema), lines.rows())
    return DelimitedTable(cells.insert_column(0, regular_lines[LINE]), lines.filter(~is_regular).rows())


def split_with_fallback(
    text: bytes,
    separator: str,
    names: Sequence[str],
    parse: Callable[[str], Sequence[str] | None],
    skip: int = 0,
) -> tuple[pl.DataFrame, list[int]]:
    """Return the good lines as cells under these names, in order, and the numbers of the bad lines.

    `parse` splits an irregular line, or returns None; a line is bad if it then lacks a cell or has one too
    many. Blank lines are skipped. `skip` is as in `split_delimited`.
    """
    regular, others = split_delimited(text, separator, names, skip)
    parsed_lines = [(at, parse(line)) for at, line in others if line.strip()]
    parsed_rows = [(at, *row) for at, row in parsed_lines if row is not None and len(row) == len(names)]
    bad_lines = [at for at, row in parsed_lines if row is None or len(row) != len(names)]
    parsed_frame = pl.DataFrame(parsed_rows, schema=regular.schema, orient="row")
    return (pl.concat([regular, parsed_frame]).sort(LINE) if parsed_rows else regular), bad_lines


def split_with_scanner(
    text: bytes,
    separator: str,
    names: Sequence[str],
    begin: int,
    end: int | None = None,
    *,
    quoted: bool = False,
) -> pl.DataFrame | None:
    """Split part of a UTF-8 text with the C scanner; None without it, or if a line is irregular.

    With `quoted`, a line that does not begin with a quote is irregular.
    """
    scanner = load_scanner()
    if scanner is None or text.find(b"\r", begin, end) >= 0:
        return None
    part = memoryview(text)[begin:end]
    arrays = scanner.cells(part, separator, len(names), quoted, pl.thread_pool_size())
    return None if arrays is None else read_arrow_columns(arrays, names)


def _has_blank_lines(cells: pl.DataFrame) -> bool:
    """Return True if a line is only white space, which Python's csv module would split into cells."""
    return bool(cells.select(pl.all_horizontal(pl.all().str.strip_chars(BLANKS) == "").any()).item())


def _build_line_pattern(separator: str, width: int) -> str:
    """Build a pattern of the lines that polars and Python's csv module split alike."""
    bare_character = rf'[^"\r\n\x{{{ord(separator):x}}}]'
    cell = rf'(?:"(?:[^"\r]|"")*"|{bare_character}*)'
    return rf"^{cell}(?:\x{{{ord(separator):x}}}{cell}){{{width - 1}}}$"


def _split_regular(text: bytes, separator: str, names: Sequence[str], skip: int = 0) -> pl.DataFrame | None:
    """Split a text into cells; None if any line lacks a cell or has one too many."""
    first = find_line_start(text, skip)
    scanned = split_with_scanner(text, separator, names, first)
    if scanned is not None:
        return scanned
    line_ends, quotes = _count_line_ends_and_quotes(text, first)
    separator_count = (line_ends + (not text.endswith(b"\n"))) * len(names)  # separators and line ends
    try:
        cells = pl.read_csv(
            text, has_header=False, separator=separator, schema=dict.fromkeys(names, pl.String),
            empty_string_is_null=False, skip_lines=skip,
        )  # fmt: skip
    except pl.exceptions.PolarsError:
        return None
    if cells.height * len(names) != separator_count or quotes % 2:
        return None
    cell_bytes = sum(cells.select(pl.all().str.len_bytes().cast(pl.Int64).sum()).row(0))
    quotes_in_cells = _count_quotes_in_cells(cells) if quotes else 0
    size = len(text) - first + (not text.endswith(b"\n"))
    return cells if cell_bytes + quotes - quotes_in_cells + separator_count == size else None


def _count_quotes_in_cells(cells: pl.DataFrame) -> int:
    """Count quotes inside cells; of a constant column only one cell is searched."""
    if cells.is_empty():
        return 0
    is_constant = cells.select((pl.col(c) == pl.col(c).first()).all() for c in cells.columns).row(0)
    quotes: int = sum(s[0].count('"') * s.len() for s, const in zip(cells, is_constant, strict=True) if const)
    varying = [name for name, constant in zip(cells.columns, is_constant, strict=True) if not constant]
    counts = [pl.col(name).str.count_matches('"', literal=True).sum() for name in varying]
    return quotes + int(sum(cells.select(counts).row(0) if counts else ()))


def split_lines(text: bytes) -> pl.Series:
    """Split UTF-8 text into lines, large ones by polars; a last empty line may or may not be included."""
    if len(text) >= _LARGE_TEXT_BYTES and not any(letter in text for letter in (b"\r", _UNUSED_BYTE)):
        with suppress(pl.exceptions.PolarsError):
            lines = pl.read_csv(
                text, has_header=False, separator=_UNUSED_BYTE.decode(), quote_char=None,
                schema={"line": pl.String}, empty_string_is_null=False,
            )["line"]  # fmt: skip
            if compute_line_ends(lines).last() == len(text) + (not text.endswith(b"\n")):
                return lines
    return pl.Series(text.decode().split("\n"), dtype=pl.String)


def compute_line_ends(lines: pl.Series) -> pl.Series:
    """Compute for each line the offset after its line end."""
    return (lines.str.len_bytes().cast(pl.Int64) + 1).cum_sum()


def find_line_start(text: bytes, line: int) -> int:
    """Find the offset of line number `line`, from zero; the end of the text if there are fewer lines."""
    begin = 0
    for _ in range(line):
        begin = text.find(b"\n", begin) + 1 or len(text)
    return begin


def _count_line_ends_and_quotes(text: bytes, first: int) -> tuple[int, int]:
    if len(text) < _LARGE_TEXT_BYTES:
        return text.count(b"\n", first), text.count(b'"', first)
    import numpy as np

    letters, line_ends, quotes = np.frombuffer(text, np.uint8), 0, 0
    for at in range(first, len(text), _BLOCK_BYTES):
        piece = letters[at : at + _BLOCK_BYTES]
        line_ends += int(np.count_nonzero(piece == ord("\n")))
        quotes += int(np.count_nonzero(piece == ord('"')))
    return line_ends, quotes


def parse_scaled_integers(
    texts: pl.Series,
    scale: int,
    parse: Callable[[str], int | None],
    *,
    limit_end: int = _MAX_SCALED,
    comma: bool = False,
) -> pl.Series:
    """Parse printed numbers as integers, each multiplied by `scale` and rounded half to even.

    `parse`, called once per distinct text, handles what is not plainly printed, numbers from `limit_end` on,
    and every text if the scale is not a power of ten. With `comma`, a single comma may be the decimal point.
    """
    decimals = len(str(scale)) - 1
    if scale != 10**decimals:
        return _parse_remaining(pl.Series([None], dtype=pl.Int64).new_from_index(0, len(texts)), texts, parse)
    limit = min(limit_end, _MAX_SCALED, 10 ** (_MAX_INTEGER_DIGITS + decimals)) - 1
    texts = _normalise_decimal_comma(texts) if comma else texts
    numbers = _parse_plain(texts, decimals)
    is_small = numbers.is_between(-limit, limit)
    numbers = numbers if is_small.all() else pl.select(pl.when(is_small).then(numbers)).to_series()
    return _parse_remaining(numbers, texts, parse)


def _parse_plain(texts: pl.Series, decimals: int) -> pl.Series:
    """Parse plainly printed numbers in units of their last decimal; null for others."""
    if not decimals and not (integers := texts.cast(pl.Int64, strict=False)).null_count():
        return integers
    is_short = texts.str.len_bytes() < MIN_INEXACT_LENGTH
    texts = texts if is_short.all() else pl.select(pl.when(is_short).then(texts)).to_series()
    scaled = texts.cast(pl.Decimal(38, decimals), strict=False).to_physical()
    return scaled.cast(pl.Int64, strict=False)


def parse_integers(texts: pl.Series, parse: Callable[[str], int | None]) -> pl.Series:
    """Parse printed integers, null beyond ±2^62; `parse` handles what is not digits only."""
    is_plain = (texts.str.len_bytes() < _MAX_INT64_CHARACTERS) & ~texts.str.starts_with("+")
    printed = texts if is_plain.all() else pl.select(pl.when(is_plain).then(texts)).to_series()
    numbers = _parse_remaining(printed.cast(pl.Int64, strict=False), texts, parse)
    is_small = numbers.is_between(-_MAX_INTEGER, _MAX_INTEGER)
    return numbers if is_small.all() else pl.select(pl.when(is_small).then(numbers)).to_series()


def parse_floats(texts: pl.Series, parse: Callable[[str], float | None], *, comma: bool = False) -> pl.Series:
    """Parse printed numbers as floats; `parse` handles what is not plainly printed."""
    texts = _normalise_decimal_comma(texts) if comma else texts
    numbers = texts.cast(pl.Float64, strict=False)
    is_plain = numbers.is_finite() & (texts.str.len_bytes() < MIN_INEXACT_LENGTH)
    finite = pl.select(pl.when(is_plain).then(numbers))
    return _parse_remaining(finite.to_series(), texts, parse)


def _normalise_decimal_comma(texts: pl.Series) -> pl.Series:
    """Replace a comma by a decimal point if it is the only one among digits."""
    return texts.zip_with(~texts.str.contains(r"^[0-9]+,[0-9]+$"), texts.str.replace(",", ".", literal=True))


def _parse_remaining(numbers: pl.Series, texts: pl.Series, parse: Callable[[str], Any]) -> pl.Series:
    """Fill the nulls among numbers with what `parse` makes of their texts."""
    is_missing = numbers.is_null()
    if not is_missing.any():
        return numbers
    distinct_texts = texts.filter(is_missing).unique().drop_nulls()
    values = pl.Series([parse(text) for text in distinct_texts], dtype=numbers.dtype, strict=False)
    if values.null_count() == len(values):
        return numbers
    parsed = texts.replace_strict(distinct_texts, values, default=None, return_dtype=numbers.dtype)
    return numbers.zip_with(~is_missing, parsed)


def is_blank(texts: pl.Series) -> pl.Series:
    """Mark texts that contain only white space."""
    return texts.str.strip_chars(BLANKS) == ""
