"""rocprof CSVs: traces of kernels, copies and API calls, statistics, and counter files with times.

Read: the tables of rocprof, rocprofv3, rocpd2csv and rocprofiler-compute, whatever the case of their
headings. Not read: agent information, and times that a spreadsheet has rounded (these kernels have no
duration).
rocprofv3: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.inference import with_inferred
from capture.loaders._json_document import number, whole
from capture.run import Run, build
from capture.source import Head, Source

FORMAT: Final = "rocprof-csv"
PRODUCER: Final = "AMD rocprof, rocprofv3, rocpd2csv, rocprofiler-compute"
HOWTO: Final = "rocprofv3 --kernel-trace --stats --output-format csv -- python run.py"

_TIMES: Final = {"start_timestamp", "end_timestamp"}
_STATISTICS: Final = {"name", "calls", "totaldurationns", "averagens"}
_FLOATED: Final = re.compile(r"\d+(?:[.,]\d+)?[eE]\+?\d+")
_ROW: Final = {
    "kind": pl.String, "name": pl.String, "t": pl.Int64, "dur": pl.Int64, "count": pl.Int64, "min": pl.Int64,
    "max": pl.Int64, "std": pl.Int64, "lens": pl.String, "track": pl.String, "category": pl.String,
}  # fmt: skip
_TOO_LONG: Final = 1 << 24

Cells = dict[str, str]


def sniff(head: Head) -> bool:
    return _reader(_header(head.start.split("\n", 1)[0])) is not None


def load(source: Source) -> list[Run]:
    csv.field_size_limit(_TOO_LONG)
    lines = source.text().replace("\0", "").lstrip().split("\n")
    header = _header(lines[0])
    read = _reader(header)
    if read is None:
        raise UnreadableError("has no header that rocprof writes", where=source.label)
    records = list(_records(lines[1:], header, source.log))
    rows = [read(cells) for cells in _once(records)]
    events = _plausible(pl.DataFrame(rows, schema=_ROW), source.log)
    meta = {"producer": "rocprof", "profiled": True}
    run = build(Path(source.label).name, meta, events, source.log, _counters(records))
    return [with_inferred(run, source.log)]


def _header(line: str) -> list[str]:
    try:
        return [name.strip().lower() for name in next(csv.reader([line.strip().lstrip("\ufeff")]), [])]
    except csv.Error:
        return []


def _reader(header: list[str]) -> Callable[[Cells], dict[str, Any]] | None:
    """Return the function that reads a row under this header; None for headers of other programs."""
    names = set(header)
    if names >= _STATISTICS:
        return _statistic
    if names >= _TIMES and "kernel_name" in names:
        return _kernel
    if names >= _TIMES and "direction" in names:
        return _copy
    if names >= _TIMES and {"domain", "function"} <= names:
        return _call
    return None


def _records(lines: list[str], header: list[str], log: Log) -> Iterator[Cells]:
    """Yield each line by its column names; a line that does not fit the header is dropped and counted."""
    for line in lines:
        if not line.strip():
            continue
        log.read += 1
        cells = _cells(line)
        if len(cells) == len(header):
            yield dict(zip(header, cells, strict=True))
        else:
            log.drop("ragged_row", "rows that do not have as many cells as the header")


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _once(records: list[Cells]) -> list[Cells]:
    """Return each dispatch once: counter files repeat it for each counter."""
    if not records or "counter_name" not in records[0]:
        return records
    return list({(r.get("dispatch_id"), r.get("correlation_id")): r for r in reversed(records)}.values())[
        ::-1
    ]


def _counters(records: list[Cells]) -> dict[str, pl.DataFrame]:
    if not records or "counter_name" not in records[0]:
        return {}
    kept = ("dispatch_id", "kernel_name", "counter_name", "counter_value")
    return {"counters": pl.DataFrame([{k: r.get(k) for k in kept} for r in records])}


def _kernel(cells: Cells) -> dict[str, Any]:
    device = cells.get("agent_id") or cells.get("gpu_id") or "?"
    lane = next((f"/{k}{cells[f'{k}_id']}" for k in ("stream", "queue") if cells.get(f"{k}_id")), "")
    track = f"gpu{device.removeprefix('Agent').strip()}{lane}"
    return _timed(cells) | {"kind": "kernel", "name": cells["kernel_name"], "lens": "gpu", "track": track}


def _copy(cells: Cells) -> dict[str, Any]:
    stream = cells.get("stream_id")
    return _timed(cells) | {
        "kind": "kernel",
        "name": cells["direction"],
        "lens": "gpu",
        "track": f"copy/stream{stream}" if stream else "copy",
        "category": "copy",
    }


def _call(cells: Cells) -> dict[str, Any]:
    track = f"thread {cells.get('thread_id', '?')}"
    name = {"name": cells["function"], "track": track}
    return _timed(cells) | name | {"kind": "span", "lens": "host", "category": "host"}


def _statistic(cells: Cells) -> dict[str, Any]:
    """Return a row over all calls of one name: an aggregate without a time."""
    host = re.match(r"(?:hip|hsa|roctx|rccl|nccl|__hip)[A-Z_]", cells["name"])
    return {
        "kind": "span" if host else "kernel",
        "name": cells["name"],
        "dur": _rounded(cells["totaldurationns"]),
        "count": _rounded(cells["calls"]),
        "min": _rounded(cells.get("minns")),
        "max": _rounded(cells.get("maxns")),
        "std": _rounded(cells.get("stddev")),
        "lens": "host" if host else "gpu",
    }


def _rounded(text: str | None) -> int | None:
    value = number(text)
    return None if value is None or abs(value) > 1 << 62 else round(value)


def _timed(cells: Cells) -> dict[str, Any]:
    """Return start and duration; times that a spreadsheet rounded (8.1097E+14) are none."""
    begin, end = cells["start_timestamp"], cells["end_timestamp"]
    if _FLOATED.fullmatch(begin.strip()) or _FLOATED.fullmatch(end.strip()):
        return {"t": None, "dur": None, "count": 1}
    start, stop = whole(begin), whole(end)
    lost = start is None or stop is None
    return {"t": start, "dur": None if lost else (stop or 0) - (start or 0), "count": None if lost else 1}


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
