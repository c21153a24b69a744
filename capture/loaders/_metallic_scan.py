"""The fast way into a metallic file: lines split at commas by polars, the few distinct texts read as JSON.

The engine writes the keys of every line in one order, so type, name and duration stand in the same fields of
every line. Whatever does not fit this layout is handed back by its row, for the line reader.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import polars as pl

from capture.loaders._metallic_lines import INTERNAL, LONGEST_US, OP, RAW, TIMED, seconds_of, shape_of

_FIELDS: Final = 18
_STAMP, _TYPE, _FIRST, _SECOND, _THIRD = (f"c{i}" for i in (0, 4, 5, 6, 7))
_TAIL: Final = [f"c{i}" for i in range(8, _FIELDS)]
_DISTINCT: Final = (_TYPE, _FIRST, _SECOND, *_TAIL)
_HEAD: Final = len('{"timestamp":"')
_FRACTION: Final = len('{"timestamp":"2025-12-23T10:15:30')
_CAT: Final = pl.Categorical()
_FEW: Final = 8
_TIMED: Final = pl.Series(TIMED, dtype=_CAT)
_BREAKDOWN: Final = r',"(?:forward_pass_)?breakdown":'
_TYPE_KEYS: Final = {'"event":{"type":': 1}
_FIRST_KEYS: Final = {'"data":{"op_name":': 1, '"data":{"parent_op_name":': 2}
_SECOND_KEYS: Final = {'"backend":': 1, '"internal_kernel_name":': 2}
_LINE: Final = re.compile(rb'\{"timestamp":"[^"]{20,30}","span_id":[^,]*,"parent_span_id":[^,]*,"span_name":')

Input = Path | bytes


class Scanned(NamedTuple):
    """One raw row a line, in line order, and the rows whose lines must be read again."""

    rows: pl.DataFrame
    odd: list[int]  # nothing is known of these
    brief: list[int]  # of these all but the breakdown


def fits(head: bytes) -> bool:
    """Whether the first line has the engine's own layout."""
    return _LINE.match(head) is not None


def scan(source: Input) -> Scanned:
    split = _split(source)
    rows = _timed(split)
    others = rows["us"].is_null().arg_true()
    rest, brief = _rest(
        split.select(_FIRST, _SECOND, "third", *_TAIL).filter(rows["us"].is_null()),
        rows["type"].gather(others),
    )
    at = pl.repeat(None, rows.height, dtype=pl.UInt32, eager=True)
    at = at.scatter(others, pl.int_range(others.len(), eager=True))
    rows = rows.with_columns(rest=rest.gather(at)).select(*RAW)
    return Scanned(rows, others.filter(rest.is_null()).to_list(), others.filter(brief).to_list())


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
    type_, _ = _read(split[_TYPE], _TYPE_KEYS)
    first, first_tag = _read(split[_FIRST], _FIRST_KEYS)
    second, second_tag = _read(split[_SECOND], _SECOND_KEYS)
    second = pl.select(pl.when(second_tag == 2).then(second)).to_series()
    type_tag = pl.select(pl.when(type_ == OP).then(1).when(type_ == INTERNAL).then(2)).to_series()
    shape, whole = _shapes(split)
    agreed = (type_tag == first_tag) & (first_tag == second_tag) & whole
    us = split["us"]
    return pl.DataFrame({"type": type_, "first": first, "second": second, "shape": shape}).with_columns(
        us=pl.when(agreed.fill_null(False) & us.abs().le(LONGEST_US)).then(us), stamp=_stamps(split)
    )


def _read(texts: pl.Series, keys: Mapping[str, int]) -> tuple[pl.Series, pl.Series]:
    """The JSON string behind one of some keys, for every row, and the key's tag."""
    distinct = texts.unique().drop_nulls()
    text = distinct.cast(pl.String)
    values = pl.repeat(None, text.len(), dtype=pl.String, eager=True)
    tags = pl.repeat(None, text.len(), dtype=pl.UInt8, eager=True)
    for key, tag in keys.items():
        has_key = text.str.starts_with(key)
        inner = text.str.slice(len(key) + 1).str.head(-1)
        bare = has_key & text.str.ends_with('"') & ~inner.str.contains(r'["\\]')
        values = values.zip_with(~bare, inner)
        for at in (has_key & ~bare).arg_true():
            values[at] = _decoded(text[at][len(key) :])
        tags = tags.zip_with(~(has_key & values.is_not_null()), pl.repeat(tag, 1, dtype=pl.UInt8, eager=True))
    return _spread(texts, distinct, values.cast(_CAT)), _spread(texts, distinct, tags)


