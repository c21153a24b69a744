"""Which tables of an nsys export are read, and what stands in them."""

from dataclasses import dataclass
from typing import Final, Protocol

import polars as pl

from capture.importlog import Log
from capture.loaders._database import Wanted
from capture.text import clean

FURTHEST: Final = 1 << 62  # ns; a start or an end beyond it is no time

PLACE: Final = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
GRID: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
_LARGEST: Final = (1 << 31) - 1
SHARED: Final = ("staticSharedMemory", "dynamicSharedMemory")
_CUDA_BACKTRACE: Final = "<> 67"

COPY_KINDS: Final = {
    1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host", 5: "Array-to-Array",
    6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer",
    11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip

KERNELS: Final = Wanted(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    (*PLACE, "name=demangledName|shortName|mangledName", *GRID, *SHARED, "graphNodeId"),
)
COPIES: Final = Wanted("CUPTI_ACTIVITY_KIND_MEMCPY", (*PLACE, "bytes", "copyKind", "srcKind", "dstKind"))
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


MEMORY_KINDS: Final = "ENUM_CUDA_MEM_KIND"


class Store(Protocol):
    """Where the tables of an export are, whatever its form."""

    log: Log
    tables: dict[str, list[str]]  # name → columns
    rows: dict[str, int]  # name → rows read
    strays: dict[str, int]  # texts that stand where an id should → the ids that they were given

    def read(self, wanted: Wanted) -> pl.DataFrame:
        """Return the rows of a table."""
        ...

    def pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Return a small table of names and values."""
        ...


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
    memory_kinds: dict[int, str]  # as the file itself names them: the numbers differ between versions


def read_tables(db: Store) -> Tables:
    """Return all rows of the tables that are used; the strings last, when every stray name has its id."""
    kernels, copies, fills = _timed(db, KERNELS), _timed(db, COPIES), _timed(db, FILLS)
    return Tables(
        kernels=kernels,
        copies=copies,
        fills=fills,
        graphs=_timed(db, GRAPHS),
        waits=_on_device(_timed(db, WAITS), [kernels, copies, fills]),
        calls=_timed(db, CALLS),
        ranges=_timed(db, RANGES),
        threads=db.read(THREADS),
        strings=_strings(db),
        memory_kinds=_memory_kinds(db),
    )


def _strings(db: Store) -> pl.DataFrame:
    """Return every name by its id, those too that stand where an id should."""
    stated = db.read(Wanted("StringIds", ("id", "value"), texts=("value",), needs=()))
    strays = pl.DataFrame(
        {"id": list(db.strays.values()), "value": list(db.strays)},
        schema={"id": pl.Int64, "value": pl.String},
    )
    both = pl.concat([stated, strays]).drop_nulls().unique("id", keep="first")
    return both.with_columns(pl.col("value").cast(pl.Categorical()))


def _memory_kinds(db: Store) -> dict[int, str]:
    """Return the kinds of memory by their numbers, as the file itself names them."""
    pairs = db.pairs(MEMORY_KINDS, "id", "label")
    return {int(number): clean(label, 60) for number, label in pairs if number.isdecimal()}


def _on_device(waits: pl.DataFrame, work: list[pl.DataFrame]) -> pl.DataFrame:
    """Return waits with the device of their context.

    The profiler writes device 0 for every wait; a context belongs to one device, which its work tells.
    """
    owners = (
        pl.concat([rows.select("globalPid", "contextId", "deviceId") for rows in work])
        .drop_nulls()
        .unique()
        .filter(pl.len().over("globalPid", "contextId") == 1)
        .rename({"deviceId": "device"})
    )
    placed = waits.join(owners, on=["globalPid", "contextId"], how="left", maintain_order="left")
    return placed.with_columns(deviceId=pl.coalesce("device", "deviceId")).drop("device")


def copy_table(tables: Tables) -> pl.DataFrame:
    """Return the copies by direction, device and the kinds of memory at both ends, with their rates."""
    seconds = (pl.col("end") - pl.col("start")).sum() / 1e9
    grouped = tables.copies.group_by("copyKind", "srcKind", "dstKind", "deviceId").agg(
        count=pl.len(),
        bytes=pl.col("bytes").sum(),
        total_ns=(pl.col("end") - pl.col("start")).sum(),
        gb_per_s=pl.when(seconds > 0).then(pl.col("bytes").sum() / 1e9 / seconds),
    )
    kinds = tables.memory_kinds
    ends = [
        pl.col(column).replace_strict(kinds, default=None, return_dtype=pl.String).alias(name)
        for column, name in (("srcKind", "source"), ("dstKind", "target"))
    ]
    direction = pl.col("copyKind").replace_strict(COPY_KINDS, default="of an unknown kind")
    return grouped.sort("total_ns", descending=True).select(
        direction.alias("direction"), *ends, pl.col("deviceId").alias("device"),
        "count", "bytes", "total_ns", "gb_per_s",
    )  # fmt: skip


def with_resources(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return kernels with the columns of the schema for how each was launched, in place of the file's own."""
    distinct = kernels.select(GRID).unique()
    texts = distinct.with_columns(
        pl.concat_str(axes, separator="x").cast(pl.Categorical()).alias(name)
        for name, axes in (("grid", GRID[:3]), ("block", GRID[3:6]))
    )
    rows = kernels.join(texts, on=GRID, how="left", nulls_equal=True, maintain_order="left")
    shared = pl.sum_horizontal(SHARED, ignore_nulls=False)
    return rows.with_columns(
        pl.when(size.is_between(0, _LARGEST)).then(size).cast(pl.Int32()).alias(name)
        for name, size in (("registers", pl.col(GRID[6])), ("shared", shared))
    ).drop(GRID, SHARED)


def _timed(db: Store, wanted: Wanted) -> pl.DataFrame:
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
