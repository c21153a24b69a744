"""metallic's own recording: one JSON event a line, several runs appended to one file.

Read: every event type; those without a meaning here are counted in the table of event types. Not read: the
`-latency.jsonl` and `-memory.jsonl` files of older versions, which are rows of a screen.
metallic: https://github.com/cchance27/test-burn
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders.metallic import compiled_scan, fast_scan
from capture.loaders.metallic import patient_scan as line_reader
from capture.loaders.metallic import tables as untimed
from capture.loaders.metallic.events import timed, whole
from capture.loaders.metallic.patient_scan import Raw, Rows
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT: Final = "metallic JSONL"
PRODUCER: Final = "metallic (test-burn), an LLM engine in Rust on Metal"
HOWTO: Final = "METALLIC_METRICS_JSONL_PATH=prof.jsonl METALLIC_RECORD_CB_GPU_TIMING=1 metallic …"

STARTS: Final = "starts are the time of the log line less the duration; lines are late by up to about 1 ms"

_GAP_NS: Final = 60_000_000_000
_BACK_NS: Final = 1_000_000_000
_HEADERS: Final = ("GgufFileMmap", "ModelWeights")
_ODD_AT_MOST: Final = 0.05


def sniff(head: Head) -> bool:
    """Return whether the first JSON object of the input is a metallic event."""
    for text in head.lines[:200]:
        text = text.strip().removeprefix("METRIC: ")
        if text.startswith("{"):
            return _is_event(text)
    return False


def _is_event(text: str) -> bool:
    try:
        record = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # a first line that is longer than the head, or cut off
        return text.startswith('{"timestamp":"') and '"event":{"type":"' in text[:400]
    event = record.get("event") if isinstance(record, dict) else None
    return isinstance(event, dict) and "timestamp" in record and "type" in event and "data" in event


def load(source: Source) -> list[Run]:
    raw = _scanned(source)
    if raw is None:
        raw = line_reader.read(_lines(source), source.log)
    if raw.rows.is_empty():
        raise UnreadableError("holds no whole metallic event", where=source.label)
    parts = _split_runs(raw)
    if len(parts) > 1:
        source.log.note("appended_runs", "the file holds several runs, one after the other", count=len(parts))
    names = ["metallic"] if len(parts) == 1 else [f"metallic #{i}" for i in range(1, len(parts) + 1)]
    runs = [_run(name, part, source.log) for name, part in zip(names, parts, strict=True)]
    return [with_log(run, source.log) for run in runs]


def _lines(source: Source) -> Iterator[tuple[int, bytes]]:
    if source.head.raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ((0, line.encode("utf-8", "replace")) for line in source.text().split("\n"))
    return source.lines()


def _scanned(source: Source) -> Raw | None:
    """Read all rows by the fast way; None where the file is not laid out for it."""
    if not fast_scan.fits(source.head.raw):
        return None
    data = source.read() if source.gzipped else source.path
    try:
        raw, odd = compiled_scan.scan(data) or fast_scan.scan(data)
    except pl.exceptions.PolarsError:
        return None
    if len(odd) > max(100, _ODD_AT_MOST * raw.rows.height):
        return None
    source.log.read += raw.rows.height - len(odd)
    return _with_lines(raw, compiled_scan.lines_at(data, odd), source.log) if odd else raw


def _with_lines(raw: Raw, lines: list[tuple[int, bytes]], log: Log) -> Raw:
    """Return the rows with some read line by line, or taken out where their line is no event."""
    height = raw.rows.height
    mended, kept = Rows(raw), []
    for row, line in lines:
        read = line_reader.row_of(line, None, log, last=row == height - 1)
        if read is not None:
            kept.append(row)
            mended.add(read)
    place = pl.int_range(height, eager=True)
    place = place.scatter(kept, pl.int_range(height, height + len(kept), eager=True))
    gone = pl.Series(sorted({row for row, _ in lines} - set(kept)), dtype=pl.Int64)
    if gone.len():
        place = place.filter(~pl.int_range(height, eager=True).is_in(gone.implode()))
    whole = mended.raw()
    return whole._replace(rows=whole.rows[place])


def _split_runs(raw: Raw) -> list[Raw]:
    """Split an appended file: weights loaded again, a clock going back, or a long pause start a run."""
    cuts = [0, *_cuts(raw), raw.rows.height]
    return [raw._replace(rows=raw.rows.slice(a, b - a)) for a, b in pairwise(cuts) if a < b]


def _cuts(raw: Raw) -> list[int]:
    step = pl.col("stamp").diff()
    headers = [number for number, key in enumerate(raw.keys) if key.type in _HEADERS]
    marks = (
        raw.rows.lazy()
        .select("key", jump=(step < -_BACK_NS) | (step > _GAP_NS))
        .with_row_index("row")
        .filter(pl.col("jump").fill_null(False) | pl.col("key").is_in(headers))
        .collect()
    )
    cuts: list[int] = []
    seen: set[str] = set()
    for row, key, jump in marks.iter_rows():
        kind = raw.keys[key].type
        if jump or kind in seen:
            cuts.append(row)
            seen = set()
        if kind in _HEADERS:
            seen.add(kind)
    return cuts


def _run(name: str, raw: Raw, log: Log) -> Run:
    others = untimed.others(raw)
    types = untimed.event_types(raw)
    untimed.note_unknown(types, log)
    tables = {"event_types": types, **untimed.tables(others)}
    parts = timed(raw)
    memory, marks = untimed.memory(others), untimed.marks(tables)
    start = min(
        (t for t in (parts.times["t"].min(), raw.rows["stamp"].min()) if isinstance(t, int)), default=0
    )
    events = whole(parts, [_as_events(memory), _as_events(marks)], start)
    return build(
        name, _meta(others, parts.table), events, log, {**tables, "names": parts.names}, enriched=True
    )


def _as_events(frame: pl.DataFrame) -> pl.DataFrame:
    text = [c for c, t in frame.schema.items() if t == pl.String]
    return frame.with_columns(pl.col(c).cast(pl.Categorical()) for c in text)


def _meta(rows: pl.DataFrame, events: pl.DataFrame) -> dict[str, Any]:
    weights = untimed.of_type(rows, "ModelWeights")
    mapped = untimed.of_type(rows, "GgufFileMmap")
    per_op = bool(((events["lens"] == "wall") & events["layer"].is_not_null()).any())
    meta: dict[str, Any] = {
        "producer": "metallic",
        "lens": "wall" if per_op else "gpu",
        "profiled": per_op,
        "guess": [STARTS],
        "weights_bytes": weights[-1][2].get("total_bytes") if weights else None,
        "file_bytes": mapped[-1][2].get("size_bytes") if mapped else None,
    }
    return {k: v for k, v in meta.items() if v is not None}
