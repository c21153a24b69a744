"""Read Chrome traces in any JSON layout; a damaged document is repaired event by event."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders._json_document import TOO_DEEP, decode_or_none, is_too_deep
from capture.loaders.chrome.trace_model import (
    FLOW_PHASES,
    NO_END,
    ONNX_DECODER,
    REPEATED,
    STEP_KEY,
    Trace,
    TraceEvent,
    build_complete_events,
    translate_onnx_events,
)
from capture.source import Source

_MAX_BYTES: Final = 1 << 34
PIECE_CHARS: Final = 1 << 20  # of a damaged document that are parsed at once if they are intact

_EVENTS_DECODER: Final = msgspec.json.Decoder(list[TraceEvent])
_EVENT_DECODER: Final = msgspec.json.Decoder(TraceEvent)
_SCANNER: Final = json.JSONDecoder(strict=False)
_PARSE_ERRORS: Final = (ValueError, RecursionError)

_LIST: Final = re.compile(rb"\s*\[")
_ARRAY: Final = re.compile(r'"traceEvents"\s*:\s*\[')
_NEXT_EVENT: Final = re.compile(r'\}\s*,\s*(?=\{\s*")')
_LAST_END: Final = re.compile(r"\}\s*\]")
_NEXT_LIST: Final = re.compile(r"\]\s*\[")
_BETWEEN: Final = re.compile(r"[\s,\0]*")
SEVERAL_LISTS: Final = "further lists of events, which were read too"
AFTER_THE_END: Final = ("after_the_end", "text after the list of events was not read")
_BROKEN: Final = ("bad_event", "events whose JSON is broken")
_CONTROL: Final = {n: " " if chr(n) in "\t\n\r" else f"\\u{n:04x}" for n in range(32)}
_LONE_SURROGATE: Final = re.compile(
    r"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def read_document(source: Source) -> Trace:
    """Read a trace document: an object with `traceEvents`, or a bare list of events."""
    buffer = _read_all(source)
    header, events, truncated = _parse_events(buffer, source.log)
    if buffer.count(b'"ts"') > len(events) and REPEATED.search(buffer):
        source.log.note("duplicate_key", "an event has the same key twice; the last one counts")
    return build_trace(events, header, truncated, source.log)


def read_events(source: Source) -> list[TraceEvent]:
    """Read the events of a trace document as they are, with all their arguments."""
    return _parse_events(_read_all(source), source.log)[1]


def read_lines(source: Source) -> Trace:
    """Read trace events written as JSON lines."""
    buffer = _read_all(source)
    try:
        events, truncated = msgspec.json.Decoder(TraceEvent).decode_lines(buffer), False
    except _PARSE_ERRORS:
        text = _decode_text(buffer, source.log)
        events, truncated = _parse_line_by_line(text, source.log), not text.endswith("\n")
    return build_trace(events, {}, truncated, source.log)


def build_trace(events: list[TraceEvent], header: dict[str, Any], truncated: bool, log: Log) -> Trace:
    """Build a `Trace` of events; flow arrows are dropped, because correlation ids say the same."""
    used = [e for e in events if e.ph and e.ph not in FLOW_PHASES]
    log.read += len(used)
    threads = _count_onnx_threads(used)
    used = translate_onnx_events(used)
    without_phase = sum(not e.ph for e in events)
    if without_phase:
        log.note("no_phase", "records without a phase (ph)", count=without_phase)
    is_row = [e.ph == "X" and STEP_KEY not in bytes(e.args) for e in used]
    complete = build_complete_events([e for e, row in zip(used, is_row, strict=True) if row], log)
    others = [e for e, row in zip(used, is_row, strict=True) if not row]
    return Trace(complete, others, header, truncated, threads=threads)


def _read_all(source: Source) -> bytearray:
    """Read the input into one buffer, without chunks that are entirely blank."""
    buffer = bytearray()
    for chunk in source.iter_chunks():
        if not chunk.isspace():
            buffer += chunk
        if len(buffer) > _MAX_BYTES:
            raise UnreadableError(f"is larger than {_MAX_BYTES:,} bytes when unpacked", where=source.label)
    return buffer


def _parse_events(buffer: bytearray, log: Log) -> tuple[dict[str, Any], list[TraceEvent], bool]:
    """Parse header and events; the flag says that the document ends within its list of events."""
    try:
        return *_parse_document(buffer, log), False
    except _PARSE_ERRORS:
        document = _DamagedDocument(_decode_text(buffer.rstrip(b" \t\r\n"), log), log)
        return document.header, document.events, document.truncated


def _parse_document(buffer: bytearray, log: Log) -> tuple[dict[str, Any], list[TraceEvent]]:
    if _LIST.match(buffer):
        return {}, _EVENTS_DECODER.decode(buffer)
    document = msgspec.json.decode(buffer, type=dict[str, msgspec.Raw])
    events = _EVENTS_DECODER.decode(document.pop("traceEvents"))
    if buffer.count(b'"traceEvents"') > 1:
        events = _parse_all_lists(buffer, log) or events
    return {k: msgspec.json.decode(v) for k, v in document.items()}, events


def _parse_all_lists(buffer: bytearray, log: Log) -> list[TraceEvent]:
    """Parse the events of a document that may have several keys `traceEvents`; none if it has only one."""
    members: list[tuple[str, Any]] = []

    def remember(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members[:] = pairs  # the outermost object is the last to end
        return dict(pairs)

    json.loads(buffer, object_pairs_hook=remember)
    lists = [value for key, value in members if key == "traceEvents"]
    if len(lists) < 2:
        return []
    log.note("several_lists", SEVERAL_LISTS, count=len(lists) - 1)
    return [event for each in lists for event in _EVENTS_DECODER.decode(msgspec.json.encode(each))]


def _decode_text(buffer: bytearray, log: Log) -> str:
    """Decode the input in its encoding; replace and count invalid bytes."""
    if buffer.startswith((b"\xff\xfe", b"\xfe\xff")):
        return buffer.decode("utf-16", "replace")
    try:
        return buffer.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        text = buffer.decode("utf-8-sig", "replace")
        log.repair("bad_utf8", "bytes that are not UTF-8, shown as �", count=text.count("�"), at=e.start)
        return text


def _parse_repaired(text: str) -> TraceEvent | None:
    """Parse an event that may have raw control characters or lone surrogates; None if it is invalid."""
    text = _LONE_SURROGATE.sub(lambda m: m[1] + (m[2] or "\\ufffd"), text)
    return decode_or_none(_EVENT_DECODER.decode, text.translate(_CONTROL).encode("utf-8", "replace"))


def _parse_line_by_line(text: str, log: Log) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    at = 0
    for line in text.split("\n"):
        if line.strip():
            event = _parse_repaired(line.strip())
            if event is None:
                log.read += 1
                is_deep = is_too_deep(_EVENT_DECODER.decode, line.encode("utf-8", "replace"))
                log.drop(*(TOO_DEEP if is_deep else ("bad_line", "lines that are not an event")), at=at)
            else:
                events.append(event)
        at += len(line) + 1
    return events


class _DamagedDocument:
    """A damaged document, parsed: intact pieces of its list of events in bulk, the rest one by one."""

    def __init__(self, text: str, log: Log) -> None:
        self.text, self.log = text, log
        self.events: list[TraceEvent] = []
        self.truncated = False
        self._in_broken_event = False
        array = None if text.lstrip().startswith("[") else _ARRAY.search(text)
        self._is_object = array is not None
        begin = array.end() if array else text.find("[") + 1
        self._at = begin or len(text)
        while self._parse_piece():
            pass
        self.header = self._parse_header(array.start()) if array else {}
        if self.truncated and array:
            message = "the file ends inside its list of events"
            log.note("cut_short", message, at=self._at, severity="data_loss")

    def _parse_piece(self) -> bool:
        """Parse the next piece, in bulk if it is intact; return False at the end of the list."""
        border = _NEXT_EVENT.search(self.text, self._at + PIECE_CHARS)
        stop = border.end() if border else len(self.text)
        if border and not self._in_broken_event:
            try:
                self.events += _EVENTS_DECODER.decode(f"[{self.text[self._at : border.start() + 1]}]")
            except _PARSE_ERRORS:
                pass
            else:
                self._at = stop
                return True
        while self._at < stop or border is None:
            if not self._parse_element():
                return False
        return True

    def _parse_element(self) -> bool:
        """Parse the next element; return False at the end of the list."""
        self._skip_between()
        if self._at >= len(self.text):
            self.log.note(*NO_END)
            self.truncated = self._is_object
            return False
        if self.text[self._at] == "]":
            return self._enter_next_list()
        try:
            value, end = _SCANNER.raw_decode(self.text, self._at)
        except RecursionError:
            return self._skip_broken_event(*TOO_DEEP)
        except ValueError:
            return self._skip_broken_event(*_BROKEN)
        if (isinstance(value, dict) and "ph" in value) or not self._in_broken_event:
            self._in_broken_event = False
            text = self.text[self._at : end]
            event = _parse_repaired(text) if isinstance(value, dict) else None
            if event is None:
                is_deep = is_too_deep(_EVENT_DECODER.decode, text.encode("utf-8", "replace"))
                self._drop(*(TOO_DEEP if is_deep else _BROKEN))
            else:
                self.events.append(event)
        self._at = end
        return True

    def _enter_next_list(self) -> bool:
        """Go from the end of a bare list to the list after it; return False if there is none."""
        following = _NEXT_LIST.match(self.text, self._at)
        if following and not self._is_object:
            self.log.note("several_lists", SEVERAL_LISTS)
            self._at = following.end()
            return True
        if not self._is_object and self.text[self._at + 1 :].strip():
            self.log.note(*AFTER_THE_END, at=self._at, severity="data_loss")
        return False

    def _drop(self, id: str, message: str) -> None:
        self.log.read += 1
        self.log.drop(id, message, at=self._at)

    def _skip_broken_event(self, id: str, message: str) -> bool:
        """Skip to the event after a broken one, which counts once; return False if there is none."""
        border = _NEXT_EVENT.search(self.text, self._at)
        end = border or _LAST_END.search(self.text, self._at)
        if not self._in_broken_event:
            is_whole = end or id == TOO_DEEP[0]
            self._drop(id, message) if is_whole else self._drop("torn_event", "the last event is cut off")
        self._in_broken_event = True
        if end is None:
            self.truncated, self._at = True, len(self.text)
            return False
        self._at = end.end() if border else end.end() - 1
        return True

    def _skip_between(self) -> None:
        between = _BETWEEN.match(self.text, self._at)
        if between and "\0" in between[0]:
            self.log.note("nul_bytes", "zero bytes in the list of events", at=self._at, severity="data_loss")
        self._at = between.end() if between else self._at

    def _parse_header(self, array: int) -> dict[str, Any]:
        """Parse the keys around the list of events; empty if they are broken."""
        front = self.text[:array] + '"traceEvents": []'
        rest = self.text[self._at + 1 :]
        for tail in (rest, "}"):
            try:
                header = json.loads(front + tail, strict=False)
            except _PARSE_ERRORS:
                continue
            if tail is not rest and rest.strip():
                self.log.note(*AFTER_THE_END, at=self._at, severity="data_loss")
            self.truncated = self.truncated or (tail is not rest and not rest.strip())
            header.pop("traceEvents", None)
            return dict(header)
        return {}


def _count_onnx_threads(events: Sequence[TraceEvent]) -> int | None:
    """Count the threads that compute a node of onnxruntime; None if the nodes differ, or do not say."""
    counts = set()
    for event in events:
        node = decode_or_none(ONNX_DECODER.decode, bytes(event.args)) if event.cat == "Node" else None
        if node is not None and node.thread_scheduling_stats is not None:
            pool = node.thread_scheduling_stats
            others = pool.get("sub_threads") if isinstance(pool, dict) else None
            counts.add(1 + len(others) if isinstance(others, dict) else 1)
    return counts.pop() if len(counts) == 1 else None
