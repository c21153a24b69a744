"""Export runs as native lines, Parquet, CSV or a Chrome trace, chosen by file suffix."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import polars as pl

from capture.errors import UsageError
from capture.files.atomic import write_atomically
from capture.native.saved_tables import PARQUET_KEY, PARQUET_SCHEMA
from capture.native.write import build_table_record, write_native
from capture.run import Run

_FORMULA_START: Final = r"^([=+\-@\t\r])"
_EVENT_ARGS: Final = (
    "step", "phase", "layer", "op", "category", "lens", "path", "shape", "dtype", "launch", "launch_dur",
    "launcher", "line", "grid", "block", "registers", "shared", "occupancy", "flops", "bytes", "tokens",
    "context", "batch", "count",
)  # fmt: skip


def export(runs: Sequence[Run], path: Path, *, overwrite: bool = False) -> list[str]:
    """Write the runs atomically; return a note for each thing that the format cannot hold."""
    write = WRITERS_BY_SUFFIX[path.suffix]
    with write_atomically(path, overwrite=overwrite) as file:
        return write(runs, file)


def _write_parquet(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write one run: events as columns, everything else in the file's metadata."""
    if len(runs) != 1:
        raise UsageError(f"a parquet file contains one run, not {len(runs)}", todo="choose one with --run")
    run = runs[0]
    tables = [build_table_record(name, table) for name, table in run.tables.items()]
    extra = {"schema": PARQUET_SCHEMA, "name": run.name, "meta": run.meta, "log": run.log.as_dict()}
    extra["tables"] = [record for record, _ in tables]
    saved = msgspec.json.encode(extra, enc_hook=str).decode()
    run.events.write_parquet(file, compression="zstd", compression_level=1, metadata={PARQUET_KEY: saved})
    return [note for _, note in tables if note]


def _write_csv(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write the events; text that spreadsheets would run as a formula is quoted."""
    frames = [run.events.select(pl.lit(run.name).alias("run"), pl.all()) for run in runs]
    frame = pl.concat(frames, how="diagonal") if len(frames) > 1 else runs[0].events
    text = [name for name, type in frame.schema.items() if type in (pl.Categorical, pl.String)]
    quoted = (pl.col(c).cast(pl.String).str.replace(_FORMULA_START, "'$1") for c in text)
    frame.with_columns(quoted).write_csv(file)
    omitted = [what for what in ("meta", "tables") if any(getattr(run, what) for run in runs)]
    return [f"CSV contains only the events, not {' and '.join(omitted)}"] if omitted else []


def write_chrome(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write one trace event per line, one process per run; return a note on rows without a start."""
    meta = msgspec.json.encode({run.name: run.meta for run in runs}, enc_hook=str)
    file.write(b'{"displayTimeUnit":"ns","otherData":' + meta + b',"traceEvents":[')
    comma = b"\n"
    for pid, run in enumerate(runs):
        for event in _iter_events(run, pid):
            file.write(comma + event)
            comma = b",\n"
    file.write(b"\n]}\n")
    timeless = sum(run.events.height - _select_timed(run).height for run in runs)
    return [f"{timeless:,} rows have no start and are not in the trace"] if timeless else []


def _select_timed(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("t").is_not_null()) if run.has("t") else run.events.clear()


def _iter_events(run: Run, pid: int) -> Iterator[bytes]:
    yield msgspec.json.encode({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": run.name}})
    lanes: dict[str, int] = {}
    for row in _select_timed(run).iter_rows(named=True):
        lane = _format_lane(row)
        if lane not in lanes:
            lanes[lane] = len(lanes)
            thread = {"ph": "M", "name": "thread_name", "pid": pid, "tid": lanes[lane]}
            yield msgspec.json.encode({**thread, "args": {"name": lane}})
        place = {"pid": pid, "tid": lanes[lane], "ts": _convert_to_us(row["t"])}
        yield msgspec.json.encode(_build_event(row) | place)


def _format_lane(row: dict[str, Any]) -> str:
    """Return the lane of a row: nesting rows share one; tracks, lenses and kinds are separate."""
    return " ".join(str(row[k]) for k in ("track", "lens", "kind") if row.get(k) is not None)


def _build_event(row: dict[str, Any]) -> dict[str, Any]:
    if row["kind"] in ("counter", "memory"):
        value = row.get("value") if row["kind"] == "counter" else row.get("bytes")
        return {"ph": "C", "name": row["name"], "args": {row.get("unit") or row["kind"]: value}}
    args = {name: row[name] for name in _EVENT_ARGS if row.get(name) is not None}
    event: dict[str, Any] = {"name": row["name"], "cat": row["kind"], "args": args}
    if row.get("dur") is None:
        return event | {"ph": "i", "s": "t"}
    return event | {"ph": "X", "dur": _convert_to_us(row["dur"])}


def _convert_to_us(ns: int) -> msgspec.Raw:
    """Return nanoseconds as microseconds, exact to the last digit."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


WRITERS_BY_SUFFIX: Final[Mapping[str, Callable[[Sequence[Run], IO[bytes]], list[str]]]] = {
    ".jsonl": write_native,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".json": write_chrome,
}
