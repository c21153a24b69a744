"""Nsight Systems SQLite: reading against a plain SELECT of the same columns, and the whole load beside it.

python -m tests.bench.nsys [KERNELS]
"""

import gc
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

from capture.import_log import Log
from capture.loaders._sqlite import Database, TableQuery, open_database
from capture.loaders.nsys import export_tables as nsys
from capture.loaders.nsys import sqlite_export
from capture.loaders.nsys.export_events import build_events
from capture.source import Source

ROUNDS = 5
PROCESS, THREAD = 1 << 48 | 77 << 24, 1 << 48 | 77 << 24 | 78
KERNELS_A_STEP = 200
GRID = "gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread"
PLACE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value",
    nsys.KERNELS.table: f"{PLACE}, demangledName, shortName, mangledName, {GRID}, graphNodeId",
    nsys.CALLS.table: "start, end, eventClass, globalTid, correlationId, nameId, returnValue, callchainId",
    nsys.RANGES.table: "start, end, eventType, text, textId, globalTid",
}


def kernels(count: int) -> Iterator[tuple[int | None, ...]]:
    for i in range(count):
        t, name = 10**11 + i * 5000, 1 + i % 60
        yield (
            t,
            t + 3000 + i % 977,
            0,
            1,
            7,
            i,
            PROCESS,
            name,
            name,
            name,
            32 + i % 50,
            4,
            1,
            256,
            1,
            1,
            40,
            None,
        )


def calls(count: int) -> Iterator[tuple[int | None, ...]]:
    for i in range(count):
        t = 10**11 + i * 5000 - 900
        yield t, t + 700, 0, THREAD, i, 0, 0, None


def ranges(count: int) -> Iterator[tuple[int | str | None, ...]]:
    """Steps of 200 kernels, each with layers of ten."""
    for first in range(0, count, KERNELS_A_STEP):
        t = 10**11 + first * 5000 - 1000
        yield t, t + KERNELS_A_STEP * 5000, 59, f"step {first // KERNELS_A_STEP}", None, THREAD
        for layer in range(0, KERNELS_A_STEP, 10):
            at = t + layer * 5000
            yield at, at + 49_900, 59, f"layer_{layer // 10}", None, THREAD


def make(path: Path, count: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=OFF")
        for table, columns in TABLES.items():
            db.execute(f"CREATE TABLE {table} ({columns})")
        names = [(0, "cudaLaunchKernel_v7000")]
        names += [(i, f"void at::native::kernel_{i}<float, {i}>(float const*, int)") for i in range(1, 61)]
        for table, rows in (
            ("StringIds", iter(names)),
            (nsys.KERNELS.table, kernels(count)),
            (nsys.CALLS.table, calls(count)),
            (nsys.RANGES.table, ranges(count)),
        ):
            marks = ", ".join("?" * len(TABLES[table].split(",")))
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        db.commit()


def plain(path: Path) -> None:
    """The same columns of the same tables, as the sqlite3 module gives them."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        for wanted in (nsys.KERNELS, nsys.CALLS, nsys.RANGES):
            there = [row[1] for row in db.execute(f"PRAGMA table_info({wanted.table})")]
            columns = ", ".join(c for c in wanted.resolve_columns(there).values() if c)
            db.execute(f"SELECT {columns} FROM {wanted.table}").fetchall()


def reading(path: Path) -> None:
    """What the loader reads of them, into frames."""
    source = Source.from_path(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        tables = {w.table: _there(connection, w) for w in (nsys.KERNELS, nsys.CALLS, nsys.RANGES)}
        db = Database(connection, source.label, Log(), tables)
        for wanted in (nsys.KERNELS, nsys.CALLS, nsys.RANGES):
            db.read(wanted)


def _there(connection: sqlite3.Connection, wanted: TableQuery) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({wanted.table})")]


def guarded(path: Path) -> None:
    """Reading with every guard: the check of the whole file, limits, the authoriser."""
    with open_database(Source.from_path(path), sqlite_export._DATABASE_FORMAT) as db:
        nsys.read_tables(db)


def placing(path: Path) -> None:
    with open_database(Source.from_path(path), sqlite_export._DATABASE_FORMAT) as db:
        tables = nsys.read_tables(db)
    build_events(tables, Log())


def whole(path: Path) -> None:
    sqlite_export.load(Source.from_path(path))


def seconds(work: Callable[[Path], None], path: Path) -> float:
    gc.collect()
    start = time.perf_counter()
    work(path)
    return time.perf_counter() - start


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.sqlite"
        make(path, count)
        print(f"{count:,} kernels, {count:,} calls, {path.stat().st_size / 1e6:,.0f} MB")
        works = (plain, reading, guarded, placing, whole)
        rounds = [{w.__name__: seconds(w, path) for w in works} for _ in range(ROUNDS)]
    for name in rounds[0]:
        ratio = median(r[name] / r["plain"] for r in rounds)
        print(f"{name:9} {min(r[name] for r in rounds):7.2f} s  {ratio:5.2f}x of the plain SELECT")


if __name__ == "__main__":
    main()
