"""The fast way into a metallic file: lines cut at a few words, the few distinct texts read as JSON.

The engine writes the keys of every line in one order, so that all but the time and the duration repeats. What
does not fit this layout is handed back by its row, for the line reader.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import polars as pl

from capture.loaders.metallic.patient_scan import LONGEST_US, TIMED, Key, Raw, key_of, seconds_of, type_of

_CAT: Final = pl.Categorical()
_EVENT: Final = '"event":{'
_DATA: Final = '"data":'
_US: Final = '"duration_us":'
_LINE: Final = re.compile(rb'\{"timestamp":"[^"]{20,30}","span_id":[^,]*,"parent_span_id":[^,]*,"span_name":')
_STAMP: Final = re.compile(r'\{"timestamp":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d|Z")')
_SECOND: Final = len('{"timestamp":"2025-12-23T10:15:30')

Input = Path | bytes


class Scanned(NamedTuple):
    """A raw row for every line, in line order, and the rows whose lines must be read again."""

    raw: Raw
    odd: list[int]


def fits(head: bytes) -> bool:
    """Return whether the first line has the engine's own layout."""
    return _LINE.match(head) is not None


def scan(source: Input) -> Scanned:
    split = _split(source)
    keys: dict[Key, int] = {}
    left = split["left"].is_not_null().arg_true()
    pieces = split.select("middle", "left")[left]
    bare = pieces["middle"] == ""
    key, us = _timed(split, left, _tailed(pieces), keys)
    stamp, height = _stamps(split), split.height
    del split
    other, rests = _others(pieces["left"].filter(bare), keys)
    at = left.filter(bare)
    place = pl.repeat(None, height, dtype=pl.UInt32, eager=True)
    place = place.scatter(at, pl.int_range(at.len(), dtype=pl.UInt32, eager=True))
    rows = pl.DataFrame({"key": key.scatter(at, other), "us": us, "stamp": stamp, "rest": place})
    odd = rows["key"].is_null() | stamp.is_null()
    return Scanned(Raw(rows, list(keys), rests), odd.arg_true().to_list())


def _lines(source: Input) -> pl.LazyFrame:
    return pl.scan_csv(
        source, separator="\x01", has_header=False, quote_char=None, schema={"line": pl.String()}
    )


def _split(source: Input) -> pl.DataFrame:
    """Return every line in pieces: texts that repeat as categoricals, numbers, and as text what is left."""
    line, text = pl.col("line"), pl.col("text")
    at, z, event, number = (pl.col(c) for c in ("at", "z", "event", "number"))
    marked = _lines(source).select(
        text=line.cast(pl.Binary),
        at=line.str.find(_US, literal=True),
        z=line.str.find("Z", literal=True),
        event=line.str.find(_EVENT, literal=True),
    )
    digits = text.bin.slice(_SECOND + 1, z - _SECOND - 1).cast(pl.String).cast(pl.UInt32, strict=False)
    pieces = marked.select(
        "text",
        "event",
        second=text.bin.head(_SECOND + 2).cast(pl.String).cast(_CAT),
        fraction=pl.when(z == _SECOND).then(0).otherwise(digits * _scale(z)),
        middle=text.bin.slice(event, (at - event).fill_null(0)).cast(pl.String).cast(_CAT),
        number=text.bin.slice(at + len(_US)).cast(pl.String),
    ).with_columns(
        us=pl.when(number.str.ends_with("}}}")).then(_duration(number.str.strip_suffix("}}}"), number))
    )
    left = pl.when(event.is_not_null()).then(pl.coalesce(number, text.bin.slice(event).cast(pl.String)))
    return pieces.select(
        *("second", "fraction", "middle", "us"),
        left=pl.when(pl.col("us").is_null()).then(left),
    ).collect(engine="streaming")


def _scale(z: pl.Expr) -> pl.Expr:
    """Return the ns of the last digit before a time's Z.

    Null where there is none, or there are more than nine.
    """
    possible = pl.when(z.is_between(_SECOND + 2, _SECOND + 10)).then(z)
    return pl.lit(10, pl.UInt32).pow(_SECOND + 10 - possible)


def _duration(digits: pl.Expr, number: pl.Expr) -> pl.Expr:
    """Return a duration as JSON writes a number: no sign, no leading zeros.

    `number` has more behind its digits.
    """
    us = digits.cast(pl.Int64, strict=False)
    return pl.when((number >= "0}") & (us <= LONGEST_US)).then(us)


