"""Chrome trace events from any JSON layout, mended event by event where the whole does not parse."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders.chrome.tables import FLOWS, NO_END, REPEATED, Event, Trace, complete_events
from capture.source import Source

LIMIT: Final = 1 << 34
PIECE: Final = 1 << 20  # characters that are tried at once while mending

_EVENTS: Final = msgspec.json.Decoder(list[Event])
_ONE: Final = msgspec.json.Decoder(Event)
_SCAN: Final = json.JSONDecoder(strict=False)
_BROKEN: Final = (ValueError, RecursionError, msgspec.MsgspecError)

_LIST: Final = re.compile(rb"\s*\[")
_ARRAY: Final = re.compile(r'"traceEvents"\s*:\s*\[')
_NEXT: Final = re.compile(r'\}\s*,\s*(?=\{\s*")')
_END: Final = re.compile(r"\}\s*\]")
_BETWEEN: Final = re.compile(r"[\s,\0]*")
_CONTROL: Final = {n: " " if chr(n) in "\t\n\r" else f"\\u{n:04x}" for n in range(32)}
_LONE_SURROGATE: Final = re.compile(
    r"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def read(source: Source) -> Trace:
    """Read a trace document: an object with `traceEvents`, or a bare list of events."""
    buffer = read_all(source)
    header, events, truncated = _events(buffer, source.log)
    if buffer.count(b'"ts"') > len(events) and REPEATED.search(buffer):
        source.log.note("duplicate_key", "an event states a key twice; the last one stands")
    return trace_of(events, header, truncated, source.log)


def read_events(source: Source) -> list[Event]:
    """Return the events of a trace document with all that they state, before anything is made of them."""
    return _events(read_all(source), source.log)[1]


def read_lines(source: Source) -> Trace:
    """Read trace events that stand as JSON lines."""
    buffer = read_all(source)
    try:
        events, truncated = msgspec.json.Decoder(Event).decode_lines(buffer), False
    except _BROKEN:
        text = _text(buffer, source.log)
        events, truncated = _line_by_line(text, source.log), not text.endswith("\n")
    return trace_of(events, {}, truncated, source.log)


def trace_of(events: list[Event], header: dict[str, Any], truncated: bool, log: Log) -> Trace:
    """Part events by phase; flow arrows are left out, the correlation numbers say the same."""
    kept = [e for e in events if e.ph and e.ph not in FLOWS]
    log.read += len(kept)
    empty = sum(not e.ph for e in events)
    if empty:
        log.note("no_phase", "records that do not say what kind of event they are", count=empty)
    complete = complete_events([e for e in kept if e.ph == "X"], log)
    return Trace(complete, [e for e in kept if e.ph != "X"], header, truncated)


def read_all(source: Source) -> bytearray:
    """Return the whole input in one growing buffer; pieces that are all blank are left out."""
    buffer = bytearray()
    for chunk in source.chunks():
        if not chunk.isspace():
            buffer += chunk
        if len(buffer) > LIMIT:
            raise UnreadableError(f"is larger than {LIMIT:,} bytes when unpacked", where=source.label)
    return buffer


def parse_blocks(blocks: Iterable[str], log: Log) -> list[Event]:
    """Parse events given as one text each; the broken ones are dropped and counted."""
    blocks = list(blocks)
    try:
        return _EVENTS.decode("[" + ",".join(blocks) + "]")
    except _BROKEN:
        mended = [_decode_mended(block) for block in blocks]
    events = [e for e in mended if e is not None]
    log.read += len(blocks) - len(events)
    log.drop("bad_event", "events whose JSON is broken", count=len(blocks) - len(events))
    return events


def _events(buffer: bytearray, log: Log) -> tuple[dict[str, Any], list[Event], bool]:
    """Return the header, the events, and whether the document ends within its list of events."""
    try:
        return *_whole(buffer), False
    except _BROKEN:
        mender = Mender(_text(buffer.rstrip(b" \t\r\n"), log), log)
        return mender.header, mender.events, mender.truncated


def _whole(buffer: bytearray) -> tuple[dict[str, Any], list[Event]]:
    if _LIST.match(buffer):
        return {}, _EVENTS.decode(buffer)
    document = msgspec.json.decode(buffer, type=dict[str, msgspec.Raw])
    events = _EVENTS.decode(document.pop("traceEvents"))
    return {k: msgspec.json.decode(v) for k, v in document.items()}, events


def _text(buffer: bytearray, log: Log) -> str:
    """Return the input as text, whatever its encoding; bytes that mean nothing are replaced and counted."""
    if buffer.startswith((b"\xff\xfe", b"\xfe\xff")):
        return buffer.decode("utf-16", "replace")
    try:
        return buffer.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        text = buffer.decode("utf-8-sig", "replace")
        log.repair("bad_utf8", "bytes that are not UTF-8, shown as �", count=text.count("�"), at=e.start)
        return text


def _decode_mended(text: str) -> Event | None:
    """Parse an event whose text may hold raw control characters or half a surrogate pair; None if broken."""
    text = _LONE_SURROGATE.sub(lambda m: m[1] + (m[2] or "\\ufffd"), text)
    text = text.translate(_CONTROL)
    try:
        return _ONE.decode(text.encode("utf-8", "replace"))
    except _BROKEN:
        return None


def _line_by_line(text: str, log: Log) -> list[Event]:
    events: list[Event] = []
    at = 0
    for line in text.split("\n"):
        if line.strip():
            event = _decode_mended(line.strip())
            if event is None:
                log.read += 1
                log.drop("bad_line", "lines that are no event", at=at)
            else:
                events.append(event)
        at += len(line) + 1
    return events


class Mender:
    """Walks over a damaged list of events: good stretches at once, the rest one by one."""

    def __init__(self, text: str, log: Log) -> None:
        self.text, self.log = text, log
        self.events: list[Event] = []
        self.truncated = False
        self._lost = False  # inside what remains of a broken event
        array = _ARRAY.search(text)
        begin = array.end() if array else text.find("[") + 1
        self._at = begin or len(text)
        while self._stretch():
            pass
        self.header = self._header(array.start()) if array else {}
        if self.truncated and array:
            log.note(
                "cut_short", "the file ends inside its list of events", at=self._at, severity="data_loss"
            )

    def _stretch(self) -> bool:
        """Take one piece of the list, tried as a whole first; return False at its end."""
        border = _NEXT.search(self.text, self._at + PIECE)
        stop = border.end() if border else len(self.text)
        if border and not self._lost:
            try:
                self.events += _EVENTS.decode(f"[{self.text[self._at : border.start() + 1]}]")
            except _BROKEN:
                pass
            else:
                self._at = stop
                return True
        while self._at < stop or border is None:
            if not self._one():
                return False
        return True

    def _one(self) -> bool:
        """Take the next element; return False at the end of the list."""
        self._skip_between()
        if self._at >= len(self.text):
            self._end_without_bracket()
            return False
        if self.text[self._at] == "]":
            return False
        try:
            value, end = _SCAN.raw_decode(self.text, self._at)
        except _BROKEN:
            return self._resync()
        if not (self._lost and not (isinstance(value, dict) and "ph" in value)):
            self._take(value, end)
        self._at = end
        return True

    def _take(self, value: Any, end: int) -> None:
        self._lost = False
        event = _decode_mended(self.text[self._at : end]) if isinstance(value, dict) else None
        if event is None:
            self._drop()
        else:
            self.events.append(event)

    def _drop(self, id: str = "bad_event", message: str = "events whose JSON is broken") -> None:
        self.log.read += 1
        self.log.drop(id, message, at=self._at)

    def _resync(self) -> bool:
        """Go on to the next event after a broken one, which is counted once.

        Return False where there is none.
        """
        border = _NEXT.search(self.text, self._at)
        end = border or _END.search(self.text, self._at)
        if not self._lost:
            self._drop() if end else self._drop("torn_event", "the last event is cut off")
        self._lost = True
        if end is None:
            self.truncated, self._at = True, len(self.text)
            return False
        self._at = end.end() if border else end.end() - 1
        return True

    def _skip_between(self) -> None:
        between = _BETWEEN.match(self.text, self._at)
        if between and "\0" in between[0]:
            self.log.note(
                "nul_bytes", "a stretch of zero bytes in the list", at=self._at, severity="data_loss"
            )
        self._at = between.end() if between else self._at

    def _end_without_bracket(self) -> None:
        self.log.note(*NO_END)
        self.truncated = _ARRAY.search(self.text) is not None

    def _header(self, array: int) -> dict[str, Any]:
        """Return the keys around the list of events."""
        front = self.text[:array] + '"traceEvents": []'
        rest = self.text[self._at + 1 :]
        for tail in (rest, "}"):
            try:
                header = json.loads(front + tail, strict=False)
            except _BROKEN:
                continue
            if tail is not rest and rest.strip():
                self.log.note(
                    "after_the_end",
                    "text after the list of events was not read",
                    at=self._at,
                    severity="data_loss",
                )
            self.truncated = self.truncated or (tail is not rest and not rest.strip())
            header.pop("traceEvents", None)
            return dict(header)
        return {}
