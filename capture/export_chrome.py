"""Writes runs as a Chrome trace, for a trace viewer: every event with a start, a process a run."""

from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import msgspec
import polars as pl

from capture.run import Run

_ARGS: Final = (
    "step",
    "phase",
    "layer",
    "op",
    "category",
    "lens",
    "path",
    "shape",
    "launch",
    "launch_dur",
    "launcher",
    "line",
    "grid",
    "block",
    "registers",
    "shared",
    "occupancy",
    "flops",
    "bytes",
    "tokens",
    "context",
    "batch",
    "count",
)


def write_chrome(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write an event a line; return a note of what a timeline cannot hold."""
    file.write(b'{"displayTimeUnit":"ns","otherData":' + _about(runs) + b',"traceEvents":[')
    comma = b"\n"
    for pid, run in enumerate(runs):
        for event in _events(run, pid):
            file.write(comma + event)
            comma = b",\n"
    file.write(b"\n]}\n")
    timeless = sum(run.events.height - _timed(run).height for run in runs)
    return [f"{timeless:,} rows have no start and are not on the trace"] if timeless else []


def _about(runs: Sequence[Run]) -> bytes:
    return msgspec.json.encode({run.name: run.meta for run in runs}, enc_hook=str)


def _timed(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("t").is_not_null()) if run.has("t") else run.events.clear()


def _events(run: Run, pid: int) -> Iterator[bytes]:
    yield msgspec.json.encode({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": run.name}})
    lanes: dict[str, int] = {}
    for row in _timed(run).iter_rows(named=True):
        lane = _lane(row)
        if lane not in lanes:
            lanes[lane] = len(lanes)
            about = {"ph": "M", "name": "thread_name", "pid": pid, "tid": lanes[lane], "args": {"name": lane}}
            yield msgspec.json.encode(about)
        yield msgspec.json.encode(_event(row) | {"pid": pid, "tid": lanes[lane], "ts": _us(row["t"])})


def _lane(row: dict[str, Any]) -> str:
    """Return the lane of a row: those that nest share one; steps, spans, kernels, lenses have their own."""
    return " ".join(str(row[k]) for k in ("track", "lens", "kind") if row.get(k) is not None)


def _event(row: dict[str, Any]) -> dict[str, Any]:
    if row["kind"] in ("counter", "memory"):
        value = row.get("value") if row["kind"] == "counter" else row.get("bytes")
        return {"ph": "C", "name": row["name"], "args": {row.get("unit") or row["kind"]: value}}
    args = {name: row[name] for name in _ARGS if row.get(name) is not None}
    shape: dict[str, Any] = {"name": row["name"], "cat": row["kind"], "args": args}
    if row.get("dur") is None:
        return shape | {"ph": "i", "s": "t"}
    return shape | {"ph": "X", "dur": _us(row["dur"])}


def _us(ns: int) -> msgspec.Raw:
    """Return nanoseconds as microseconds, exact to the last digit."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())
