"""rocprof CSVs: traces of kernels, copies and API calls, statistics, and counter files with times.

Read: the tables of rocprof, rocprofv3, rocpd2csv and rocprofiler-compute, whatever the case of their
headings. Not read: agent information, and times that a spreadsheet has rounded (these kernels have no
duration).
rocprofv3: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

import csv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from capture.at_once import at_once
from capture.errors import UnreadableError
from capture.importlog import Log
from capture.inference import with_inferred
from capture.loaders._distinct import fixed, of_distinct
from capture.loaders._json_document import number, whole
from capture.loaders._separated import integers, reals, records
from capture.run import Run, build
from capture.source import Head, Source

FORMAT: Final = "rocprof-csv"
PRODUCER: Final = "AMD rocprof, rocprofv3, rocpd2csv, rocprofiler-compute"
HOWTO: Final = "rocprofv3 --kernel-trace --stats --output-format csv -- python run.py"

_TIMES: Final = {"start_timestamp", "end_timestamp"}
_STATISTICS: Final = {"name", "calls", "totaldurationns", "averagens"}
_FLOATED: Final = r"^\s*[0-9]+(?:[.,][0-9]+)?[eE]\+?[0-9]+\s*$"
_HOST: Final = r"^(?:hip|hsa|roctx|rccl|nccl|__hip)[A-Z_]"
_COUNTER: Final = "counter_name"
_TOO_LONG: Final = 1 << 24
_LARGEST: Final = 1 << 62


def sniff(head: Head) -> bool:
    return _reader(_header(head.start.split("\n", 1)[0])) is not None


def load(source: Source) -> list[Run]:
    csv.field_size_limit(_TOO_LONG)
    text = source.utf8()
    text = (text.replace(b"\0", b"") if b"\0" in text else text).lstrip()
    end = text.find(b"\n")
    header = _header(text[: end if end >= 0 else len(text)].decode())
    read = _reader(header)
    if read is None:
        raise UnreadableError("has no header that rocprof writes", where=source.label)
    rows = _records(text, header, source.log)
    events = _plausible(read(_once(rows)), source.log)
    meta = {"producer": "rocprof", "profiled": True}
    run = build(Path(source.label).name, meta, events, source.log, _counters(rows))
    return [with_inferred(run, source.log)]


def _header(line: str) -> list[str]:
    try:
        return [name.strip().lower() for name in next(csv.reader([line.strip().lstrip("\ufeff")]), [])]
    except csv.Error:
        return []


def _reader(header: list[str]) -> Callable[[pl.DataFrame], pl.DataFrame] | None:
    """Return the function that reads the rows under this header; None for headers of other programs."""
    names = set(header)
    if names >= _STATISTICS:
        return _statistics
    if names >= _TIMES and "kernel_name" in names:
        return _kernels
    if names >= _TIMES and "direction" in names:
        return _copies
    if names >= _TIMES and {"domain", "function"} <= names:
        return _calls
    return None


def _records(text: bytes, header: Sequence[str], log: Log) -> pl.DataFrame:
    """Return the lines below the header as cells by column names; those that do not fit are dropped."""
    places = [str(at) for at in range(len(header))]
    rows, bad = records(text, ",", places, _cells, skip=1)
    log.read += rows.height + len(bad)
    log.drop("ragged_row", "rows that do not have as many cells as the header", count=len(bad))
    by_name = dict(zip(header, places, strict=True))  # of two columns of one name the last
    return rows.select(pl.col(place).alias(name) for name, place in by_name.items())


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """Return each dispatch once: counter files repeat it for each counter."""
    if _COUNTER not in rows.columns:
        return rows
    told_by = [c for c in ("dispatch_id", "correlation_id") if c in rows.columns]
    return rows.unique(told_by, keep="first", maintain_order=True) if told_by else rows.head(1)


def _counters(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    if _COUNTER not in rows.columns or rows.is_empty():
        return {}
    kept = ("dispatch_id", "kernel_name", _COUNTER, "counter_value")
    return {"counters": rows.select(_stated(rows, column).alias(column) for column in kept)}


def _stated(rows: pl.DataFrame, *columns: str) -> pl.Expr:
    """Return the first of some columns that a row states; null where it states none."""
    stated = [pl.when(pl.col(c) != "").then(c) for c in columns if c in rows.columns]
    return pl.coalesce(stated) if stated else pl.lit(None, dtype=pl.String)


def _kernels(rows: pl.DataFrame) -> pl.DataFrame:
    device = _stated(rows, "agent_id", "gpu_id").fill_null("?")
    lanes = [pl.lit(f"/{k}") + _stated(rows, f"{k}_id") for k in ("stream", "queue")]
    track = (
        pl.lit("gpu") + device.str.strip_prefix("Agent").str.strip_chars() + pl.coalesce(*lanes, pl.lit(""))
    )
    told_by = ("agent_id", "gpu_id", "stream_id", "queue_id")
    return rows.select(
        *_timed(rows), name="kernel_name", track=of_distinct(rows, told_by, track)
    ).with_columns(fixed(kind="kernel", lens="gpu"))


def _copies(rows: pl.DataFrame) -> pl.DataFrame:
    track = pl.coalesce(pl.lit("copy/stream") + _stated(rows, "stream_id"), pl.lit("copy"))
    return rows.select(*_timed(rows), name="direction", track=track).with_columns(
        fixed(kind="kernel", lens="gpu", category="copy")
    )


def _calls(rows: pl.DataFrame) -> pl.DataFrame:
    thread = pl.col("thread_id") if "thread_id" in rows.columns else pl.lit("?")
    return rows.select(*_timed(rows), name="function", track=pl.lit("thread ") + thread).with_columns(
        fixed(kind="span", lens="host", category="host")
    )


def _statistics(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row over all calls of each name: aggregates without a time."""
    columns = {"dur": "totaldurationns", "count": "calls", "min": "minns", "max": "maxns", "std": "stddev"}
    figures = [_rounded(rows[c]).alias(name) for name, c in columns.items() if c in rows.columns]
    host = pl.col("name").str.contains(_HOST)
    return rows.select("name", *figures).with_columns(
        kind=pl.when(host).then(pl.lit("span")).otherwise(pl.lit("kernel")),
        lens=pl.when(host).then(pl.lit("host")).otherwise(pl.lit("gpu")),
    )


