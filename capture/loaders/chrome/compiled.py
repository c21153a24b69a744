"""Chrome traces in any JSON layout, read by the compiled scanner: columns at once, on several threads.

It takes what a strict parser takes; a file with anything else in it, or without its end, is refused. The file
is cut where events seem to begin; that one begins there is known when the part before it has been read.
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

from capture.loaders._scan import scanner
from capture.loaders.chrome import scanned
from capture.loaders.chrome.tables import (
    ATTENTION,
    CALLS,
    DEVICE,
    KERNELS,
    NO_END,
    OPERATORS,
    REPEATED,
    RefusedError,
    Trace,
)
from capture.source import Source

PIECE: Final = 1 << 18  # bytes that are scanned at a time: they stay in the cache of a core
PART: Final = 1 << 22  # least bytes for a thread of its own
WINDOW: Final = 1 << 20  # bytes in which a border between two events must be found
LONGEST_END: Final = 1 << 26  # bytes behind the list of events

_ARRAY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_LIST: Final = re.compile(rb"\s*\[")
_FIRST_KEY: Final = re.compile(rb'\s*\{\s*("\w{1,40}")\s*:')
_HERE: Final = ["the events"]  # stands in the header for the list of events
_END: Final = 1 << 62
# what is wanted of the events of a category, in bits that the scanner knows
_LINKED, _ASKED, _OPERATOR, _KERNEL = 1, 2, 4, 8
_WANTED: Final = (
    *((name.encode(), _LINKED | _ASKED | _KERNEL * (name in KERNELS)) for name in DEVICE),
    *((name.encode(), _LINKED) for name in CALLS),
    *((name.encode(), _ASKED | _OPERATOR) for name in OPERATORS),
)


def read(source: Source) -> Trace:
    """Read a trace document; raise RefusedError for what is not plain JSON from end to end."""
    head = source.head.raw
    found = _LIST.match(head) or _ARRAY.search(head)
    if found is None:
        raise RefusedError("no list of events near the start")
    front = b"" if found.re is _LIST else head[: found.end() - 1]
    scan = _Scan(source, found.end(), endless=not front)
    if not scan.ended:
        source.log.note(*NO_END)
    return scanned.trace(scan.parts, _header(front, scan.end), source.log)


def read_lines(source: Source) -> Trace:
    """Read events that stand one behind the other; raise RefusedError for what is not plain JSON."""
    scan = _Scan(source, 0, endless=True, lines=True)
    return scanned.trace(scan.parts, {}, source.log)


def _header(front: bytes, end: bytes) -> dict[str, Any]:
    """Return the keys around the list of events; raise RefusedError where the document is broken there."""
    if not front:
        if end.strip(b" \t\r\n"):
            raise RefusedError("text behind the list of events")
        return {}
    try:
        document = msgspec.json.decode(front + msgspec.json.encode(_HERE) + end, type=dict[str, msgspec.Raw])
        header = {key: msgspec.json.decode(value) for key, value in document.items()}
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise RefusedError("the header is broken") from None
    if b'"traceEvents"' in end or header.pop("traceEvents", None) != _HERE:
        raise RefusedError("the list of events stands elsewhere")
    if REPEATED.search(front) or REPEATED.search(end):
        raise RefusedError("a key twice in the header")
    return header


@dataclass
class _Scan:
    """One reading of a source: `parts` are the scanners that have read its events, in order, and `end` the
    bytes behind the list of events.
    """

    source: Source
    begin: int
    endless: bool  # the list of events may lack its closing bracket, as the format allows
    lines: bool = False

    def __post_init__(self) -> None:
        source = self.source
        borders = [self.begin, *([] if source.gzipped else self._borders()), source.size]
        self.parts = [self._scanner(*part, source.size) for part in pairwise(borders)]
        with ThreadPoolExecutor(len(self.parts)) as threads:
            ends = list(threads.map(self._read, self.parts, borders))
        if not _meet(self.parts, borders):  # a border was none: one part for all
            self.parts = [self._scanner(self.begin, source.size, source.size)]
            ends = [self._read(self.parts[0], self.begin)]
        self.end = ends[-1]
        state, _, reason, *_ = self.parts[-1].status()
        self.ended = state == "ended"
        if not self.ended and not (self.endless and state == "reading" and not self.end):
            raise RefusedError(reason or "the list of events has no end")

    def _scanner(self, begin: int, stop: int, size: int) -> Any:
        module = scanner()
        if module is None:
            raise RefusedError("there is no compiled scanner")
        seed = int.from_bytes(os.urandom(8), "little")
        last = _END if stop == size else stop
        return module.Scanner(_WANTED, ATTENTION.encode(), seed, begin, last, begin > self.begin, self.lines)

    def _borders(self) -> Iterator[int]:
        """Yield where events seem to begin that cut the file into a part for each core."""
        size, head = self.source.size, self.source.head.raw
        parts = min(pl.thread_pool_size(), size // PART)
        first = _FIRST_KEY.match(head, self.begin)
        if parts < 2 or not first:
            return
        between = rb"\}\s*(\{)\s*" if self.lines else rb"\}\s*,\s*(\{)\s*"
        border = re.compile(between + re.escape(first[1]) + rb"\s*:")
        with self.source.path.open("rb") as file:
            for part in range(1, parts):
                at = self.begin + (size - self.begin) * part // parts
                file.seek(at)
                if found := border.search(file.read(WINDOW)):
                    yield at + found.start(1)

    def _read(self, part: Any, begin: int) -> bytes:
        """Let a scanner read from a place on; return the bytes behind its end, for the last one."""
        if self.source.gzipped:
            return self._unpack(part)
        view = memoryview(bytearray(PIECE))
        with self.source.path.open("rb", buffering=0) as file:
            file.seek(begin)
            while (n := file.readinto(view)) and part.feed(view[:n]):
                pass
            part.feed(b"")
            state = part.status()[0]
            rest = b"" if state in ("stopped", "failed") else part.rest() + file.read(LONGEST_END)
        if len(rest) > LONGEST_END:
            raise RefusedError("much text behind the list of events")
        return rest

    def _unpack(self, part: Any) -> bytes:
        """Let a scanner read one piece while the next one is unpacked; return the bytes behind its end."""
        skip, end = self.begin, b""
        with ThreadPoolExecutor(1) as thread:
            fed = thread.submit(lambda: True)
            for chunk in self.source.chunks():
                piece, skip = memoryview(chunk)[skip:], max(0, skip - len(chunk))
                if fed.result():
                    fed = thread.submit(part.feed, piece)
                elif part.status()[0] == "ended" and len(end) < LONGEST_END:
                    end += piece
                else:
                    raise RefusedError(part.status()[2] or "much text behind the list of events")
            if fed.result():
                part.feed(b"")
        return bytes(part.rest()) + end


def _meet(parts: Sequence[Any], borders: Sequence[int]) -> bool:
    """Return whether each part ended where the next one began: only then its border is between events."""
    reached = [part.status()[:2] for part in parts[:-1]]
    return reached == [("stopped", border) for border in borders[1:-1]]
