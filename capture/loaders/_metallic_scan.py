"""The fast way into a metallic file: lines split at commas by polars, the few distinct texts read as JSON.

The engine writes the keys of every line in one order, so type, name and duration stand in the same fields of
every line. Whatever does not fit this layout is handed back by its row, for the line reader.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import polars as pl

from capture.loaders._metallic_lines import LONGEST_US, RAW, TIMED, seconds_of, shape_of

_FIELDS: Final = 18
_STAMP, _TYPE, _FIRST, _SECOND, _THIRD = (f"c{i}" for i in (0, 4, 5, 6, 7))
_TAIL: Final = [f"c{i}" for i in range(8, _FIELDS)]
_DISTINCT: Final = (_TYPE, _FIRST, _SECOND, *_TAIL)
_HEAD: Final = len('{"timestamp":"')
_FRACTION: Final = len('{"timestamp":"2025-12-23T10:15:30')
_CAT: Final = pl.Categorical()
_FEW: Final = 8
_LINE: Final = re.compile(rb'\{"timestamp":"[^"]{20,30}","span_id":[^,]*,"parent_span_id":[^,]*,"span_name":')

Input = Path | bytes


class Scanned(NamedTuple):
    """One raw row a line, in line order, and the rows (empty so far) whose lines must be read one by one."""

    rows: pl.DataFrame
    odd: list[int]


def fits(head: bytes) -> bool:
    """Whether the first line has the engine's own layout."""
    return _LINE.match(head) is not None


def scan(source: Input) -> Scanned:
    split = _split(source)
    rows = _timed(split)
    open_rows = rows["us"].is_null().arg_true()
    rest = _rest(split[open_rows], rows["type"].gather(open_rows))
    at = pl.repeat(None, rows.height, dtype=pl.UInt32, eager=True)
    at = at.scatter(open_rows, pl.int_range(open_rows.len(), eager=True))
    rows = rows.with_columns(rest=rest.gather(at)).select(*RAW)
    return Scanned(rows, open_rows.filter(rest.is_null()).to_list())


def _split(source: Input) -> pl.DataFrame:
    """The fields that matter of every line: texts as categoricals, the duration as a number."""
    third, stamp = pl.col(_THIRD), pl.col(_STAMP)
    us = third.str.strip_prefix('"duration_us":').str.strip_chars_end("}").cast(pl.Int64, strict=False)
    digits = stamp.str.slice(_FRACTION).str.strip_chars('.Z"')
    lines = pl.scan_csv(
        source,
        separator=",",
        has_header=False,
        quote_char=None,
        schema={c: _CAT if c in _DISTINCT else pl.String() for c in (f"c{i}" for i in range(_FIELDS))},
        truncate_ragged_lines=True,
        missing_columns="insert",
    )
    return lines.select(
        *_DISTINCT,
        us=us,
        third=pl.when(us.is_null()).then(third),
        second=stamp.str.slice(_HEAD, _FRACTION - _HEAD).cast(_CAT),
        fraction=digits.cast(pl.Int64, strict=False),
        places=digits.str.len_bytes().cast(pl.UInt8),
    ).collect(engine="streaming")


def _timed(split: pl.DataFrame) -> pl.DataFrame:
    """Raw columns; `us` only where type, names and shape could be read as well."""
    type_, type_tag = _read(split[_TYPE], _type)
    first, first_tag = _read(split[_FIRST], _first)
    second, second_tag = _read(split[_SECOND], _second)
    shape, whole = _shapes(split)
    agreed = (type_tag == first_tag) & (first_tag == second_tag) & whole
    us = split["us"]
    return pl.DataFrame({"type": type_, "first": first, "second": second, "shape": shape}).with_columns(
        us=pl.when(agreed.fill_null(False) & us.abs().le(LONGEST_US)).then(us), stamp=_stamps(split)
    )


def _read(texts: pl.Series, reading: Callable[[str], tuple[str | None, int]]) -> tuple[pl.Series, pl.Series]:
    """What a reading makes of each distinct text, for every row: a text and a tag."""
    distinct = texts.unique().drop_nulls()
    found = [reading(t) for t in distinct.cast(pl.String)]
    values = pl.Series([f[0] for f in found], dtype=pl.String).cast(_CAT)
    tags = pl.Series([f[1] for f in found], dtype=pl.UInt8)
    return _spread(texts, distinct, values), _spread(texts, distinct, tags)


