"""The numbers of many column lines as columns: their lists are joined and read as one, on all cores.

At once are read only lines as our writers write them; whatever else stands in one makes it be read by itself.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

import msgspec
import polars as pl
from msgspec import Raw, Struct

from capture.native.lines import ColumnsLine, Told, Whole
from capture.native.schema import intact

START: Final = b'{"kind":"columns",'

_OFTEN: Final = 4  # of so many lines one must have the list of the first, for lists to be compared


class RawLine(Told, kw_only=True, gc=False):
    """A column line whose lists are still text."""

    op: Raw
    dur: Raw
    dt: Raw
    t: Whole | None
    step: Whole | None = None
    phase: str | None = None
    context: Whole | None = None


class Block(Struct, frozen=True):
    """Column lines with all their numbers: a row an event in `numbers`, and how many events each line has."""

    lines: Sequence[ColumnsLine | RawLine]
    numbers: pl.DataFrame
    lengths: pl.Series


_decode: Final = msgspec.json.Decoder(RawLine).decode


def block_of(lines: Iterable[ColumnsLine]) -> Block | None:
    """Return lines that were read one by one as a block; None where they hold no event."""
    lines = [line for line in lines if line.op]
    columns = [
        _joined("op", (line.op for line in lines)),
        _joined("dur", (line.dur for line in lines)),
        _joined("dt", map(_distances, lines)),
    ]
    if any(line.count for line in lines):
        columns.append(_joined("count", map(_counts, lines)))
    lengths = pl.Series([len(line.op) for line in lines], dtype=pl.Int64)
    return Block(lines, pl.DataFrame(columns), lengths) if lines else None


def _joined(name: str, parts: Iterable[Sequence[int | None]]) -> pl.Series:
    return pl.Series(name, list(chain.from_iterable(parts)), dtype=pl.Int64)


def _counts(line: ColumnsLine) -> Sequence[int | None]:
    return line.count or [None] * len(line.op)


def _distances(line: ColumnsLine) -> Sequence[int | None]:
    if line.dt is None or line.t is None:
        return [None] * len(line.op)
    return line.dt


def block_at_once(lines: Sequence[bytes]) -> Block | None:
    """Return lines as a block; None where one of them has to be looked at by itself."""
    records = _records(lines)
    if len(records) < len(lines):
        return None
    lists = {name: [bytes(getattr(record, name)) for record in records] for name in ("op", "dur", "dt")}
    counts = {text: text.count(b",") + 1 for text in set(lists["op"])}
    lengths = [counts[text] for text in lists["op"]]
    columns = [_repeated(name, texts, lengths) for name, texts in lists.items()]
    read = [column for column in columns if column is not None]
    whole = len(read) == len(columns)
    return Block(records, pl.DataFrame(read), pl.Series(lengths, dtype=pl.Int64)) if whole else None


def _records(lines: Sequence[bytes]) -> list[RawLine]:
    """Return the lines that are intact and begin at a known time; none where one is no such line."""
    try:
        records = [_decode(line) for line in lines if intact(line)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return [record for record in records if record.t is not None]


def _repeated(name: str, lists: Sequence[bytes], lengths: Sequence[int]) -> pl.Series | None:
    """Return what `_numbers` returns: a list that many lines have, as that of the ops, is read once."""
    if lists.count(lists[0]) * _OFTEN < len(lists):
        return _numbers(name, lists, lengths)
    distinct = dict(zip(lists, lengths, strict=True))
    if any(distinct[text] != length for text, length in zip(lists, lengths, strict=True)):
        return None
    numbers = _numbers(name, list(distinct), list(distinct.values()))
    if numbers is None:
        return None
    ends = dict(zip(distinct, accumulate(distinct.values()), strict=True))
    parts = {text: numbers.slice(end - distinct[text], distinct[text]) for text, end in ends.items()}
    return pl.concat([parts[text] for text in lists], rechunk=True)


def _numbers(name: str, lists: Sequence[bytes], lengths: Sequence[int]) -> pl.Series | None:
    """Return the numbers of JSON lists of the given lengths, one behind the other; None for anything else."""
    pairs = zip(lists, lengths, strict=True)
    if not all(text.startswith(b"[") and text.count(b",") + 1 == length for text, length in pairs):
        return None
    text = b",".join([text[1:-1] for text in lists])
    try:  # a number a line, but that a comma ends it
        column = pl.read_csv(
            text, has_header=False, separator="\n", eol_char=",", quote_char=None, schema={name: pl.Int64}
        )
    except pl.exceptions.PolarsError:
        return None
    numbers = column[name]
    return None if numbers.has_nulls() or len(numbers) != sum(lengths) else numbers