def _decoded(text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _spread(texts: pl.Series, distinct: pl.Series, values: pl.Series) -> pl.Series:
    """values, one a distinct text, laid out over all rows by the texts' codes."""
    codes = distinct.to_physical()
    highest = codes.max()
    size = highest + 1 if isinstance(highest, int) else 1
    index = pl.zeros(size, pl.UInt32, eager=True).scatter(codes, pl.int_range(codes.len(), eager=True))
    return values.gather(index.gather(texts.to_physical()))


def _shapes(split: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """The matmul shape of every row, and whether what stands behind the duration could be read."""
    tails = split["c8"].is_not_null().arg_true()
    behind = split.select(_TAIL).filter(pl.col("c8").is_not_null())
    texts = behind.select(pl.concat_str(_used(behind), separator=",", ignore_nulls=True).cast(_CAT))["c8"]
    distinct = texts.unique()
    found = [_shape(text) for text in distinct.cast(pl.String)]
    shapes = _spread(texts, distinct, pl.Series([f[0] for f in found], dtype=pl.String).cast(_CAT))
    whole = _spread(texts, distinct, pl.Series([f[1] for f in found], dtype=pl.Boolean))
    at = pl.repeat(None, split.height, dtype=pl.UInt32, eager=True)
    at = at.scatter(tails, pl.int_range(tails.len(), eager=True))
    return shapes.gather(at), whole.gather(at).fill_null(True)


def _used(fields: pl.DataFrame) -> list[str]:
    """The fields that any of the lines has."""
    return [c for c in fields.columns if fields[c].null_count() < fields.height] or fields.columns[:1]


def _shape(text: str) -> tuple[str | None, bool]:
    try:
        data = json.loads("{" + text.removesuffix("}}"))["data"]
    except (ValueError, KeyError, RecursionError):
        return None, False
    return shape_of(data), isinstance(data, dict)


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


def _rest(others: pl.DataFrame, types: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The data of events that are not timed, as JSON: null where the line did not fit into the fields.

    A breakdown never fits; its event is told without it, and marked.
    """
    text = others.select(pl.concat_str(others.columns, separator=",", ignore_nulls=True))[_FIRST]
    fitting = text.str.starts_with('"data":{') & types.is_not_null() & ~types.is_in(_TIMED.implode())
    cut = others[_TAIL[-1]].is_not_null()
    whole = fitting & ~cut & text.str.ends_with("}}}")
    brief = fitting & cut & text.str.contains(_BREAKDOWN)
    data = text.str.strip_prefix('"data":')
    data = data.zip_with(~whole, data.str.head(-2))
    numbers = data.filter(brief).str.replace(_BREAKDOWN + ".*", "}")
    data = data.scatter(brief.arg_true(), numbers)
    distinct = data.filter(whole | brief).unique()
    good = distinct.filter(pl.Series([_is_object(t) for t in distinct], dtype=pl.Boolean))
    known = (whole | brief) & data.is_in(good.implode())
    return pl.select(pl.when(known).then(data)).to_series(), brief & known


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def lines_at(source: Input, rows: list[int]) -> list[tuple[int, bytes]]:
    """Some lines as they stand, each with its row."""
    if not rows:
        return []
    lines = pl.scan_csv(
        source, separator="\x01", has_header=False, quote_char=None, schema={"line": pl.String()}
    )
    if len(rows) <= _FEW:
        found = [(row, lines.slice(row, 1).collect(engine="streaming")["line"].to_list()) for row in rows]
        return [(row, (text[0] or "").encode()) for row, text in found if text]
    wanted = pl.Series(rows, dtype=pl.UInt32).implode()
    kept = lines.with_row_index("row").filter(pl.col("row").is_in(wanted)).collect(engine="streaming")
    return [(row, (line or "").encode()) for row, line in kept.iter_rows()]
