"""What scanners of events give away, put together as the `Trace` that every reader gives."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from capture.importlog import Log
from capture.loaders._scan.arrow import table
from capture.loaders.chrome.tables import (
    PLACE,
    UNNAMED,
    Complete,
    Event,
    RefusedError,
    Trace,
    json_text,
    note_lacking,
    raw_text,
    timed,
)  # fmt: skip

_EVENTS: Final = msgspec.json.Decoder(list[Event])


def trace(parts: Sequence[Any], header: dict[str, Any], log: Log) -> Trace:
    """Return what scanners have read, the parts of a file in order; raise RefusedError for events of phases
    that are none.
    """
    try:
        others = [event for part in parts for event in _EVENTS.decode(b"[" + part.others() + b"]")]
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise RefusedError("an event that is none") from None
    read, empty = (sum(part.status()[at] for part in parts) for at in (3, 4))
    log.read += read
    if empty:
        log.note("no_phase", "records that do not say what kind of event they are", count=empty)
    return Trace(_complete(parts, log), others, header)


def _complete(parts: Sequence[Any], log: Log) -> Complete:
    rows, odd, labels, height, known = [], [], [], 0, 0
    for part in parts:
        texts = table(part.texts())["text"].cast(pl.Categorical())
        mine, words, times = (table(give()) for give in (part.rows, part.labels, part.odd))
        rows.append(mine.with_columns(texts.gather(mine["args"]).alias("args"), pl.col("label") + known))
        odd.append(times.with_columns(pl.col("row") + height))
        labels.append(words)
        height, known = height + mine.height, known + words.height
    codes, distinct = _distinct(pl.concat(labels))
    frame = _with_odd_times(pl.concat(rows), pl.concat(odd), log)
    return Complete(frame.with_columns(codes.gather(frame["label"]).alias("label")), distinct)


def _distinct(raw: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Return for each label of the scanners (cat, name, pid, tid as they are written) which label it is, and
    the labels as `Complete` has them, each once.
    """
    places = raw.select("pid", "tid").unique()
    meant = [f"{raw_text(pid.encode())}{PLACE}{raw_text(tid.encode())}" for pid, tid in places.iter_rows()]
    places = places.with_columns(place=pl.Series(meant, dtype=pl.String))
    escaped = raw["name"].filter(raw["name"].str.contains("\\", literal=True)).unique()
    spelled = pl.Series([json_text(f'"{name}"') for name in escaped], dtype=pl.String)
    name = pl.col("name").replace(escaped, spelled).fill_null(UNNAMED)
    placed = raw.join(places, on=["pid", "tid"], how="left", maintain_order="left")
    labels = placed.select("cat", name, "place")
    distinct = labels.unique(maintain_order=True)
    numbered = distinct.with_row_index("code")
    codes = labels.join(numbered, on=labels.columns, how="left", nulls_equal=True, maintain_order="left")
    return codes["code"], distinct


def _with_odd_times(rows: pl.DataFrame, odd: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return rows with the times that the scanner left as texts (row, ts, dur): they are read as by the other
    readers.
    """
    if odd.is_empty():
        note_lacking(rows["dur"].null_count(), log)
        return rows
    rows = rows.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
    odd = odd.with_columns(pl.col("ts", "dur").str.replace_all(r"[^[:ascii:]]", "?"))  # other digits are none
    plain = rows.join(odd, on="row", how="anti", maintain_order="left")
    read = rows.drop("t", "dur").join(timed(odd, log), on="row", maintain_order="left").select(rows.columns)
    note_lacking(plain["dur"].null_count(), log)
    return pl.concat([plain, read]).sort("row").drop("row")
