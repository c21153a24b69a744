"""Chrome traces in the layouts that torch prints, cut at their braces: no parser, all cores, gz in flight.

A piece of text after each brace: the first of an event reaches up to the brace of its arguments. A JSON
string cannot hold a raw line break, so the lines of that piece are the keys of the event, each in its place.
A name with a brace in it stands in several pieces, which are joined again; the few events that are not as
expected go to the JSON parser one by one.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.classify.fill import positions_of
from capture.loaders.chrome.any_json import parse_blocks, trace_of
from capture.loaders.chrome.layouts import GROUPED, SPREAD, WANTED, Layout, read_events
from capture.loaders.chrome.tables import (
    PLACE,
    Complete,
    RefusedError,
    Trace,
    json_text,
    label_frame,
    raw_text,
)  # fmt: skip
from capture.source import Source

TAIL: Final = 1 << 20
CHUNK: Final = 1 << 20  # bytes of the file in one piece of work: what the caches hold, and little memory
BATCH: Final = 10_000  # events that are put together at a time

_ARRAY: Final = '"traceEvents": ['
_OPEN: Final = "\n  {"
_CLOSE: Final = "\n  }"
_END: Final = "\n  ]"
_EVENT: Final = '\n    "'  # how the first piece of an event begins
_ARROWS: Final = ('\n    "ph": "s",', '\n    "ph": "f",')  # its rare middle is left to the parser
_ARGUMENTS: Final = "\n      "
_LABEL: Final = re.compile(
    r'\s+"ph": "X",\s+"cat": (?P<cat>"(?:[^"\\]|\\.)*"),\s+"name": (?P<name>".*"),'
    r'\s+"pid": (?P<pid>.+?),\s+"tid": (?P<tid>.+)',
    re.DOTALL,
)
_TIMED: Final = pl.col("regular") & pl.col("t").is_not_null() & pl.col("dur").is_not_null()


def read(source: Source) -> Trace:
    """Read a trace that torch printed; raise RefusedError for any other."""
    front, separator, _ = source.head.text.partition(_ARRAY)
    if not separator or b"\r" in source.head.raw:
        raise RefusedError("no list of events near the start")
    layout = _layout(source.head.text[len(front) :])
    pieces = _scan(source.path, layout, front.count("{"))
    ending, truncated = _ending(source, pieces["piece"].item(-1))
    regular = pieces.filter("regular").select(WANTED)
    joined, blocks = _join_pieces(pieces.drop(WANTED), layout)
    torn = ending[ending.rfind(_OPEN) :]
    if truncated and _CLOSE not in torn and '"ph": "X"' in torn and not _open(blocks[-1:]):
        regular = regular.head(-1)
        source.log.read += 1
        source.log.drop("torn_event", "the last event is cut off", at=source.size)
    complete = _labelled(pl.concat([regular, joined]), source)
    source.log.read += complete.rows.height
    rest = trace_of(parse_blocks(_texts(blocks, truncated), source.log), {}, truncated, source.log)
    if truncated:
        source.log.note(
            "cut_short", "the file ends inside its list of events", at=source.size, severity="data_loss"
        )
    return Trace(complete + rest.complete, rest.others, _header(front, ending), truncated)


def _layout(events: str) -> Layout:
    for layout in (SPREAD, GROUPED):
        if _OPEN + layout.opening in events:
            return layout
    raise RefusedError("not a layout that torch prints")


def _scan(path: Path, layout: Layout, braces: int) -> pl.DataFrame:
    """Return one row a regular event: label, times and correlation; the pieces of the others as they are.

    Arrows are left out, and the arguments of events; the last piece is always there.
    """
    piece, last = pl.col("piece"), pl.col("after").is_null()
    known = pl.any_horizontal(piece.str.starts_with(text) for text in (*_ARROWS, _ARGUMENTS))
    pieces = (
        pl.scan_csv(
            path, has_header=False, separator="\x01", eol_char="{", quote_char=None,
            schema={"piece": pl.String}, empty_string_is_null=False, row_index_name="row",
        )
        .with_columns(after=piece.shift(-1), regular=piece.str.starts_with(layout.opening), known=known)
        .with_columns(needed=pl.col("known").shift(-1))
        .filter(pl.col("row") > braces, pl.col("regular") | ~pl.col("known") | last)
    )  # fmt: skip
    unlinked = (
        pl.col("linked") & pl.col("correlation").is_null()
    )  # a brace cuts its arguments, or it has none
    events = (
        read_events(pieces, layout)
        .with_columns(regular=(_TIMED & ~unlinked).fill_null(False))
        .select(
            *WANTED, "row", "regular",
            piece=_copied(piece, ~pl.col("regular") | last),
            after=_copied(pl.col("after"), ~pl.col("regular") & pl.col("needed")),
        )
    )  # fmt: skip
    os.environ.setdefault("POLARS_CSV_CHUNK_SIZE", str(CHUNK))  # read by polars at each scan
    try:
        scanned = events.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as e:
        raise RefusedError(str(e)[:200]) from None
    if not scanned["regular"].any():
        raise RefusedError("no event stands as expected")
    return scanned


def _copied(text: pl.Expr, where: pl.Expr) -> pl.Expr:
    """Return text as a copy: a mere view of it would hold all that was read with it."""
    return pl.concat_str(pl.when(where).then(text), pl.lit(""))


def _join_pieces(pieces: pl.DataFrame, layout: Layout) -> tuple[pl.DataFrame, list[str]]:
    """Put irregular events together: return the complete ones as rows, the rest as text."""
    begins = pl.col("piece").str.starts_with(_EVENT)
    irregular = (
        pieces.with_columns(begins=begins, event=(pl.col("regular") | begins).cum_sum())
        .filter(~pl.col("regular"))
        .with_columns(batch=pl.col("event").rle_id() // BATCH)
    )
    batches = irregular.partition_by("batch", maintain_order=True) or [irregular]
    parts = [_read_events(_event_texts(batch), layout) for batch in batches]
    return pl.concat([rows for rows, _ in parts]), [block for _, blocks in parts for block in blocks]


def _read_events(events: pl.DataFrame, layout: Layout) -> tuple[pl.DataFrame, list[str]]:
    closed = pl.col("piece").str.contains(_CLOSE, literal=True)
    complete = pl.col("piece").str.starts_with(layout.opening)
    read_rows = (
        read_events(events.lazy().with_columns(after="piece", regular=complete), layout)
        .with_columns(known=(_TIMED & closed).fill_null(False))
        .collect()
    )
    return read_rows.filter("known").select(WANTED), read_rows.filter(~pl.col("known"))["piece"].to_list()


def _event_texts(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the text of each event whose first piece is irregular, without what follows a regular one."""
    same, step = pl.col("event") == pl.col("event").shift(-1), pl.col("row").shift(-1) - pl.col("row")
    events = (
        pieces.with_columns(lost=(same & (step > 2)).fill_null(False))
        .with_columns(after=pl.when((~(same & (step == 1))).fill_null(True)).then("after"))
        .with_columns(text=pl.concat_str("piece", "after", separator="{", ignore_nulls=True))
        .group_by("event", maintain_order=True)
        .agg(pl.col("begins").first(), pl.col("lost").any(), piece=pl.col("text").str.join("{"))
        .filter("begins")
    )
    if events["lost"].any():
        raise RefusedError("an event has more parts than expected")
    return events


