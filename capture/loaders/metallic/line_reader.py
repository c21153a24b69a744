"""Read a metallic log line by line: any key order, any prefix, foreign output between events."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from capture.import_log import Log
from capture.loaders._json_document import TOO_DEEP, decode_or_none

OP: Final = "GpuOpCompleted"
INTERNAL: Final = "InternalKernelCompleted"
TIMED: Final = (OP, INTERNAL)

_RAW_SCHEMA: Final = {
    "key": pl.UInt32(),  # index into keys
    "duration_us": pl.Int64(),
    "timestamp_ns": pl.Int64(),  # ns since 1970
    "payload": pl.UInt32(),  # index into payloads
}

PREFIX: Final = b"METRIC: "
MAX_DURATION_US: Final = (1 << 62) // 1000
_YEARS: Final = range(1678, 2262)  # whose nanoseconds fit 64 bits
_PROBE_US: Final = 987_654_321
_DIMENSIONS: Final = ("op", "batch", "m", "n", "k", "tA", "tB")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?")


class EventKey(NamedTuple):
    """What many events share."""

    type: str
    op_name: str | None = None  # of an internal kernel: its parent op
    internal_name: str | None = None  # of the internal kernel
    shape: str | None = None  # of a matmul, as the analyzer prints it, with its backend


class RawEvents(NamedTuple):
    """The events of a log, one row each, in line order; rows refer to keys and payloads by index."""

    rows: pl.DataFrame
    keys: list[EventKey]
    payloads: pl.Series  # data of events without a duration, as JSON


class ParsedEvent(NamedTuple):
    """One event of a log."""

    key: EventKey
    duration_us: int | None
    timestamp_ns: int | None
    payload: str | None = None


class _EventFields(msgspec.Struct):
    type: str
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class _LineFields(msgspec.Struct):
    event: _EventFields
    timestamp: Any = None


_decode_line: Final = msgspec.json.Decoder(_LineFields).decode


def build_raw_events(events: Iterable[ParsedEvent], before: RawEvents | None = None) -> RawEvents:
    """Build the rows of parsed events, behind existing rows if there are any."""
    keys = {key: number for number, key in enumerate(before.keys)} if before else {}
    first_payload = before.payloads.len() if before else 0
    texts: list[str] = []
    columns: dict[str, list[int | None]] = {column: [] for column in _RAW_SCHEMA}
    for event in events:
        payload = None if event.payload is None else first_payload + len(texts)
        texts += [] if event.payload is None else [event.payload]
        row = (keys.setdefault(event.key, len(keys)), event.duration_us, event.timestamp_ns, payload)
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    rows, payloads = pl.DataFrame(columns, schema=_RAW_SCHEMA), pl.Series(texts, dtype=pl.String)
    if before:
        rows, payloads = pl.concat([before.rows, rows]), pl.concat([before.payloads, payloads])
    return RawEvents(rows, list(keys), payloads)


def read_events(lines: Iterable[tuple[int, bytes]], log: Log) -> RawEvents:
    """Read every event; other lines are counted in the log."""
    pairs: Iterable[tuple[Any, Any]] = pairwise(chain(lines, [None]))
    parsed = (parse_event(line, at, log, last=following is None) for (at, line), following in pairs)
    return build_raw_events(event for event in parsed if event is not None)


def parse_event(line: bytes, offset: int | None, log: Log, *, last: bool = False) -> ParsedEvent | None:
    """Parse one line; return None and log the reason if it is not an event."""
    body = line.strip(b" \t\r\n\0").removeprefix(b"\xef\xbb\xbf").removeprefix(PREFIX)
    if not body:
        return None
    if not body.startswith(b"{"):
        log.note("other_lines", "lines between the events that are not events", at=offset)
        return None
    log.read += 1
    try:
        return _build_event(_decode_or_repair(body, offset, log))
    except _BadDurationError:
        log.drop("bad_duration", "durations that are not a number of microseconds", at=offset)
    except RecursionError:
        log.drop(*TOO_DEEP, at=offset)
    except ValueError:
        if last and not body.endswith(b"}"):
            log.drop("cut_line", "the last line is cut off", at=offset)
        else:
            log.drop("bad_line", "lines that are not a metallic event", at=offset)
    return None


def _decode_or_repair(body: bytes, offset: int | None, log: Log) -> _LineFields:
    try:
        return _decode_line(body)
    except UnicodeDecodeError:
        repaired = _decode_line(body.decode("utf-8", "replace").encode())
        log.repair("bad_utf8", "invalid UTF-8 bytes were replaced by �", at=offset)
        return repaired


class _BadDurationError(ValueError):
    """A duration that is not an integer number of microseconds."""


def _build_event(line: _LineFields) -> ParsedEvent:
    event_type, data, stamp = line.event.type, line.event.data, parse_timestamp(line.timestamp)
    if event_type == OP and isinstance(name := data.get("op_name"), str):
        key = EventKey(event_type, name, None, describe_matmul(data.get("data")))
        return ParsedEvent(key, _read_duration_us(data), stamp)
    if event_type == INTERNAL and isinstance(name := data.get("internal_kernel_name"), str):
        key = EventKey(event_type, str(data.get("parent_op_name", "")), name)
        return ParsedEvent(key, _read_duration_us(data), stamp)
    if event_type in TIMED:
        raise ValueError("has no name")
    payload = json.dumps(data, separators=(",", ":"), sort_keys=True)
    return ParsedEvent(EventKey(event_type), None, stamp, payload)


def parse_key(before: str, after: str) -> EventKey | None:
    """Parse the key of a line with a duration from the texts before and after its number."""
    event = decode_or_none(lambda text: _build_event(_decode_line(text)), f"{before}{_PROBE_US}{after}")
    return event.key if event and event.duration_us == _PROBE_US else None


def parse_type(line: str) -> str | None:
    """Return the event type of a line; None if it is not an event."""
    fields = decode_or_none(_decode_line, line)
    return None if fields is None else fields.event.type


def _read_duration_us(data: dict[str, Any]) -> int:
    us = data.get("duration_us")
    if type(us) is not int or abs(us) > MAX_DURATION_US:
        raise _BadDurationError
    return us


def describe_matmul(data: Any) -> str | None:
    """Describe a matmul's operands as the analyzer prints them, then its backend; None if not a matmul."""
    if not isinstance(data, dict) or "op" not in data:
        return None
    extras = sorted(k for k in data if k not in (*_DIMENSIONS, "backend"))
    parts = [f"{k}={data.get(k, '?')}" for k in (*_DIMENSIONS, *extras)]
    return " | ".join([*parts, f"backend={data.get('backend', 'unknown')}"])


def parse_timestamp(text: Any) -> int | None:
    """Parse an RFC 3339 time in UTC as ns since 1970."""
    match = _STAMP.fullmatch(text) if isinstance(text, str) else None
    seconds = parse_seconds(match[1]) if match else None
    return None if match is None or seconds is None else seconds + int((match[2] or "0").ljust(9, "0"))


@lru_cache(maxsize=1024)
def parse_seconds(text: str) -> int | None:
    """Parse a time without fraction as ns since 1970; None if it is invalid or beyond 64 bits."""
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000_000 if moment.year in _YEARS else None
