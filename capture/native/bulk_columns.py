"""Decode many column lines at once: their lists are joined and parsed as one column, on all cores.

This handles lines exactly as our writers write them; a line with anything else is decoded by itself.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

import msgspec
import polars as pl
from msgspec import Raw, Struct

from capture.native.line_types import ColumnsLine, Int64, WriterFields
from capture.native.schema import is_intact

COLUMNS_START: Final = b'{"kind":"columns",'

_MIN_REPEATED_IN: Final = 4  # of so many lines one must repeat the first list, to parse each list once


class RawColumnsLine(WriterFields, kw_only=True, gc=False):
    """A column line whose lists are still text."""

    op: Raw
    dur: Raw
    dt: Raw
    t: Int64 | None
    step: Int64 | None = None
    phase: str | None = None
    context: Int64 | None = None


class ColumnBlock(Struct, frozen=True):
    """Column lines with all their numbers: one row per event, and the number of events per line."""

    lines: Sequence[ColumnsLine | RawColumnsLine]
    numbers: pl.DataFrame
    lengths: pl.Series


_decode_raw_line: Final = msgspec.json.Decoder(RawColumnsLine).decode


def build_block(lines: Iterable[ColumnsLine]) -> ColumnBlock | None:
    """Return lines that were decoded one by one as a block, or None if they have no events."""
    lines = [line for line in lines if line.op]
    lists: dict[str, Iterable[Sequence[int | None]]] = {
        "op": (line.op for line in lines),
        "dur": (line.dur for line in lines),
        "dt": map(_list_distances, lines),
    }
    if any(line.count for line in lines):
        lists["count"] = (line.count or [None] * len(line.op) for line in lines)
    columns = [pl.Series(n, list(chain.from_iterable(p)), dtype=pl.Int64) for n, p in lists.items()]
    lengths = pl.Series([len(line.op) for line in lines], dtype=pl.Int64)
    return ColumnBlock(lines, pl.DataFrame(columns), lengths) if lines else None


def _list_distances(line: ColumnsLine) -> Sequence[int | None]:
    return [None] * len(line.op) if line.dt is None or line.t is None else line.dt


def decode_block(lines: Sequence[bytes]) -> ColumnBlock | None:
    """Return lines as a block, or None if one of them must be decoded by itself."""
    records = _decode_lines(lines)
    if len(records) < len(lines):
        return None
    lists = {name: [bytes(getattr(record, name)) for record in records] for name in ("op", "dur", "dt")}
    counts = {text: text.count(b",") + 1 for text in set(lists["op"])}
    lengths = [counts[text] for text in lists["op"]]
    columns = [_parse_repeated_lists(name, texts, lengths) for name, texts in lists.items()]
    parsed = [column for column in columns if column is not None]
    if len(parsed) < len(columns):
        return None
    return ColumnBlock(records, pl.DataFrame(parsed), pl.Series(lengths, dtype=pl.Int64))


def _decode_lines(lines: Sequence[bytes]) -> list[RawColumnsLine]:
    """Return the intact lines with a start time, or none if any line has another form."""
    try:
        records = [_decode_raw_line(line) for line in lines if is_intact(line)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return [record for record in records if record.t is not None]


def _parse_repeated_lists(name: str, lists: Sequence[bytes], lengths: Sequence[int]) -> pl.Series | None:
    """Return the numbers of JSON lists like `_parse_lists`, but parse each distinct list once."""
    if lists.count(lists[0]) * _MIN_REPEATED_IN < len(lists):
        return _parse_lists(name, lists, lengths)
    distinct = dict(zip(lists, lengths, strict=True))
    if any(distinct[text] != length for text, length in zip(lists, lengths, strict=True)):
        return None
    numbers = _parse_lists(name, list(distinct), list(distinct.values()))
    if numbers is None:
        return None
    ends = dict(zip(distinct, accumulate(distinct.values()), strict=True))
    slices = {text: numbers.slice(end - distinct[text], distinct[text]) for text, end in ends.items()}
    return pl.concat([slices[text] for text in lists], rechunk=True)


def _parse_lists(name: str, lists: Sequence[bytes], lengths: Sequence[int]) -> pl.Series | None:
    """Return the numbers of JSON lists of these lengths, concatenated, or None for anything else."""
    pairs = zip(lists, lengths, strict=True)
    if not all(text.startswith(b"[") and text.count(b",") + 1 == length for text, length in pairs):
        return None
    text = b",".join([text[1:-1] for text in lists])
    try:  # one number per line, with a comma as the line end
        column = pl.read_csv(
            text, has_header=False, separator="\n", eol_char=",", quote_char=None, schema={name: pl.Int64}
        )
    except pl.exceptions.PolarsError:
        return None
    numbers = column[name]
    return None if numbers.has_nulls() or len(numbers) != sum(lengths) else numbers