def _rounded(texts: pl.Series) -> pl.Series:
    values = reals(texts, number)
    reached = pl.select(pl.when(values.abs() <= _LARGEST).then(values.round(mode="half_to_even")))
    return reached.to_series().cast(pl.Int64)


def _timed(rows: pl.DataFrame) -> list[pl.Series]:
    """Return starts, durations and counts; times that a spreadsheet rounded (8.1097E+14) are none.

    A row whose times are no numbers has no count.
    """
    begin, end = rows["start_timestamp"], rows["end_timestamp"]
    start, stop = at_once([partial(integers, texts, whole) for texts in (begin, end)], rows.height)
    length = stop - start
    if not length.null_count():
        return [
            start.alias("t"),
            length.alias("dur"),
            pl.repeat(1, rows.height, dtype=pl.Int64, eager=True).alias("count"),
        ]
    floated = begin.str.contains(_FLOATED) | end.str.contains(_FLOATED)
    timed = ~floated & length.is_not_null()
    times = pl.select(
        t=pl.when(~floated).then(start),
        dur=pl.when(timed).then(length),
        count=pl.when(floated | timed).then(pl.lit(1, dtype=pl.Int64)),
    )
    return times.get_columns()


def _plausible(rows: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Drop rows without any number; keep rows whose times were rounded, and note that they have none."""
    lost = pl.col("dur").is_null() & pl.col("count").is_null()
    kept = rows.filter(~lost)
    log.drop("bad_time", "rows whose times are no numbers", count=rows.height - kept.height)
    rounded = kept["dur"].null_count()
    if rounded:
        log.note(
            "mangled_times",
            "times that a spreadsheet rounded to a few digits; these kernels have no duration",
            count=rounded,
            severity="data_loss",
        )
    return kept
