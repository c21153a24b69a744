"""The fastest way into a metallic file: lines cut by the compiled scanner, each distinct text read as JSON.

What stands around the time and the duration of a line repeats: the scanner says which texts they are, and
what they mean is asked of the line reader, once each. A line that does not fit is handed back by its row.
"""

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO, Any, Final

import polars as pl

from capture.loaders._scan import scanner
from capture.loaders._scan.arrow import table
from capture.loaders.metallic.fast_scan import Input, Scanned, no_objects
from capture.loaders.metallic.patient_scan import TIMED, Key, Raw, is_line, key_of, type_of

PIECE: Final = 1 << 18  # bytes that are scanned at a time: they stay in the cache of a core
PART: Final = 1 << 22  # least bytes for a thread of its own

_NUMBER: Final = "\n"  # stands in a text for the duration; no line holds it
_EVENT: Final = '"event":{'
_ENVELOPE: Final = ","
_TIME: Final = "timestamp"  # a second one would count
_FRONT: Final = '{"timestamp":"2025-12-23T10:15:30Z"'
_END: Final = 1 << 62


def scan(source: Input) -> Scanned | None:
    """Return a raw row for every line, in line order, and the rows whose lines must be read again; None where
    there is no scanner, or where hardly a line repeats another.
    """
    module = scanner()
    if module is None:
        return None
    borders = [*_borders(source), _END]
    seed = int.from_bytes(os.urandom(8), "little")
    parts = [module.Lines(seed, begin, stop) for begin, stop in pairwise(borders)]
    try:
        with ThreadPoolExecutor(len(parts)) as threads:
            list(threads.map(lambda part, begin: _feed(part, source, begin), parts, borders))
    except ValueError:
        return None
    texts = [table(part.texts())["text"] for part in parts]
    before = [0, *accumulate(map(len, texts))]
    cuts = [_behind(table(part.rows()), count) for part, count in zip(parts, before, strict=False)]
    raw = _raw(pl.concat(cuts, rechunk=True), pl.concat(texts, rechunk=True))
    return Scanned(raw, raw.rows["key"].is_null().arg_true().to_list())


def lines_at(source: Input, rows: list[int]) -> list[tuple[int, bytes]]:
    """Return some lines as they stand, each with its row."""
    wanted = set(rows)
    with _opened(source) as file:
        return [(row, line.removesuffix(b"\n")) for row, line in enumerate(file) if row in wanted]


def _opened(source: Input) -> IO[bytes]:
    return source.open("rb") if isinstance(source, Path) else io.BytesIO(source)


def _borders(source: Input) -> Iterator[int]:
    """Yield where lines begin that cut the input into a part for each core, zero first."""
    yield 0
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    parts = min(pl.thread_pool_size(), size // PART)
    with _opened(source) as file:
        for part in range(1, parts):
            file.seek(size * part // parts)
            file.readline()
            if file.tell() < size:
                yield file.tell()


def _feed(part: Any, source: Input, begin: int) -> None:
    view = memoryview(bytearray(PIECE))
    with _opened(source) as file:
        file.seek(begin)
        while n := file.readinto(view):  # type: ignore[attr-defined]
            if not part.feed(view[:n]):
                return
        part.feed(b"")


def _behind(cut: pl.DataFrame, before: int) -> pl.DataFrame:
    """Return the lines of a part, of whose texts `before` others stand in front."""
    return cut.with_columns(pl.col("envelope", "event", "data") + before) if before else cut


def _raw(cut: pl.DataFrame, texts: pl.Series) -> Raw:
    """Return raw rows of lines: their key, duration, time and data; without a key where a line must be read
    again.
    """
    keys: dict[Key, int] = {}
    events = texts.str.starts_with(_EVENT)
    envelopes = texts.str.starts_with(_ENVELOPE)
    numbers = pl.repeat(None, texts.len(), dtype=pl.UInt32, eager=True)
    known = texts.filter(events).to_list()
    number_of = {text: _number(keys, text) for text in dict.fromkeys(known)}
    found = pl.Series([number_of[text] for text in known], dtype=pl.UInt32)
    numbers = numbers.scatter(events.arg_true(), found)
    no_envelope = texts.is_in([t for t in texts.filter(envelopes) if not _is_envelope(t)])
    no_data = events | envelopes | texts.is_in(no_objects(texts.filter(~events & ~envelopes)).implode())
    misfits = no_data.gather(cut["data"]).fill_null(value=False)
    if no_envelope.any():
        misfits |= no_envelope.gather(cut["envelope"]).fill_null(value=False)
    key = numbers.gather(cut["event"])
    key = key.set(misfits, None) if misfits.any() else key
    return Raw(cut.select(key.alias("key"), "us", "stamp", rest="data"), list(keys), texts)


def _number(keys: dict[Key, int], text: str) -> int | None:
    """Return the number of the key of an event, by what stands around its duration or before its data."""
    front, has_duration, behind = text.partition(_NUMBER)
    if _TIME in text:
        return None
    if has_duration:
        key = key_of("{" + front, behind)
    else:
        kind = type_of("{" + front + "{}}}")
        key = None if kind is None or kind in TIMED else Key(kind)
    return None if key is None else keys.setdefault(key, len(keys))


def _is_envelope(text: str) -> bool:
    """Return whether an event may stand behind this."""
    return _TIME not in text and is_line(f'{_FRONT}{text}"event":{{"type":""}}}}')
