"""rocprof CSVs: traces of kernels, copies and API calls, statistics, and counter files with times.

Read: the tables of rocprof, rocprofv3, rocpd2csv and rocprofiler-compute, in any case of their headings. Not
read: agent information, and times that a spreadsheet has rounded (those kernels have no duration).
rocprofv3: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

import csv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from capture.dense_lookup import build_constant_columns, evaluate_per_distinct
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.infer_structure import add_inferred_structure
from capture.loaders._delimited import parse_floats, parse_integers, split_with_fallback
from capture.loaders._json_document import to_finite_float, to_integer
from capture.run import Run, build_run
from capture.source import Head, Source
from capture.tasks import run_parallel

FORMAT: Final = "rocprof-csv"
PRODUCER: Final = "AMD rocprof, rocprofv3, rocpd2csv, rocprofiler-compute"
HOWTO: Final = "rocprofv3 --kernel-trace --stats --output-format csv -- python run.py"

_ROUNDED_TIME: Final = r"^\s*[0-9]+(?:[.,][0-9]+)?[eE]\+?[0-9]+\s*$"
_HOST_API: Final = r"^(?:hip|hsa|roctx|rccl|nccl|__hip)[A-Z_]"
_COUNTER: Final = "counter_name"
# headings of rocprof until ROCm 6 → those of its successors; behind them stands a column per counter
_OLD_HEADINGS: Final = {
    "index": "dispatch_id", "kernelname": "kernel_name", "gpu-id": "gpu_id", "queue-id": "queue_id",
    "beginns": "start_timestamp", "endns": "end_timestamp",
}  # fmt: skip
_OLD_PROPERTIES: Final = {
    "queue-index", "pid", "tid", "grd", "wgr", "lds", "scr", "vgpr", "arch_vgpr", "accum_vgpr", "sgpr",
    "fbar", "wave_size", "sig", "obj", "dispatchns", "completens", "durationns",
}  # fmt: skip
_MAX_FIELD_BYTES: Final = 1 << 24
_MAX_NS: Final = 1 << 62


def sniff(head: Head) -> bool:
    return _find_reader(_parse_header(head.stripped_text.split("\n", 1)[0])) is not None


def load(source: Source) -> list[Run]:
    csv.field_size_limit(_MAX_FIELD_BYTES)
    text = source.read_utf8()
    text = (text.replace(b"\0", b"") if b"\0" in text else text).lstrip()
    end = text.find(b"\n")
    header = _parse_header(text[: end if end >= 0 else len(text)].decode())
    read = _find_reader(header)
    if read is None:
        raise UnreadableError("has no header of rocprof", where=source.label)
    rows = _read_rows(text, header, source.log)
    events = _drop_invalid_rows(read(_deduplicate_dispatches(rows)), source.log)
    meta = {"producer": "rocprof", "profiled": True}
    run = build_run(Path(source.label).name, meta, events, source.log, _build_tables(rows))
    return [add_inferred_structure(run, source.log)]


def _parse_header(line: str) -> list[str]:
    try:
        header = [name.strip().lower() for name in next(csv.reader([line.strip().lstrip("\ufeff")]), [])]
    except csv.Error:
        return []
    return [_OLD_HEADINGS.get(name, name) for name in header] if "kernelname" in header else header


def _find_reader(header: list[str]) -> Callable[[pl.DataFrame], pl.DataFrame] | None:
    """Find the function that reads the rows under a header; None for headers of other programs."""
    return next((read for columns, read in _READERS if columns <= set(header)), None)


def _read_rows(text: bytes, header: Sequence[str], log: Log) -> pl.DataFrame:
    """Read the lines below the header as cells by column name; drop those that do not fit."""
    positions = [str(position) for position in range(len(header))]
    rows, bad_lines = split_with_fallback(text, ",", positions, _split_line, skip=1)
    log.read += rows.height + len(bad_lines)
    log.drop("ragged_row", "rows with more or fewer cells than the header", count=len(bad_lines))
    position_by_name = dict(zip(header, positions, strict=True))  # the last of two columns with one name
    return rows.select(pl.col(position).alias(name) for name, position in position_by_name.items())


def _split_line(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _deduplicate_dispatches(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep one row per dispatch: counter files repeat it for each counter."""
    if _COUNTER not in rows.columns:
        return rows
    id_columns = [column for column in ("dispatch_id", "correlation_id") if column in rows.columns]
    return rows.unique(id_columns, keep="first", maintain_order=True) if id_columns else rows.head(1)


