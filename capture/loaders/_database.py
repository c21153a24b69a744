"""An SQLite file that came from outside, opened so that it can neither run code, hang, swell nor change."""

import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.source import Source
from capture.text import clean

T = TypeVar("T")

MAGIC: Final = b"SQLite format 3\0"
ROCPD: Final = re.compile(
    rb"CREATE TABLE [^(]{0,40}rocpd_"
)  # what only a database of ROCm's profiler begins with

_CHUNK_ROWS: Final = 500  # their numbers stay in the cache of a core until they are a column
_LONGEST_CELL: Final = 10_000_000
_LONGEST_QUERY: Final = 100_000
_PATIENCE_S: Final = 60
_SLOWEST_BYTES_PER_S: Final = 5_000_000
_TICK_OPCODES: Final = 100_000
_READS: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_PRAGMAS: Final = {"table_info", "quick_check"}
_BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)  # SQLite quotes damaged names in its own messages


@dataclass(frozen=True)
class Kind:
    """What is expected of a file: its name, the tables that must be tables, and how it is made again."""

    name: str
    tables: frozenset[str]
    again: str


@dataclass(frozen=True)
class Wanted:
    """A table, and each column to read: `name`, or `name=there|or there`, best first."""

    table: str
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("start", "end")
    where: tuple[str, str] | None = None  # a column, and the condition that follows its name

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called in the frame."""
        return tuple(c.split("=")[0] for c in self.columns)

    def sources(self, there: Sequence[str]) -> dict[str, str | None]:
        """Return for each name the column of a table to take it from; None where none of them is there."""
        return {n: _first(c, there) for n, c in zip(self.names, self.columns, strict=True)}


@dataclass
class Database:
    """The tables of one file, read column by column; texts that stand where an id should are given ids."""

    connection: sqlite3.Connection
    label: str
    log: Log
    tables: dict[str, list[str]]
    rows: dict[str, int] = field(default_factory=dict)
    strays: dict[str, int] = field(default_factory=dict)

    def read(self, wanted: Wanted) -> pl.DataFrame:
        """Return the rows of a table; a column that it lacks is null, a table that is missing has no rows."""
        there = self.tables.get(wanted.table, [])
        sources = wanted.sources(there)
        present = [(name, column) for name, column in sources.items() if column]
        chunks = list(self._chunks(wanted, present)) if present else []
        frame = pl.concat(chunks, rechunk=True) if chunks else _no_rows(wanted, [name for name, _ in present])
        absent = [name for name, column in sources.items() if not column]
        return frame.with_columns(_nulls(wanted, name) for name in absent).select(wanted.names)

    def _chunks(self, wanted: Wanted, present: Sequence[tuple[str, str]]) -> Iterator[pl.DataFrame]:
        names = [name for name, _ in present]
        seen = 0
        try:
            cursor = self.connection.execute(_query(wanted, present, self.tables[wanted.table]))
            while rows := cursor.fetchmany(_CHUNK_ROWS):
                seen += len(rows)
                columns = zip(names, zip(*rows, strict=True), strict=True)
                yield pl.DataFrame([self._column(wanted, name, values) for name, values in columns])
        except _BROKEN as e:
            why = _plain(e)
            self.log.note("broken_table", f"{wanted.table} breaks off: {why}", severity="data_loss")
        self.rows[wanted.table] = seen

    def _column(self, wanted: Wanted, name: str, values: tuple[Any, ...]) -> pl.Series:
        if name in wanted.texts:
            return pl.Series(name, [v if isinstance(v, str) else None for v in values], dtype=pl.String)
        try:
            return pl.Series(name, values, dtype=pl.Int64)
        except TypeError:
            return pl.Series(name, [self._whole(name, v) for v in values], dtype=pl.Int64)

    def _whole(self, name: str, value: object) -> int | None:
        """Return the number in a cell of whole numbers.

        A name that stands there without its id is given one.
        """
        if isinstance(value, int):
            return value
        if name == "name" and isinstance(value, str):
            return self.strays.setdefault(value, -1 - len(self.strays))
        return None

    def pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Return a small table of names and values, as text."""
        columns = self.tables.get(table, [])
        if key not in columns or value not in columns:
            return []
        try:
            rows = self.connection.execute(f'SELECT "{key}", "{value}" FROM "{table}" LIMIT 10000')  # noqa: S608
            return [(str(k), str(v)) for k, v in rows]
        except _BROKEN:
            return []


@contextmanager
def opened(source: Source, kind: Kind) -> Iterator[Database]:
    """Open the database behind a source, while a second thread checks that the file is sound."""
    with _on_disk(source) as path, ThreadPoolExecutor(1) as checker:
        _check_length(path, source, kind)
        with _connected(path, source) as connection:
            tables = _sound(lambda: _tables(connection, source.label, kind), source, kind)
            check = checker.submit(_check, path, source)
            yield Database(connection, source.label, source.log, tables)
            _sound(check.result, source, kind)


