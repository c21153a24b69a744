"""Which tables of an nsys export are read, and what stands in them."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.loaders.nsys.database import Database, Wanted

FURTHEST: Final = 1 << 62  # ns; a start or an end beyond it is no time

PLACE: Final = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
GRID: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
_CUDA_BACKTRACE: Final = "<> 67"

KERNELS: Final = Wanted(
    "CUPTI_ACTIVITY_KIND_KERNEL", (*PLACE, "name=demangledName|shortName|mangledName", *GRID)
)
COPIES: Final = Wanted("CUPTI_ACTIVITY_KIND_MEMCPY", (*PLACE, "bytes", "copyKind"))
FILLS: Final = Wanted("CUPTI_ACTIVITY_KIND_MEMSET", (*PLACE, "bytes"))
GRAPHS: Final = Wanted("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*PLACE, "graph=graphId|graphExecId"))
WAITS: Final = Wanted("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (*PLACE, "syncType"))
CALLS: Final = Wanted(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    ("start", "end", "globalTid", "correlationId", "name=nameId"),
    where=("eventClass", _CUDA_BACKTRACE),
)
RANGES: Final = Wanted(
    "NVTX_EVENTS",
    ("start", "end", "eventType", "text", "textId", "globalTid"),
    texts=("text",),
    needs=("start",),
    where=("eventType", "IN (34, 59, 60, 70, 71)"),
)
THREADS: Final = Wanted("ThreadNames", ("globalTid", "name=nameId"), needs=())

EVENTS: Final = (KERNELS, COPIES, FILLS, GRAPHS, WAITS, CALLS, RANGES)


@dataclass(frozen=True)
class Tables:
    """What was read, still as the file has it: ids, and ns on the capture's clock."""

    kernels: pl.DataFrame
    copies: pl.DataFrame
    fills: pl.DataFrame
    graphs: pl.DataFrame
    waits: pl.DataFrame
    calls: pl.DataFrame
    ranges: pl.DataFrame
    threads: pl.DataFrame
    strings: pl.DataFrame


def read_tables(db: Database) -> Tables:
    """Return all rows of the tables that are used; the strings last, when every stray name has its id."""
    return Tables(
        kernels=_timed(db, KERNELS),
        copies=_timed(db, COPIES),
        fills=_timed(db, FILLS),
        graphs=_timed(db, GRAPHS),
        waits=_timed(db, WAITS),
        calls=_timed(db, CALLS),
        ranges=_timed(db, RANGES),
        threads=db.read(THREADS),
        strings=db.strings(),
    )


def _timed(db: Database, wanted: Wanted) -> pl.DataFrame:
    rows = db.read(wanted)
    db.log.read += rows.height
    sane = pl.all_horizontal(
        pl.col(c).is_between(-FURTHEST, FURTHEST).fill_null(c not in wanted.needs) for c in ("start", "end")
    )
    kept = rows.filter(sane)
    lost = rows.height - kept.height
    db.log.drop("bad_time", f"rows of {wanted.table} whose times are no whole numbers", count=lost)
    return kept


def launches(tables: Tables) -> pl.DataFrame:
    """Return how each kernel was launched: grid, block, registers, and what that cost."""
    duration = pl.col("end") - pl.col("start")
    grouped = tables.kernels.group_by("name", *GRID).agg(count=pl.len(), total_ns=duration.sum())
    rows = named(grouped, tables.strings, "unnamed kernel").sort("total_ns", descending=True)
    return rows.select(
        pl.col("name").cast(pl.String),
        grid=pl.concat_str("gridX", "gridY", "gridZ", separator="x"),
        block=pl.concat_str("blockX", "blockY", "blockZ", separator="x"),
        registers="registersPerThread",
        count="count",
        total_ns="total_ns",
    )


def named(rows: pl.DataFrame, strings: pl.DataFrame, unknown: str) -> pl.DataFrame:
    """Return rows with the text behind their name's id."""
    rows = rows.rename({"name": "id"}).join(strings, on="id", how="left", maintain_order="left")
    fallback = pl.lit(unknown, dtype=pl.Categorical())
    return rows.with_columns(name=pl.coalesce("value", fallback)).drop("value", "id")
