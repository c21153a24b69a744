"""The patient way into a metallic file: line by line, any key order, any prefix, other output between."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from capture.importlog import Log

OP: Final = "GpuOpCompleted"
INTERNAL: Final = "InternalKernelCompleted"
TIMED: Final = (OP, INTERNAL)

_RAW: Final = {
    "key": pl.UInt32(),  # which of the keys
    "us": pl.Int64(),
    "stamp": pl.Int64(),  # ns since 1970
    "rest": pl.UInt32(),  # which of the rests
}

PREFIX: Final = b"METRIC: "
LONGEST_US: Final = (1 << 62) // 1000
_YEARS: Final = range(1678, 2262)  # whose nanoseconds 64 bits hold
_SOME_US: Final = 987_654_321
_DIMENSIONS: Final = ("op", "batch", "m", "n", "k", "tA", "tB")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?")


class Key(NamedTuple):
    """What many events have in common."""

    type: str
    first: str | None = None  # op name, or the parent of an internal kernel
    second: str | None = None  # name of an internal kernel
    shape: str | None = None  # of a matmul, as the analyzer writes it, with its backend


class Raw(NamedTuple):
    """The events of a file: a row for each, in line order, and what the rows tell by number."""

    rows: pl.DataFrame
    keys: list[Key]
    rests: pl.Series  # the data of events that have no duration, as JSON


class Row(NamedTuple):
    """One event."""

    key: Key
    us: int | None
    stamp: int | None
    rest: str | None = None


class _Event(msgspec.Struct):
    type: str
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class _Line(msgspec.Struct):
    event: _Event
    timestamp: Any = None


_decode: Final = msgspec.json.Decoder(_Line).decode


class Rows:
    """Raw rows by column, as lines are read; they may stand behind others."""

    def __init__(self, before: Raw | None = None) -> None:
        self.before = before
        self.keys = {key: number for number, key in enumerate(before.keys)} if before else {}
        self.first_rest = before.rests.len() if before else 0
        self.rests: list[str] = []
        self.columns: dict[str, list[int | None]] = {c: [] for c in _RAW}

    def add(self, row: Row) -> None:
        key = self.keys.setdefault(row.key, len(self.keys))
        rest = None if row.rest is None else self.first_rest + len(self.rests)
        self.rests += [] if row.rest is None else [row.rest]
        for values, value in zip(self.columns.values(), (key, row.us, row.stamp, rest), strict=True):
            values.append(value)

    def raw(self) -> Raw:
        rows, rests = pl.DataFrame(self.columns, schema=_RAW), pl.Series(self.rests, dtype=pl.String)
        if self.before is not None:
            rows = pl.concat([self.before.rows, rows])
            rests = pl.concat([self.before.rests, rests])
        return Raw(rows, list(self.keys), rests)


def read(lines: Iterable[tuple[int, bytes]], log: Log) -> Raw:
    """Read every line that is an event as a raw row; the others are counted."""
    rows = Rows()
    for at, line, last in _marked_last(lines):
        row = row_of(line, at, log, last=last)
        if row is not None:
            rows.add(row)
    return rows.raw()


def row_of(line: bytes, at: int | None, log: Log, *, last: bool = False) -> Row | None:
    """Read one line as a raw row; None for what is no event, which is noted in the log."""
    body = line.strip(b" \t\r\n\0").removeprefix(b"\xef\xbb\xbf").removeprefix(PREFIX)
    if not body:
        return None
    if not body.startswith(b"{"):
        log.note("other_lines", "lines between the events that are none", at=at)
        return None
    log.read += 1
    try:
        record = _parsed(body, at, log)
        return _row(record)
    except _BadDurationError:
        log.drop("bad_duration", "durations that are no number of microseconds", at=at)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        if last and not body.endswith(b"}"):
            log.drop("cut_line", "the last line is cut off", at=at)
        else:
            log.drop("bad_line", "lines that are no metallic event", at=at)
    return None


def _parsed(body: bytes, at: int | None, log: Log) -> _Line:
    try:
        return _decode(body)
    except UnicodeDecodeError:
        mended = _decode(body.decode("utf-8", "replace").encode())
        log.repair("bad_utf8", "bytes that are no UTF-8 stand as �", at=at)
        return mended


def _marked_last(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    before: tuple[int, bytes] | None = None
    for line in lines:
        if before is not None:
            yield *before, False
        before = line
    if before is not None:
        yield *before, True


class _BadDurationError(ValueError):
    """A duration that is no number."""


def _row(line: _Line) -> Row:
    type_, data, stamp = line.event.type, line.event.data, stamp_of(line.timestamp)
    if type_ == OP and isinstance(name := data.get("op_name"), str):
        return Row(Key(type_, name, None, shape_of(data.get("data"))), _us(data), stamp)
    if type_ == INTERNAL and isinstance(name := data.get("internal_kernel_name"), str):
        return Row(Key(type_, str(data.get("parent_op_name", "")), name), _us(data), stamp)
    if type_ in TIMED:
        raise ValueError("has no name")
    return Row(Key(type_), None, stamp, json.dumps(data, separators=(",", ":"), sort_keys=True))


def key_of(before: str, behind: str) -> Key | None:
    """Return the key of a line with a duration, by what stands on both sides of its number."""
    try:
        row = _row(_decode(f"{before}{_SOME_US}{behind}"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return row.key if row.us == _SOME_US else None


def is_line(text: str) -> bool:
    """Return whether a text is a line with an event, read as JSON."""
    try:
        _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def type_of(line: str) -> str | None:
    try:
        return _decode(line).event.type
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _us(data: dict[str, Any]) -> int:
    us = data.get("duration_us")
    if isinstance(us, bool) or not isinstance(us, int) or abs(us) > LONGEST_US:
        raise _BadDurationError
    return us


def shape_of(data: Any) -> str | None:
    """Return a matmul's operands as the analyzer names them, then its backend; None for what is no matmul."""
    if not isinstance(data, dict) or "op" not in data:
        return None
    extras = sorted(k for k in data if k not in (*_DIMENSIONS, "backend"))
    parts = [f"{k}={data.get(k, '?')}" for k in (*_DIMENSIONS, *extras)]
    return " | ".join([*parts, f"backend={data.get('backend', 'unknown')}"])


def stamp_of(text: Any) -> int | None:
    """Return an RFC 3339 time in UTC as ns since 1970."""
    match = _STAMP.fullmatch(text) if isinstance(text, str) else None
    seconds = seconds_of(match[1]) if match else None
    return None if match is None or seconds is None else seconds + int((match[2] or "0").ljust(9, "0"))


@lru_cache(maxsize=1024)
def seconds_of(text: str) -> int | None:
    """Return a time up to its second as ns since 1970; None for none, or beyond 64 bits."""
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000 if moment.year in _YEARS else None