def _ending(source: Source, last: str) -> tuple[str, bool]:
    """Return the end of the file, and whether it is inside the list of events."""
    if _END in last:
        return last, False
    tail = _tail(source)
    if _END in tail:
        raise RefusedError("what follows the events is more than one piece")
    return tail, True


def _tail(source: Source) -> str:
    if not source.gzipped:
        with source.path.open("rb") as f:
            f.seek(max(0, source.size - TAIL))
            return f.read().decode("utf-8", "replace").rstrip()
    tail = b""
    for chunk in source.chunks():
        tail = (tail + chunk)[-TAIL:]
    return tail.decode("utf-8", "replace").rstrip()


def _open(blocks: list[str]) -> bool:
    return any(_CLOSE not in block for block in blocks)


def _texts(blocks: list[str], truncated: bool) -> list[str]:
    """Return each block as the JSON of one event; only the last of a cut file may lack its end."""
    if _open(blocks[:-1] if truncated else blocks):
        raise RefusedError("an event is longer than expected")
    return ["{" + block.partition(_CLOSE)[0] + ("}" if _CLOSE in block else "") for block in blocks]


def _labelled(rows: pl.DataFrame, source: Source) -> Complete:
    """Return rows in the common form; each distinct label is read once."""
    words = rows["label"].unique().drop_nulls()
    parsed = [_read_label(word) for word in words.cast(pl.String)]
    frame = rows.select(positions_of(rows["label"], words).alias("label"), *WANTED[1:])
    labels = label_frame(label or (None, "", "") for label in parsed)
    if all(parsed):
        return Complete(frame, labels)
    broken = [i for i, label in enumerate(parsed) if not label]
    kept = frame.filter(~pl.col("label").is_in(broken))
    source.log.read += frame.height - kept.height
    source.log.drop("bad_event", "events whose JSON is broken", count=frame.height - kept.height)
    return Complete(kept, labels)


def _read_label(text: str) -> tuple[str, str, str] | None:
    match = _LABEL.fullmatch(text)
    if not match:
        return None
    if "\n" in match["tid"]:
        raise RefusedError("an event has more keys than expected")
    cat, name = json_text(match["cat"]), json_text(match["name"])
    if cat is None or name is None:
        return None
    return cat, name, f"{raw_text(match['pid'].encode())}{PLACE}{raw_text(match['tid'].encode())}"


def _header(front: str, ending: str) -> dict[str, Any]:
    """Return the keys before and after the list of events."""
    after = ending.rpartition(_END)[2] if _END in ending else "}"
    try:
        header: dict[str, Any] = json.loads(f"{front}{_ARRAY}]{after}", strict=False)
    except ValueError:
        return {}
    header.pop("traceEvents")
    return header