def _tailed(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return text around the number, and the number, of lines in which more stands behind it.

    Null for others.
    """
    number, tail = (pl.col("left").struct.field(f"field_{i}") for i in range(2))
    marked = pieces.lazy().with_columns(pl.when(pl.col("middle") != "").then("left").alias("left"))
    return (
        marked.with_columns(pl.col("left").str.splitn(",", 2))
        .select(
            text=pl.concat_str(pl.col("middle").cast(pl.String), pl.lit(_US + ","), tail),
            us=_duration(number, number + "}"),
        )
        .select(pl.when(pl.all_horizontal(pl.all().is_not_null())).then(pl.all()))
        .with_columns(pl.col("text").cast(_CAT))
        .collect()
    )


def _timed(
    split: pl.DataFrame, at: pl.Series, tailed: pl.DataFrame, keys: dict[Key, int]
) -> tuple[pl.Series, pl.Series]:
    """Return for every row the number of its key and its duration.

    Null where it has none or could not be read.
    """
    distinct = pl.concat([split["middle"].unique(), tailed["text"].unique()]).drop_nulls()
    us, codes = split["us"], split["middle"].to_physical()
    if at.len():
        us, codes = us.scatter(at, tailed["us"]), codes.scatter(at, tailed["text"].to_physical())
    numbers = [_number(keys, key_of(*_parts(text))) for text in distinct.cast(pl.String)]
    return _table(distinct, pl.Series(numbers, dtype=pl.UInt32)).gather(codes), us


def _parts(text: str) -> tuple[str, str]:
    """Return what stands before and behind the number of an event."""
    before, separator, tail = text.partition(_US)
    return "{" + before + _US, tail if separator else "}}}"


def _number(keys: dict[Key, int], key: Key | None) -> int | None:
    return None if key is None else keys.setdefault(key, len(keys))


def _table(texts: pl.Series, values: pl.Series) -> pl.Series:
    """Return the values, one for each of some categories, by the categories' codes."""
    codes = texts.to_physical()
    highest = codes.max()
    size = highest + 1 if isinstance(highest, int) else 1
    table = pl.repeat(None, size, dtype=values.dtype, eager=True)
    return table.scatter(codes, values)


def _stamps(split: pl.DataFrame) -> pl.Series:
    """Return the lines' times as ns since 1970; null where the line does not begin with one."""
    distinct = split["second"].unique().drop_nulls()
    matches = [_STAMP.match(text) for text in distinct.cast(pl.String)]
    seconds = pl.Series([seconds_of(f[1]) if f else None for f in matches], dtype=pl.Int64)
    return _table(distinct, seconds).gather(split["second"].to_physical()) + split["fraction"]


def _others(texts: pl.Series, keys: dict[Key, int]) -> tuple[pl.Series, pl.Series]:
    """Return key and data as JSON of events without a duration; null where that is no such event."""
    text = pl.col("text").cast(pl.Binary)
    cut = pl.col("cut")
    pieces = (
        texts.to_frame("text")
        .lazy()
        .with_columns(cut=pl.col("text").str.find(_DATA, literal=True))
        .select(
            head=text.bin.slice(0, cut.fill_null(0)).cast(pl.String).cast(_CAT),
            data=text.bin.slice(cut + len(_DATA)).cast(pl.String).str.strip_suffix("}}"),
        )
        .collect()
    )
    heads = pieces["head"].unique().drop_nulls()
    types = [type_of("{" + head + _DATA + "{}}}") for head in heads.cast(pl.String)]
    numbers = [_number(keys, Key(t)) if t is not None and t not in TIMED else None for t in types]
    key = _table(heads, pl.Series(numbers, dtype=pl.UInt32)).gather(pieces["head"].to_physical())
    bad = no_objects(pieces["data"].unique().drop_nulls())
    whole = texts.str.ends_with("}}}") & ~pieces["data"].is_in(bad.implode())
    return key.set(~whole.fill_null(False), None), pieces["data"]


def no_objects(texts: pl.Series) -> pl.Series:
    """Return those of some texts that are no JSON object."""
    try:
        if len(_objects("\n".join(texts))) == texts.len():
            return texts.clear()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    return texts.filter(pl.Series([not _is_object(text) for text in texts], dtype=pl.Boolean))


_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode_lines


def _is_object(text: str) -> bool:
    try:
        return len(_objects(text)) == 1
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
