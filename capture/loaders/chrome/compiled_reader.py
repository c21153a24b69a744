"""Read Chrome traces with the C scanner, on several threads.

It reads plain JSON in any layout, and refuses a file with anything else in it, or without its end. A large
file is split where events seem to begin; a split is confirmed when the part before it ends exactly there.
"""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec
import polars as pl

from capture.dense_lookup import put_columns
from capture.import_log import Log
from capture.loaders._scan import load_scanner, read_arrow_table
from capture.loaders.chrome.trace_model import (
    DEVICE_CATEGORIES,
    KERNEL_CATEGORIES,
    NO_END,
    ONNX_SESSION,
    OPERATOR_CATEGORIES,
    REPEATED,
    RUNTIME_CATEGORIES,
    UNNAMED,
    VALUED,
    CompleteEvents,
    RefusedError,
    Trace,
    TraceEvent,
    decode_json_string,
    format_thread,
    note_missing_durations,
    parse_times,
)
from capture.source import Source

PIECE_BYTES: Final = 1 << 18  # scanned at a time: fits into the cache of a core
MIN_PART_BYTES: Final = 1 << 22  # per thread
BORDER_WINDOW_BYTES: Final = 1 << 20  # in which a border between two events is searched
MAX_TAIL_BYTES: Final = 1 << 26  # after the list of events

_EVENTS_DECODER: Final = msgspec.json.Decoder(list[TraceEvent])
_ARRAY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST: Final = re.compile(rb"\s*\[")
_FIRST_KEY: Final = re.compile(rb'\s*\{\s*("\w{1,40}")\s*:')
_PLACEHOLDER: Final = ["the events"]  # for the list of events in the header
_END: Final = 1 << 62
# what to read from the events of a category, as bits of the scanner
_CORRELATION, _EXTERNAL_ID, _OPERANDS, _LAUNCH_CONFIG = 1, 2, 4, 8
_FIELDS: Final = (
    *((c.encode(), _CORRELATION | _EXTERNAL_ID | _LAUNCH_CONFIG * (c in KERNEL_CATEGORIES))
      for c in DEVICE_CATEGORIES),
    *((c.encode(), _CORRELATION) for c in RUNTIME_CATEGORIES),
    *((c.encode(), _EXTERNAL_ID | _OPERANDS) for c in OPERATOR_CATEGORIES),
)  # fmt: skip


def read_document(source: Source) -> Trace:
    """Read a trace document; raise RefusedError unless it is plain JSON from start to end."""
    head = source.head.raw
    if ONNX_SESSION in head:
        raise RefusedError("of onnxruntime: the operands of its nodes are read event by event")
    begin = _LIST.match(head) or _ARRAY.search(head)
    if begin is None:
        raise RefusedError("no list of events near the start")
    front = b"" if begin.re is _LIST else head[: begin.end() - 1]
    scan = _FileScan(source, begin.end(), may_lack_end=not front)
    if not scan.has_end:
        source.log.note(*NO_END)
    return _build_trace(scan.parts, _parse_header(front, scan.tail), source.log)


def read_lines(source: Source) -> Trace:
    """Read events written one after the other; raise RefusedError unless they are plain JSON."""
    scan = _FileScan(source, 0, may_lack_end=True, is_lines=True)
    return _build_trace(scan.parts, {}, source.log)


def _parse_header(front: bytes, tail: bytes) -> dict[str, Any]:
    """Parse the keys around the list of events; raise RefusedError if they are broken."""
    if not front:
        if tail.strip(b" \t\r\n"):
            raise RefusedError("text after the list of events")
        return {}
    try:
        text = front + msgspec.json.encode(_PLACEHOLDER) + tail
        document = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        header = {key: msgspec.json.decode(value) for key, value in document.items()}
    except (ValueError, RecursionError):
        raise RefusedError("the header is broken") from None
    if b'"traceEvents"' in tail or header.pop("traceEvents", None) != _PLACEHOLDER:
        raise RefusedError("the list of events is elsewhere")
    if REPEATED.search(front) or REPEATED.search(tail):
        raise RefusedError("the header has a key twice")
    return header