def _build_tables(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    if "queue-index" in rows.columns:
        return _build_old_counters(rows)
    if _COUNTER not in rows.columns or rows.is_empty():
        return {}
    columns = ("dispatch_id", "kernel_name", _COUNTER, "counter_value")
    return {"counters": rows.select(_first_reported(rows, column).alias(column) for column in columns)}


def _build_old_counters(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    index = ["dispatch_id", "kernel_name"]
    properties = {*_OLD_HEADINGS.values(), *_OLD_PROPERTIES}
    counters = [column for column in rows.columns if column not in properties]
    if not counters or not set(index) <= set(rows.columns):
        return {}
    return {
        "counters": rows.unpivot(counters, index=index, variable_name=_COUNTER, value_name="counter_value")
    }


def _first_reported(rows: pl.DataFrame, *columns: str) -> pl.Expr:
    """First of some columns that has a value in a row, else null."""
    reported = [pl.when(pl.col(column) != "").then(column) for column in columns if column in rows.columns]
    return pl.coalesce(reported) if reported else pl.lit(None, dtype=pl.String)


def _build_rows(rows: pl.DataFrame, name: str, track: pl.Expr | pl.Series, **words: str) -> pl.DataFrame:
    timed = rows.select(*_parse_times(rows), name=name, track=track)
    return timed.with_columns(build_constant_columns(**words))


def _read_kernels(rows: pl.DataFrame) -> pl.DataFrame:
    device = _first_reported(rows, "agent_id", "gpu_id").fill_null("?")
    lanes = [pl.lit(f"/{kind}") + _first_reported(rows, f"{kind}_id") for kind in ("stream", "queue")]
    number = device.str.strip_prefix("Agent").str.strip_chars()
    track = pl.lit("gpu") + number + pl.coalesce(*lanes, pl.lit(""))
    tracks = evaluate_per_distinct(rows, ("agent_id", "gpu_id", "stream_id", "queue_id"), track)
    return _build_rows(rows, "kernel_name", tracks, kind="kernel", lens="gpu")


def _read_copies(rows: pl.DataFrame) -> pl.DataFrame:
    track = pl.coalesce(pl.lit("copy/stream") + _first_reported(rows, "stream_id"), pl.lit("copy"))
    return _build_rows(rows, "direction", track, kind="kernel", lens="gpu", category="copy")


def _read_calls(rows: pl.DataFrame) -> pl.DataFrame:
    thread = pl.col("thread_id") if "thread_id" in rows.columns else pl.lit("?")
    track = pl.lit("thread ") + thread
    return _build_rows(rows, "function", track, kind="span", lens="host", category="host")


def _read_statistics(rows: pl.DataFrame) -> pl.DataFrame:
    """Read one row per name, over all its calls: aggregates without a time."""
    columns = {"dur": "totaldurationns", "count": "calls", "min": "minns", "max": "maxns", "std": "stddev"}
    values = [_parse_rounded(rows[c]).alias(name) for name, c in columns.items() if c in rows.columns]
    is_host = pl.col("name").str.contains(_HOST_API)
    return rows.select("name", *values).with_columns(
        kind=pl.when(is_host).then(pl.lit("span")).otherwise(pl.lit("kernel")),
        lens=pl.when(is_host).then(pl.lit("host")).otherwise(pl.lit("gpu")),
    )


# columns that a header must have, and the function that reads the rows below it; the first match wins
_READERS: Final = (
    ({"name", "calls", "totaldurationns", "averagens"}, _read_statistics),
    ({"start_timestamp", "end_timestamp", "kernel_name"}, _read_kernels),
    ({"start_timestamp", "end_timestamp", "direction"}, _read_copies),
    ({"start_timestamp", "end_timestamp", "domain", "function"}, _read_calls),
)


def _parse_rounded(texts: pl.Series) -> pl.Series:
    values = parse_floats(texts, to_finite_float)
    in_range = pl.select(pl.when(values.abs() <= _MAX_NS).then(values.round(mode="half_to_even")))
    return in_range.to_series().cast(pl.Int64)


def _parse_times(rows: pl.DataFrame) -> list[pl.Series]:
    """Parse starts, durations and counts.

    Times that a spreadsheet rounded (8.1097E+14) become null; a row whose times are not numbers has no count.
    """
    begin, end = rows["start_timestamp"], rows["end_timestamp"]
    parsers = [partial(parse_integers, texts, to_integer) for texts in (begin, end)]
    starts, ends = run_parallel(parsers, rows.height)
    duration = ends - starts
    if not duration.null_count():
        counts = pl.repeat(1, rows.height, dtype=pl.Int64, eager=True)
        return [starts.alias("t"), duration.alias("dur"), counts.alias("count")]
    is_rounded = begin.str.contains(_ROUNDED_TIME) | end.str.contains(_ROUNDED_TIME)
    has_duration = ~is_rounded & duration.is_not_null()
    times = pl.select(
        t=pl.when(~is_rounded).then(starts),
        dur=pl.when(has_duration).then(duration),
        count=pl.when(is_rounded | has_duration).then(pl.lit(1, dtype=pl.Int64)),
    )
    return times.get_columns()


def _drop_invalid_rows(rows: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Drop rows without any number; keep rows with rounded times, and note that they have no duration."""
    is_invalid = pl.col("dur").is_null() & pl.col("count").is_null()
    valid = rows.filter(~is_invalid)
    log.drop("bad_time", "rows whose times are not numbers", count=rows.height - valid.height)
    if rounded_count := valid["dur"].null_count():
        message = "times that a spreadsheet rounded; these kernels have no duration"
        log.note("mangled_times", message, count=rounded_count, severity="data_loss")
    return valid
