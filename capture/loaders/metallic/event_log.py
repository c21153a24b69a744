"""metallic's event log: one JSON event per line; several runs may be appended to one file.

Read: every event type; unknown ones are counted in the table of event types. Not read: the `-latency.jsonl`
and `-memory.jsonl` files of older versions, which contain screen rows.
metallic: https://github.com/cchance27/test-burn
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders._json_document import decode_or_none
from capture.loaders.metallic import compiled_scan
from capture.loaders.metallic import untimed_events as untimed
from capture.loaders.metallic.line_reader import RawEvents, build_raw_events, parse_event, read_events
from capture.loaders.metallic.timed_events import build_timed_events, join_events
from capture.run import Run, build_run, with_log
from capture.source import Head, Source

FORMAT: Final = "metallic JSONL"
PRODUCER: Final = "metallic (test-burn), an LLM engine in Rust on Metal"
HOWTO: Final = "METALLIC_METRICS_JSONL_PATH=prof.jsonl METALLIC_RECORD_CB_GPU_TIMING=1 metallic …"

STARTS_GUESS: Final = "start = time of the log line minus the duration; lines may be late by about 1 ms"

_PAUSE_NS: Final = 60_000_000_000
_CLOCK_STEP_BACK_NS: Final = 1_000_000_000
_HEADERS: Final = ("GgufFileMmap", "ModelWeights")
_MAX_ODD_SHARE: Final = 0.05


def sniff(head: Head) -> bool:
    """Accept an input whose first JSON object is a metallic event."""
    for text in head.lines[:200]:
        text = text.strip().removeprefix("METRIC: ")
        if text.startswith("{"):
            return _is_metallic_event(text)
    return False


def _is_metallic_event(text: str) -> bool:
    record = decode_or_none(msgspec.json.decode, text)
    if record is None:  # a first line that is longer than the head, or cut off
        return text.startswith('{"timestamp":"') and '"event":{"type":"' in text[:400]
    event = record.get("event")
    return isinstance(event, dict) and "timestamp" in record and "type" in event and "data" in event


def load(source: Source) -> list[Run]:
    raw = _scan_log(source)
    if raw is None:
        raw = read_events(_iter_lines(source), source.log)
    if raw.rows.is_empty():
        raise UnreadableError("contains no complete metallic event", where=source.label)
    cuts = [0, *_find_run_starts(raw), raw.rows.height]
    spans = [(begin, end - begin) for begin, end in pairwise(cuts) if begin < end]
    parts = [raw._replace(rows=raw.rows.slice(*span)) for span in spans]
    if len(parts) > 1:
        message = "the file contains several runs, one after the other"
        source.log.note("appended_runs", message, count=len(parts))
    names = ["metallic"] if len(parts) == 1 else [f"metallic #{i}" for i in range(1, len(parts) + 1)]
    runs = [_build_run(name, part, source.log) for name, part in zip(names, parts, strict=True)]
    return [with_log(run, source.log) for run in runs]


def _iter_lines(source: Source) -> Iterator[tuple[int, bytes]]:
    if source.head.raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ((0, line.encode("utf-8", "replace")) for line in source.read_text().split("\n"))
    return source.iter_lines()


def _scan_log(source: Source) -> RawEvents | None:
    """Read all rows with the C scanner; None if it cannot, or if too many lines do not fit."""
    if not compiled_scan.can_scan(source.head.raw):
        return None
    log_input = source.read() if source.is_gzipped else source.path
    scan = compiled_scan.scan(log_input)
    if scan is None:
        return None
    raw, odd_rows = scan
    if len(odd_rows) > max(100, _MAX_ODD_SHARE * raw.rows.height):
        return None
    source.log.read += raw.rows.height - len(odd_rows)
    lines = compiled_scan.read_lines(log_input, odd_rows) if odd_rows else []
    return _replace_odd_rows(raw, lines, source.log) if lines else raw


def _replace_odd_rows(raw: RawEvents, lines: list[tuple[int, bytes]], log: Log) -> RawEvents:
    """Read odd lines one by one: replace their rows, or remove those that are not events."""
    height = raw.rows.height
    parsed = [(row, parse_event(line, None, log, last=row == height - 1)) for row, line in lines]
    events = {row: event for row, event in parsed if event is not None}
    positions = pl.int_range(height, eager=True)
    positions = positions.scatter(list(events), pl.int_range(height, height + len(events), eager=True))
    if len(events) < len(parsed):
        dropped_rows = pl.Series([row for row, event in parsed if event is None], dtype=pl.Int64)
        positions = positions.filter(~pl.int_range(height, eager=True).is_in(dropped_rows.implode()))
    joined = build_raw_events(events.values(), raw)
    return joined._replace(rows=joined.rows[positions])


def _find_run_starts(raw: RawEvents) -> list[int]:
    """Find where runs were appended: weights are loaded again, time goes back, or after a long pause."""
    step = pl.col("timestamp_ns").diff()
    headers = [number for number, key in enumerate(raw.keys) if key.type in _HEADERS]
    candidates = (
        raw.rows.lazy()
        .select("key", jump=(step < -_CLOCK_STEP_BACK_NS) | (step > _PAUSE_NS))
        .with_row_index("row")
        .filter(pl.col("jump").fill_null(False) | pl.col("key").is_in(headers))
        .collect()
    )
    cuts: list[int] = []
    headers_in_run: set[str] = set()
    for row, key, jump in candidates.iter_rows():
        kind = raw.keys[key].type
        if jump or kind in headers_in_run:
            cuts.append(row)
            headers_in_run = set()
        if kind in _HEADERS:
            headers_in_run.add(kind)
    return cuts


def _build_run(name: str, raw: RawEvents, log: Log) -> Run:
    others = untimed.select_untimed(raw)
    types = untimed.count_event_types(raw)
    untimed.note_unknown_types(types, log)
    tables = {"event_types": types, **untimed.build_tables(others)}
    parts = build_timed_events(raw)
    memory, marks = untimed.build_memory_rows(others), untimed.build_marks(tables)
    starts = (parts.times["t"].min(), raw.rows["timestamp_ns"].min())
    start = min((t for t in starts if isinstance(t, int)), default=0)
    events = join_events(parts, [_to_categoricals(memory), _to_categoricals(marks)], start)
    meta, tables = _build_meta(others, parts.table), {**tables, "names": parts.names}
    return build_run(name, meta, events, log, tables, enriched=True)


def _to_categoricals(frame: pl.DataFrame) -> pl.DataFrame:
    text = [c for c, t in frame.schema.items() if t == pl.String]
    return frame.with_columns(pl.col(c).cast(pl.Categorical()) for c in text)


def _build_meta(rows: pl.DataFrame, events: pl.DataFrame) -> dict[str, Any]:
    weights = untimed.decode_events(rows, "ModelWeights")
    mapped = untimed.decode_events(rows, "GgufFileMmap")
    per_op = bool(((events["lens"] == "wall") & events["layer"].is_not_null()).any())
    meta: dict[str, Any] = {
        "producer": "metallic",
        "lens": "wall" if per_op else "gpu",
        "profiled": per_op,
        "guess": [STARTS_GUESS],
        "weights_bytes": weights[-1][2].get("total_bytes") if weights else None,
        "file_bytes": mapped[-1][2].get("size_bytes") if mapped else None,
    }
    return {k: v for k, v in meta.items() if v is not None}