@dataclass
class _FileScan:
    """A scanned file: `parts` are the scanners with its events in order, `tail` the text after the list."""

    source: Source
    begin: int
    may_lack_end: bool  # the list of events may lack its closing bracket, as the format allows
    is_lines: bool = False

    def __post_init__(self) -> None:
        source = self.source
        borders = [self.begin, *([] if source.is_gzipped else self._iter_borders()), source.size]
        self.parts = [self._start_scanner(*part) for part in pairwise(borders)]
        if len(self.parts) == 1:
            tails = [self._scan_part(self.parts[0], self.begin)]
        else:
            with ThreadPoolExecutor(len(self.parts)) as threads:
                tails = list(threads.map(self._scan_part, self.parts, borders))
        # a border is between events only if the part before it ended there
        ends = [part.status()[:2] for part in self.parts[:-1]]
        if ends != [("stopped", border) for border in borders[1:-1]]:
            self.parts = [self._start_scanner(self.begin, source.size)]
            tails = [self._scan_part(self.parts[0], self.begin)]
        self.tail = tails[-1]
        state, _, reason, *_ = self.parts[-1].status()
        self.has_end = state == "ended"
        if not self.has_end and not (self.may_lack_end and state == "reading" and not self.tail):
            raise RefusedError(reason or "the list of events has no end")

    def _start_scanner(self, begin: int, stop: int) -> Any:
        module = load_scanner()
        if module is None:
            raise RefusedError("there is no compiled scanner")
        seed = int.from_bytes(os.urandom(8), "little")
        last = _END if stop == self.source.size else stop
        is_later_part = begin > self.begin
        valued = tuple(word.encode() for word in VALUED)
        return module.Scanner(_FIELDS, valued, seed, begin, last, is_later_part, self.is_lines)

    def _iter_borders(self) -> Iterator[int]:
        """Yield offsets at which events seem to begin, one per additional core."""
        size, head = self.source.size, self.source.head.raw
        parts = min(pl.thread_pool_size(), size // MIN_PART_BYTES)
        first = _FIRST_KEY.match(head, self.begin)
        if parts < 2 or not first:
            return
        between = rb"\}\s*(\{)\s*" if self.is_lines else rb"\}\s*,\s*(\{)\s*"
        border = re.compile(between + re.escape(first[1]) + rb"\s*:")
        with self.source.path.open("rb") as file:
            for part in range(1, parts):
                at = self.begin + (size - self.begin) * part // parts
                file.seek(at)
                if match := border.search(file.read(BORDER_WINDOW_BYTES)):
                    yield at + match.start(1)

    def _scan_part(self, part: Any, begin: int) -> bytes:
        """Feed a scanner from an offset on; return the text after the list of events, if it gets there."""
        if self.source.is_gzipped:
            return self._scan_while_unpacking(part)
        view = memoryview(bytearray(min(PIECE_BYTES, self.source.size + 1)))
        with self.source.path.open("rb", buffering=0) as file:
            file.seek(begin)
            while (n := file.readinto(view)) and part.feed(view[:n]):
                pass
            part.feed(b"")
            state = part.status()[0]
            tail = b"" if state in ("stopped", "failed") else part.rest() + file.read(MAX_TAIL_BYTES)
        if len(tail) > MAX_TAIL_BYTES:
            raise RefusedError("much text after the list of events")
        return tail

    def _scan_while_unpacking(self, part: Any) -> bytes:
        """Scan each piece while the next one is unpacked; return the text after the list of events."""
        skip, tail = self.begin, b""
        with ThreadPoolExecutor(1) as thread:
            is_open = thread.submit(lambda: True)
            for chunk in self.source.iter_chunks():
                piece, skip = memoryview(chunk)[skip:], max(0, skip - len(chunk))
                if is_open.result():
                    is_open = thread.submit(part.feed, piece)
                elif part.status()[0] == "ended" and len(tail) < MAX_TAIL_BYTES:
                    tail += piece
                else:
                    raise RefusedError(part.status()[2] or "much text after the list of events")
            if is_open.result():
                part.feed(b"")
        return bytes(part.rest()) + tail


def _build_trace(parts: Sequence[Any], header: dict[str, Any], log: Log) -> Trace:
    """Build a `Trace` of the scanned parts; raise RefusedError for invalid events of other phases."""
    try:
        others = [event for part in parts for event in _EVENTS_DECODER.decode(b"[" + part.others() + b"]")]
    except (ValueError, RecursionError):
        raise RefusedError("an invalid event") from None
    read, without_phase = (sum(part.status()[at] for part in parts) for at in (3, 4))
    log.read += read
    if without_phase:
        log.note("no_phase", "records without a phase (ph)", count=without_phase)
    return Trace(_concat_parts(parts, log), others, header)


def _concat_parts(parts: Sequence[Any], log: Log) -> CompleteEvents:
    rows, odd_times, labels, row_count, label_count = [], [], [], 0, 0
    for part in parts:
        texts = read_arrow_table(part.texts())["text"].cast(pl.Categorical())
        part_rows, part_labels, times = (read_arrow_table(t()) for t in (part.rows, part.labels, part.odd))
        args = texts[part_rows["args"]].alias("args")
        rows.append(put_columns(part_rows, args, part_rows["label"] + label_count))
        odd_times.append(put_columns(times, times["row"] + row_count))
        labels.append(part_labels)
        row_count, label_count = row_count + part_rows.height, label_count + part_labels.height
    codes, distinct = _merge_labels(pl.concat(labels, how="diagonal"))
    frame, odd = (pl.concat(frames, how="diagonal") for frames in (rows, odd_times))
    frame.columns = ["external_id" if name == "external" else name for name in frame.columns]
    frame = _replace_odd_times(frame, odd, log)
    return CompleteEvents(put_columns(frame, codes[frame["label"]].alias("label")), distinct)


def _merge_labels(raw: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Merge equal labels of the parts (cat, name, pid, tid as written): the code of each, and those kept.

    Tuples take a tenth of what frames take for the few labels of a small trace: 1 ms of its 18.
    """
    threads: dict[tuple[str, str], str] = {}
    code_by_label: dict[tuple[str | None, str, str], int] = {}
    codes = []
    columns = (raw[column].to_list() for column in ("cat", "name", "pid", "tid"))
    for cat, name, pid, tid in zip(*columns, strict=True):
        if (pid, tid) not in threads:
            threads[pid, tid] = format_thread(pid.encode(), tid.encode())
        if name is not None and "\\" in name:
            name = decode_json_string(f'"{name}"')
        label = (cat, UNNAMED if name is None else name, threads[pid, tid])
        codes.append(code_by_label.setdefault(label, len(code_by_label)))
    schema = dict.fromkeys(("cat", "name", "thread"), pl.String)
    distinct = pl.DataFrame(list(code_by_label), schema=schema, orient="row")
    return pl.Series(codes, dtype=pl.UInt32), distinct


def _replace_odd_times(rows: pl.DataFrame, odd_times: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Parse the times that the scanner left as texts (row, ts, dur) as the lenient reader does."""
    if odd_times.is_empty():
        note_missing_durations(rows["dur"].null_count(), log)
        return rows
    rows = rows.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
    ascii_only = pl.col("ts", "dur").str.replace_all(r"[^[:ascii:]]", "?")  # other digits are not numbers
    odd_times = odd_times.with_columns(ascii_only)
    plain = rows.join(odd_times, on="row", how="anti", maintain_order="left")
    parsed = rows.drop("t", "dur").join(parse_times(odd_times, log), on="row", maintain_order="left")
    note_missing_durations(plain["dur"].null_count(), log)
    return pl.concat([plain, parsed.select(rows.columns)]).sort("row").drop("row")