def _spread(texts: pl.Series, distinct: pl.Series, values: pl.Series) -> pl.Series:
    """values, one a distinct text, laid out over all rows by the texts' codes."""
    codes = distinct.to_physical()
    highest = codes.max()
    size = highest + 1 if isinstance(highest, int) else 1
    index = pl.zeros(size, pl.UInt32, eager=True).scatter(codes, pl.int_range(codes.len(), eager=True))
    return values.gather(index.gather(texts.to_physical()))


def _type(text: str) -> tuple[str | None, int]:
    found = _value(text, '"event":{"type":')
    return found, TIMED.index(found) + 1 if found in TIMED else 0


def _first(text: str) -> tuple[str | None, int]:
    for tag, key in ((1, '"data":{"op_name":'), (2, '"data":{"parent_op_name":')):
        if (found := _value(text, key)) is not None:
            return found, tag
    return None, 0


def _second(text: str) -> tuple[str | None, int]:
    if (found := _value(text, '"internal_kernel_name":')) is not None:
        return found, 2
    return None, 1 if _value(text, '"backend":') is not None else 0


def _value(text: str, key: str) -> str | None:
    """The JSON string behind a key."""
    if not text.startswith(key):
        return None
    try:
        value = json.loads(text[len(key) :])
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _shapes(split: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The matmul shape of every row, and whether what stands behind the duration could be read."""
    tails = split["c8"].is_not_null().arg_true()
    texts = split[tails].select(pl.concat_str(*_TAIL, separator=",", ignore_nulls=True).cast(_CAT))["c8"]
    shapes, good = _read(texts, _shape)
    at = pl.repeat(None, split.height, dtype=pl.UInt32, eager=True)
    at = at.scatter(tails, pl.int_range(tails.len(), eager=True))
    return shapes.gather(at), good.gather(at).fill_null(1) == 1


def _shape(text: str) -> tuple[str | None, int]:
    try:
        data = json.loads("{" + text.removesuffix("}}"))["data"]
    except (ValueError, KeyError, RecursionError):
        return None, 0
    return shape_of(data), 1 if isinstance(data, dict) else 0


def _stamps(split: pl.DataFrame) -> pl.Series:
    """The lines' times as ns since 1970."""
    texts = split["second"]
    distinct = texts.unique().drop_nulls()
    seconds = pl.Series([seconds_of(t) for t in distinct.cast(pl.String)], dtype=pl.Int64)
    power = pl.Series([10 ** (9 - places) for places in range(10)], dtype=pl.Int64)
    scale = power.gather(split["places"].clip(0, 9))
    fraction = pl.select(
        pl.when(split["places"] == 0).then(0).otherwise(split["fraction"] * scale)
    ).to_series()
    return _spread(texts, distinct, seconds) + fraction


def _rest(others: pl.DataFrame, types: pl.Series) -> pl.Series:
    """The data of events that are not timed, as JSON; null where the line did not fit into the fields."""
    fields = (_FIRST, _SECOND, "third", *_TAIL)
    text = others.select(pl.concat_str(*fields, separator=",", ignore_nulls=True))[_FIRST]
    whole = (
        text.str.starts_with('"data":{') & text.str.ends_with("}}}") & others[_TAIL[-1]].is_null()
        & types.is_not_null() & ~types.cast(pl.String).is_in(TIMED)
    )  # fmt: skip
    data = text.str.strip_prefix('"data":').str.head(-2)
    distinct = data.filter(whole).unique()
    good = distinct.filter(pl.Series([_is_object(t) for t in distinct], dtype=pl.Boolean))
    return pl.select(pl.when(whole & data.is_in(good.implode())).then(data)).to_series()


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def lines_at(source: Input, rows: list[int]) -> list[tuple[int, int, bytes]]:
    """Some lines as they stand, each with its row; their offsets are not known."""
    if not rows:
        return []
    lines = pl.scan_csv(
        source, separator="\x01", has_header=False, quote_char=None, schema={"line": pl.String()}
    )
    if len(rows) <= _FEW:
        found = [(row, lines.slice(row, 1).collect(engine="streaming")["line"].to_list()) for row in rows]
        return [(row, 0, (text[0] or "").encode()) for row, text in found if text]
    wanted = pl.Series(rows, dtype=pl.UInt32).implode()
    kept = lines.with_row_index("row").filter(pl.col("row").is_in(wanted)).collect(engine="streaming")
    return [(row, 0, (line or "").encode()) for row, line in kept.iter_rows()]
