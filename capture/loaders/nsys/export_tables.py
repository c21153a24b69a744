"""Tables and columns read from an nsys export; its tables of launches and copies."""

from dataclasses import dataclass
from typing import Final, Protocol

import polars as pl

from capture.clean_text import clean
from capture.import_log import Log
from capture.loaders._sqlite import TableQuery

MAX_TIME_NS: Final = 1 << 62  # a start or end beyond it is invalid

DEVICE_COLUMNS: Final = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
LAUNCH_COLUMNS: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
_INT32_MAX: Final = (1 << 31) - 1
SHARED_MEMORY_COLUMNS: Final = ("staticSharedMemory", "dynamicSharedMemory")
_NOT_CUDA_BACKTRACE: Final = "<> 67"

COPY_KINDS: Final = {
    1: "Host-to-Device", 2: "Device-to-Host", 3: "Host-to-Array", 4: "Array-to-Host", 5: "Array-to-Array",
    6: "Array-to-Device", 7: "Device-to-Array", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer",
    11: "Unified Host-to-Device", 12: "Unified Device-to-Host", 13: "Unified Device-to-Device",
}  # fmt: skip

KERNELS: Final = TableQuery(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    (
        *DEVICE_COLUMNS,
        "name=demangledName|shortName|mangledName",
        *LAUNCH_COLUMNS,
        *SHARED_MEMORY_COLUMNS,
        "graphNodeId",
    ),
)
_COPY_COLUMNS: Final = (*DEVICE_COLUMNS, "bytes", "copyKind", "srcKind", "dstKind")
COPIES: Final = TableQuery("CUPTI_ACTIVITY_KIND_MEMCPY", _COPY_COLUMNS)
FILLS: Final = TableQuery("CUPTI_ACTIVITY_KIND_MEMSET", (*DEVICE_COLUMNS, "bytes"))
GRAPHS: Final = TableQuery("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*DEVICE_COLUMNS, "graph=graphId|graphExecId"))
WAITS: Final = TableQuery("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", (*DEVICE_COLUMNS, "syncType"))
CALLS: Final = TableQuery(
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    ("start", "end", "globalTid", "correlationId", "name=nameId"),
    where=("eventClass", _NOT_CUDA_BACKTRACE),
)
RANGES: Final = TableQuery(
    "NVTX_EVENTS",
    ("start", "end", "eventType", "text", "textId", "globalTid"),
    texts=("text",),
    needs=("start",),
    where=("eventType", "IN (34, 59, 60, 70, 71)"),
)
THREADS: Final = TableQuery("ThreadNames", ("globalTid", "name=nameId"), needs=())

EVENTS: Final = (KERNELS, COPIES, FILLS, GRAPHS, WAITS, CALLS, RANGES)
MEMORY_KINDS_TABLE: Final = "ENUM_CUDA_MEM_KIND"


class ExportStore(Protocol):
    """Access to the tables of an export, whatever its form."""

    log: Log
    tables: dict[str, list[str]]  # name → columns
    rows: dict[str, int]  # name → rows read
    invented_ids: dict[str, int]  # names stored directly instead of by id → the ids invented for them

    def read(self, query: TableQuery) -> pl.DataFrame:
        """Read a table."""
        ...

    def read_pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Read a small table of names and values."""
        ...


@dataclass(frozen=True)
class ExportTables:
    """The tables as stored in the file: ids instead of names, times in ns on the clock of the capture."""

    kernels: pl.DataFrame
    copies: pl.DataFrame
    fills: pl.DataFrame
    graphs: pl.DataFrame
    waits: pl.DataFrame
    calls: pl.DataFrame
    ranges: pl.DataFrame
    threads: pl.DataFrame
    strings: pl.DataFrame
    memory_kinds: dict[int, str]  # by number, which differs between versions


def read_tables(db: ExportStore) -> ExportTables:
    """Read all tables that are used. The strings come last, because reading the others invents ids."""
    kernels, copies, fills = _read_timed(db, KERNELS), _read_timed(db, COPIES), _read_timed(db, FILLS)
    memory_kinds = db.read_pairs(MEMORY_KINDS_TABLE, "id", "label")
    return ExportTables(
        kernels=kernels,
        copies=copies,
        fills=fills,
        graphs=_read_timed(db, GRAPHS),
        waits=_correct_wait_devices(_read_timed(db, WAITS), [kernels, copies, fills]),
        calls=_read_timed(db, CALLS),
        ranges=_read_timed(db, RANGES),
        threads=db.read(THREADS),
        strings=_read_strings(db),
        memory_kinds={int(number): clean(label, 60) for number, label in memory_kinds if number.isdecimal()},
    )


def _read_strings(db: ExportStore) -> pl.DataFrame:
    """Read every name by its id, invented ids included."""
    listed = db.read(TableQuery("StringIds", ("id", "value"), texts=("value",), needs=()))
    invented = pl.DataFrame(
        {"id": list(db.invented_ids.values()), "value": list(db.invented_ids)},
        schema={"id": pl.Int64, "value": pl.String},
    )
    strings = pl.concat([listed, invented]).drop_nulls().unique("id", keep="first")
    return strings.with_columns(pl.col("value").cast(pl.Categorical()))


def _correct_wait_devices(waits: pl.DataFrame, device_work: list[pl.DataFrame]) -> pl.DataFrame:
    """Give waits the device of their context, as its work shows it: the profiler writes 0 for every wait."""
    context = ["globalPid", "contextId"]
    columns = [rows.select(*context, device="deviceId") for rows in device_work]
    pairs = pl.concat(columns).drop_nulls().unique()
    owners = pairs.filter(pl.len().over(context) == 1)
    joined = waits.join(owners, on=context, how="left", maintain_order="left")
    return joined.with_columns(deviceId=pl.coalesce("device", "deviceId")).drop("device")


def summarise_copies(tables: ExportTables) -> pl.DataFrame:
    """Sum copies by direction, device and kind of memory at both ends, with their rates."""
    total_ns, size = (pl.col("end") - pl.col("start")).sum(), pl.col("bytes").sum()
    rate = pl.when(total_ns > 0).then(size / 1e9 / (total_ns / 1e9))
    groups = tables.copies.group_by("copyKind", "srcKind", "dstKind", "deviceId")
    grouped = groups.agg(count=pl.len(), bytes=size, total_ns=total_ns, gb_per_s=rate)
    kinds = tables.memory_kinds
    memory_kinds = pl.col("srcKind", "dstKind").replace_strict(kinds, default=None, return_dtype=pl.String)
    direction = pl.col("copyKind").replace_strict(COPY_KINDS, default="of an unknown kind")
    rows = grouped.sort("total_ns", descending=True).select(
        direction.alias("direction"), memory_kinds, pl.col("deviceId").alias("device"),
        "count", "bytes", "total_ns", "gb_per_s",
    )  # fmt: skip
    return rows.rename({"srcKind": "source", "dstKind": "target"})


def with_resources(kernels: pl.DataFrame) -> pl.DataFrame:
    """Replace the launch columns of the file by those of our schema."""
    distinct = kernels.select(LAUNCH_COLUMNS).unique()
    sizes = distinct.with_columns(
        pl.concat_str(axes, separator="x").cast(pl.Categorical()).alias(name)
        for name, axes in (("grid", LAUNCH_COLUMNS[:3]), ("block", LAUNCH_COLUMNS[3:6]))
    )
    rows = kernels.join(sizes, on=LAUNCH_COLUMNS, how="left", nulls_equal=True, maintain_order="left")
    shared_memory = pl.sum_horizontal(SHARED_MEMORY_COLUMNS, ignore_nulls=False)
    return rows.with_columns(
        pl.when(size.is_between(0, _INT32_MAX)).then(size).cast(pl.Int32()).alias(name)
        for name, size in (("registers", pl.col(LAUNCH_COLUMNS[6])), ("shared", shared_memory))
    ).drop(LAUNCH_COLUMNS, SHARED_MEMORY_COLUMNS)


def _read_timed(db: ExportStore, query: TableQuery) -> pl.DataFrame:
    rows = db.read(query)
    db.log.read += rows.height
    is_valid_time = pl.all_horizontal(
        pl.col(c).is_between(-MAX_TIME_NS, MAX_TIME_NS).fill_null(c not in query.needs)
        for c in ("start", "end")
    )
    valid = rows.filter(is_valid_time)
    dropped = rows.height - valid.height
    db.log.drop("bad_time", f"rows of {query.table} whose times are not integers", count=dropped)
    return valid


def summarise_launches(tables: ExportTables) -> pl.DataFrame:
    """Sum kernels by launch configuration: grid, block and registers."""
    duration = pl.col("end") - pl.col("start")
    grouped = tables.kernels.group_by("name", *LAUNCH_COLUMNS).agg(count=pl.len(), total_ns=duration.sum())
    rows = with_names(grouped, tables.strings, "unnamed kernel").sort("total_ns", descending=True)
    return rows.select(
        pl.col("name").cast(pl.String),
        grid=pl.concat_str("gridX", "gridY", "gridZ", separator="x"),
        block=pl.concat_str("blockX", "blockY", "blockZ", separator="x"),
        registers="registersPerThread",
        count="count",
        total_ns="total_ns",
    )


def with_names(rows: pl.DataFrame, strings: pl.DataFrame, default: str) -> pl.DataFrame:
    """Replace the ids in `name` by their text."""
    rows = rows.rename({"name": "id"}).join(strings, on="id", how="left", maintain_order="left")
    fallback = pl.lit(default, dtype=pl.Categorical())
    return rows.with_columns(name=pl.coalesce("value", fallback)).drop("value", "id")
