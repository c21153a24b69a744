"""Small exports in the layout of Nsight Systems, written by the tests themselves."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"

_PLACE = "start, end, deviceId, streamId, correlationId, globalPid"
_GRID = "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread"
LAYOUT = {
    KERNEL: f"{_PLACE}, demangledName, shortName, {_GRID}, graphNodeId",
    MEMCPY: f"{_PLACE}, bytes, copyKind",
    MEMSET: f"{_PLACE}, bytes, value",
    GRAPH: f"{_PLACE}, graphId, graphExecId",
    SYNC: f"{_PLACE}, syncType",
    RUNTIME: "start, end, eventClass, globalTid, correlationId, nameId",
    NVTX: "start, end, eventType, text, textId, globalTid",
    "StringIds": "id, value",
    "ThreadNames": "nameId, priority, globalTid",
}

EVENTS = (KERNEL, RUNTIME, MEMCPY, MEMSET, GRAPH, SYNC, NVTX)
Rows = Mapping[str, Sequence[Sequence[object]]]


def pid(number: int) -> int:
    """A packed global process id: a machine's bits above, the thread's 24 bits below."""
    return (1 << 48) | (number << 24)


def tid(process: int, thread: int) -> int:
    return pid(process) | thread


def write(path: Path, rows: Rows) -> Path:
    """A file with those tables and no others."""
    with sqlite3.connect(path) as db:
        for table, values in rows.items():
            db.execute(f"CREATE TABLE {table} ({LAYOUT[table]})")
            for row in values:
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    db.close()
    return path


def kernel(
    start: int, end: int, correlation: int, process: int, name: int, device: int = 0, node: int | None = None
) -> list[object]:
    return [start, end, device, 7, correlation, pid(process), name, name, 8, 4, 1, 128, 1, 1, 32, node]


def call(start: int, correlation: int, process: int, thread: int, name: int = 0) -> list[object]:
    return [start, start + 5, 0, tid(process, thread), correlation, name]


def range_(
    start: int, end: int | None, name: str, process: int, thread: int, style: int = 59
) -> list[object]:
    return [start, end, style, name, None, tid(process, thread)]


def truth(path: Path, query: str) -> list[tuple[int, ...]]:
    """What plain sqlite3 answers, without a lock or a file beside it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(query).fetchall()