@contextmanager
def _connected(path: Path, source: Source) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda raw: _decoded(raw, source.log)
        _restrain(connection, path.stat().st_size)
        yield connection
    finally:
        connection.close()


def _check(path: Path, source: Source) -> None:
    with _connected(path, source) as connection:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _sound(work: Callable[[], T], source: Source, kind: Kind) -> T:
    """Return what `work` returns; raise UnreadableError for what SQLite finds wrong with the file."""
    try:
        return work()
    except _BROKEN as e:
        raise UnreadableError(
            "is a damaged SQLite file", where=source.label, why=_plain(e), todo=kind.again
        ) from None


@contextmanager
def _on_disk(source: Source) -> Iterator[Path]:
    """Yield the file itself, or an unpacked private copy of it."""
    if not (source.gzipped or source.spooled):  # SQLite opens no file without a name
        yield source.path
        return
    with tempfile.NamedTemporaryFile(prefix="tracetui-", suffix=".sqlite") as copy:
        for chunk in source.chunks():
            copy.write(chunk)
        copy.flush()
        yield Path(copy.name)


def _check_length(path: Path, source: Source, kind: Kind) -> None:
    """Refuse a file that is shorter than its header states: it was cut."""
    size = path.stat().st_size
    with path.open("rb") as f:
        header = f.read(100)
    page = int.from_bytes(header[16:18], "big")
    stated = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    trusted = header[24:28] == header[92:96]
    if len(header) < 100 or (trusted and size < stated):
        raise UnreadableError(
            "is a SQLite file that was cut short",
            where=source.label,
            why=f"{size:,} of {max(stated, 100):,} bytes are there",
            todo=kind.again,
        )
    if header[18] == 2 and _filled(path.with_name(path.name + "-wal")):
        source.log.note("wal_unread", "a write-ahead log lies beside the file; what it holds is not read")


def _decoded(raw: bytes, log: Log) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        log.repair("bad_utf8", "texts that are no UTF-8: the bad bytes were replaced")
        return raw.decode("utf-8", "replace")


def _filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _restrain(connection: sqlite3.Connection, size: int) -> None:
    """Set what SQLite's own page on untrusted files asks for."""
    for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
        connection.execute(f"PRAGMA {setting}").close()
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_QUERY)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    until = time.monotonic() + _PATIENCE_S + size / _SLOWEST_BYTES_PER_S
    connection.set_progress_handler(lambda: int(time.monotonic() > until), _TICK_OPCODES)
    connection.set_authorizer(_authorise)


def _authorise(action: int, one: str | None, two: str | None, _: str | None, inner: str | None) -> int:
    """Allow plain reading of tables and the two pragmas that are asked here, nothing inside a view."""
    if inner is None and action in _READS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and one in _PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _tables(connection: sqlite3.Connection, label: str, kind: Kind) -> dict[str, list[str]]:
    """Return every real table and its columns."""
    listed = connection.execute("SELECT type, name, tbl_name, rootpage FROM sqlite_master").fetchall()
    _refuse_impostors(listed, label, kind)
    tables = [name for type, name, _, root in listed if type == "table" and root and '"' not in name]
    return {name: _columns(connection, name) for name in tables}


def _refuse_impostors(listed: Sequence[tuple[Any, ...]], label: str, kind: Kind) -> None:
    """Refuse a view, a trigger or a virtual table in the place of a table: it would run its author's code."""
    for type, name, table, root in listed:
        what = "virtual table" if type == "table" and not root else type
        if what not in ("table", "index") and {name, table} & kind.tables:
            why = f"{clean(str(name), 80)} is a {what}, not a table"
            raise UnreadableError(f"is no {kind.name}", where=label, why=why)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def _query(wanted: Wanted, present: Sequence[tuple[str, str]], there: Sequence[str]) -> str:
    columns = ", ".join(f'"{column}"' for _, column in present)
    where = ""
    if wanted.where and wanted.where[0] in there:
        where = f' WHERE "{wanted.where[0]}" {wanted.where[1]}'
    return f'SELECT {columns} FROM "{wanted.table}"{where}'  # noqa: S608


def _first(column: str, there: Sequence[str]) -> str | None:
    return next((name for name in column.split("=")[-1].split("|") if name in there), None)


def _nulls(wanted: Wanted, name: str) -> pl.Expr:
    return pl.lit(None, dtype=pl.String if name in wanted.texts else pl.Int64).alias(name)


def _no_rows(wanted: Wanted, names: Sequence[str]) -> pl.DataFrame:
    return pl.DataFrame(schema={n: pl.String if n in wanted.texts else pl.Int64 for n in names})


def _plain(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "its list of tables is no text"
    if "interrupt" in str(error):
        return "reading it took too long"
    return clean(" ".join(str(error).split()), 300)
