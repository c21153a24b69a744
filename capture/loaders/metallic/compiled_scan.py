"""Read metallic lines with the C scanner; each distinct text is parsed once.

All of a line but its time and its duration repeats. The scanner numbers the distinct texts around them, and
the line reader says once per text what it means. Lines that do not fit are returned by row number.
"""

import io
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec
import polars as pl

from capture.loaders._json_document import decode_or_none
from capture.loaders._scan import load_scanner, read_arrow_table
from capture.loaders.metallic.line_reader import TIMED, EventKey, RawEvents, parse_key, parse_type

BLOCK_BYTES: Final = 1 << 18  # scanned at a time; fits the CPU cache
MIN_PART_BYTES: Final = 1 << 22  # per thread

_NUMBER: Final = "\n"  # replaces the duration in a text; no line contains it
_EVENT: Final = '"event":{'
_ENVELOPE: Final = ","
_TIME: Final = "timestamp"  # a repeated key would override the first
_FRONT: Final = '{"timestamp":"2025-12-23T10:15:30Z"'
_END: Final = 1 << 62
_LINE: Final = re.compile(rb'\{"timestamp":"[^"]{20,30}","span_id":[^,]*,"parent_span_id":[^,]*,"span_name":')
_decode_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode_lines

Input = Path | bytes


class ScannedLog(NamedTuple):
    """A raw row per line, in line order, and the numbers of the lines to read again."""

    raw: RawEvents
    odd_rows: list[int]


def can_scan(head: bytes) -> bool:
    """Return True if the scanner is built and the first line has metallic's own layout."""
    return load_scanner() is not None and _LINE.match(head) is not None


def scan(source: Input) -> ScannedLog | None:
    """Scan a log; None without the scanner, or if hardly any line repeats another."""
    module = load_scanner()
    if module is None:
        return None
    borders = [*_iter_part_starts(source), _END]
    seed = int.from_bytes(os.urandom(8), "little")
    parts = [module.Lines(seed, begin, stop) for begin, stop in pairwise(borders)]
    try:
        with ThreadPoolExecutor(len(parts)) as threads:
            list(threads.map(lambda part, begin: _feed_part(part, source, begin), parts, borders))
    except ValueError:
        return None
    texts = [read_arrow_table(part.texts())["text"] for part in parts]
    text_counts = [0, *accumulate(map(len, texts))]
    rows = [read_arrow_table(part.rows()) for part in parts]
    ids = pl.col("envelope", "event", "data")  # those of a part follow those of the parts before it
    pairs = zip(rows, text_counts, strict=False)
    cut_lines = [frame.with_columns(ids + count) if count else frame for frame, count in pairs]
    raw = _build_raw_events(pl.concat(cut_lines, rechunk=True), pl.concat(texts, rechunk=True))
    return ScannedLog(raw, raw.rows["key"].is_null().arg_true().to_list())


def read_lines(source: Input, rows: list[int]) -> list[tuple[int, bytes]]:
    """Read the lines with these numbers, each with its number."""
    row_set = set(rows)
    with _open_log(source) as file:
        return [(row, line.removesuffix(b"\n")) for row, line in enumerate(file) if row in row_set]


def _open_log(source: Input) -> IO[bytes]:
    return source.open("rb") if isinstance(source, Path) else io.BytesIO(source)


def _iter_part_starts(source: Input) -> Iterator[int]:
    """Yield the line starts that divide the input into one part per core, zero first."""
    yield 0
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    parts = min(pl.thread_pool_size(), size // MIN_PART_BYTES)
    with _open_log(source) as file:
        for part in range(1, parts):
            file.seek(size * part // parts)
            file.readline()
            if file.tell() < size:
                yield file.tell()


def _feed_part(part: Any, source: Input, begin: int) -> None:
    block = memoryview(bytearray(BLOCK_BYTES))
    with _open_log(source) as file:
        file.seek(begin)
        while size := file.readinto(block):  # type: ignore[attr-defined]
            if not part.feed(block[:size]):
                return
        part.feed(b"")


def _build_raw_events(cut: pl.DataFrame, texts: pl.Series) -> RawEvents:
    """Resolve text ids to keys and payloads; the key is null where the line must be read again."""
    keys: dict[EventKey, int] = {}
    is_event = texts.str.starts_with(_EVENT)
    is_envelope = texts.str.starts_with(_ENVELOPE)
    key_ids = pl.repeat(None, texts.len(), dtype=pl.UInt32, eager=True)
    event_texts = texts.filter(is_event).to_list()
    key_id_by_text = {text: _find_key_id(keys, text) for text in dict.fromkeys(event_texts)}
    ids = pl.Series([key_id_by_text[text] for text in event_texts], dtype=pl.UInt32)
    key_ids = key_ids.scatter(is_event.arg_true(), ids)
    is_bad_envelope = texts.is_in([t for t in texts.filter(is_envelope) if not _is_valid_envelope(t)])
    non_objects = select_non_objects(texts.filter(~is_event & ~is_envelope))
    is_bad_data = is_event | is_envelope | texts.is_in(non_objects.implode())
    is_misfit = is_bad_data.gather(cut["data"]).fill_null(value=False)
    if is_bad_envelope.any():
        is_misfit |= is_bad_envelope.gather(cut["envelope"]).fill_null(value=False)
    key = key_ids.gather(cut["event"])
    key = key.set(is_misfit, None) if is_misfit.any() else key
    rows = cut.select(key.alias("key"), duration_us="us", timestamp_ns="stamp", payload="data")
    return RawEvents(rows, list(keys), texts)


def _find_key_id(keys: dict[EventKey, int], event_text: str) -> int | None:
    """Find the key id of an event text (what surrounds its duration or precedes its data), or None."""
    front, mark, behind = event_text.partition(_NUMBER)
    if _TIME in event_text:
        return None
    if mark:
        key = parse_key("{" + front, behind)
    else:
        kind = parse_type("{" + front + "{}}}")
        key = None if kind is None or kind in TIMED else EventKey(kind)
    return None if key is None else keys.setdefault(key, len(keys))


def _is_valid_envelope(text: str) -> bool:
    """Return True if an event may follow this text at the start of a line."""
    return _TIME not in text and parse_type(f'{_FRONT}{text}"event":{{"type":""}}}}') is not None


def select_non_objects(texts: pl.Series) -> pl.Series:
    """Select the texts that are not a JSON object."""
    if len(decode_or_none(_decode_objects, "\n".join(texts)) or ()) == texts.len():
        return texts.clear()
    is_object = [len(decode_or_none(_decode_objects, text) or ()) == 1 for text in texts]
    return texts.filter(~pl.Series(is_object, dtype=pl.Boolean))
