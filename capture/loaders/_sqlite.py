"""Open an untrusted SQLite file safely (no code, no hang, no change) and read its tables by column."""

import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.source import Source

T = TypeVar("T")

MAGIC: Final = b"SQLite format 3\0"
ROCPD: Final = re.compile(rb"CREATE TABLE [^(]{0,40}rocpd_")  # only databases of ROCm's profiler contain it

_CHUNK_ROWS: Final = 500  # small enough for the CPU cache until they are a column
_MAX_CELL_BYTES: Final = 10_000_000
_MAX_QUERY_BYTES: Final = 100_000
_PATIENCE_S: Final = 60
_SLOWEST_READ_BYTES_PER_S: Final = 5_000_000
_TICK_OPCODES: Final = 100_000
_READS: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_PRAGMAS: Final = {"table_info", "quick_check"}
_SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)  # messages quote damaged names


@dataclass(frozen=True)
class DatabaseFormat:
    """What is expected of a file: name with article, the names that must be plain tables, the remedy."""

    name: str
    tables: frozenset[str]
    remedy: str


@dataclass(frozen=True)
class TableQuery:
    """A table and the columns to read: `name`, or `name=column|fallback`, best first."""

    table: str
    columns: tuple[str, ...]
    texts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("start", "end")
    where: tuple[str, str] | None = None  # a column, and the condition that follows its name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in the frame."""
        return tuple(c.split("=")[0] for c in self.columns)

    @property
    def types(self) -> dict[str, Any]:
        """Types of the columns in the frame."""
        return {name: pl.String if name in self.texts else pl.Int64 for name in self.names}

    def resolve_columns(self, columns: Sequence[str]) -> dict[str, str]:
        """Map each name to the first of its columns that the table has; without those that it lacks."""
        candidates = (column.split("=")[-1].split("|") for column in self.columns)
        present = ([name for name in names if name in columns] for names in candidates)
        return {name: names[0] for name, names in zip(self.names, present, strict=True) if names}


@dataclass
class Database:
    """The tables of one file, read by column; a name where an id belongs gets an invented id."""

    connection: sqlite3.Connection
    label: str
    log: Log
    tables: dict[str, list[str]]
    rows: dict[str, int] = field(default_factory=dict)
    invented_ids: dict[str, int] = field(default_factory=dict)

    def read(self, query: TableQuery) -> pl.DataFrame:
        """Read a table; missing columns are null, a missing table has no rows."""
        sources = query.resolve_columns(self.tables.get(query.table, []))
        chunks = list(self._iter_chunks(query, sources)) if sources else []
        frame = pl.concat(chunks, rechunk=True) if chunks else pl.DataFrame()
        return pl.concat([pl.DataFrame(schema=query.types), frame], how="diagonal")

    def _iter_chunks(self, query: TableQuery, sources: Mapping[str, str]) -> Iterator[pl.DataFrame]:
        row_count = 0
        try:
            cursor = self.connection.execute(_build_query(query, sources, self.tables[query.table]))
            while rows := cursor.fetchmany(_CHUNK_ROWS):
                row_count += len(rows)
                columns = zip(sources, zip(*rows, strict=True), strict=True)
                yield pl.DataFrame([self._build_column(query, name, values) for name, values in columns])
        except _SQLITE_ERRORS as e:
            message = f"table {query.table} is incomplete: {_describe_error(e)}"
            self.log.note("broken_table", message, severity="data_loss")
        self.rows[query.table] = row_count

    def _build_column(self, query: TableQuery, name: str, values: tuple[Any, ...]) -> pl.Series:
        if name in query.texts:
            return pl.Series(name, [v if isinstance(v, str) else None for v in values], dtype=pl.String)
        try:
            return pl.Series(name, values, dtype=pl.Int64)
        except TypeError:
            return pl.Series(name, [self._parse_integer(name, v) for v in values], dtype=pl.Int64)

    def _parse_integer(self, name: str, value: object) -> int | None:
        """Return an integer, the invented id of a name, or None for any other value."""
        if isinstance(value, int):
            return value
        if name == "name" and isinstance(value, str):
            return self.invented_ids.setdefault(value, -1 - len(self.invented_ids))
        return None

    def read_pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Read a small table of names and values, as text."""
        columns = self.tables.get(table, [])
        if key not in columns or value not in columns:
            return []
        try:
            rows = self.connection.execute(f'SELECT "{key}", "{value}" FROM "{table}" LIMIT 10000')  # noqa: S608
            return [(str(k), str(v)) for k, v in rows]
        except _SQLITE_ERRORS:
            return []


@contextmanager
def open_database(source: Source, format: DatabaseFormat) -> Iterator[Database]:
    """Open the database behind a source while a second thread checks its integrity."""
    with _unpack_if_needed(source) as path, ThreadPoolExecutor(1) as checker:
        _check_length(path, source, format)
        with _connect(path, source) as connection:
            tables = _translate_errors(lambda: _list_tables(connection, source.label, format), source, format)
            check = checker.submit(_check_integrity, path, source)
            yield Database(connection, source.label, source.log, tables)
            _translate_errors(check.result, source, format)


@contextmanager
def _connect(path: Path, source: Source) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda raw: _decode_text(raw, source.log)
        _apply_untrusted_settings(connection, path.stat().st_size)
        yield connection
    finally:
        connection.close()


def _check_integrity(path: Path, source: Source) -> None:
    with _connect(path, source) as connection:
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if result != "ok":
        raise sqlite3.DatabaseError(result)


def _translate_errors(work: Callable[[], T], source: Source, format: DatabaseFormat) -> T:
    """Run `work`; raise UnreadableError for any error of SQLite."""
    try:
        return work()
    except _SQLITE_ERRORS as e:
        raise UnreadableError(
            "is a damaged SQLite file", where=source.label, why=_describe_error(e), todo=format.remedy
        ) from None


@contextmanager
def _unpack_if_needed(source: Source) -> Iterator[Path]:
    """Yield the file itself, or an unpacked private copy: SQLite opens no file without a name."""
    if not (source.is_gzipped or source.is_spooled):
        yield source.path
        return
    with tempfile.NamedTemporaryFile(prefix="tracetui-", suffix=".sqlite") as copy:
        for chunk in source.iter_chunks():
            copy.write(chunk)
        copy.flush()
        yield Path(copy.name)


def _check_length(path: Path, source: Source, format: DatabaseFormat) -> None:
    """Raise if the file is shorter than its header says."""
    size = path.stat().st_size
    with path.open("rb") as f:
        header = f.read(100)
    page_size = int.from_bytes(header[16:18], "big")
    expected = (65536 if page_size == 1 else page_size) * int.from_bytes(header[28:32], "big")
    is_size_valid = header[24:28] == header[92:96]
    if len(header) < 100 or (is_size_valid and size < expected):
        why = f"{size:,} of {max(expected, 100):,} bytes are present"
        what = "is a SQLite file that was cut short"
        raise UnreadableError(what, where=source.label, why=why, todo=format.remedy)
    wal = path.with_name(path.name + "-wal")
    if header[18] == 2 and wal.exists() and wal.stat().st_size > 0:
        source.log.note("wal_unread", "a write-ahead log is next to the file; its content is not read")


def _decode_text(raw: bytes, log: Log) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        log.repair("bad_utf8", "texts are not valid UTF-8: bad bytes were replaced")
        return raw.decode("utf-8", "replace")


def _apply_untrusted_settings(connection: sqlite3.Connection, size: int) -> None:
    """Apply the settings that SQLite recommends for untrusted files."""
    for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "query_only=ON"):
        connection.execute(f"PRAGMA {setting}").close()
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_QUERY_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    deadline = time.monotonic() + _PATIENCE_S + size / _SLOWEST_READ_BYTES_PER_S
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _TICK_OPCODES)
    connection.set_authorizer(_allow_plain_reads)


def _allow_plain_reads(action: int, one: str | None, two: str | None, _: str | None, view: str | None) -> int:
    """Allow SQLite to read plain tables and run our two pragmas, but nothing inside a view."""
    if view is None and action in _READS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and one in _PRAGMAS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _list_tables(connection: sqlite3.Connection, label: str, format: DatabaseFormat) -> dict[str, list[str]]:
    """Map every real table to its columns."""
    objects = connection.execute("SELECT type, name, tbl_name, rootpage FROM sqlite_master").fetchall()
    _check_no_impostors(objects, label, format)
    tables = [name for type, name, _, root in objects if type == "table" and root and '"' not in name]
    pragmas = {name: connection.execute(f'PRAGMA table_info("{name}")') for name in tables}
    return {name: [row[1] for row in rows] for name, rows in pragmas.items()}


def _check_no_impostors(objects: Sequence[tuple[Any, ...]], label: str, format: DatabaseFormat) -> None:
    """Raise if a view, trigger or virtual table has the name of an expected table."""
    for type, name, table, root in objects:
        object_type = "virtual table" if type == "table" and not root else type
        if object_type not in ("table", "index") and {name, table} & format.tables:
            why = f"{clean(str(name), 80)} is a {object_type}, not a table"
            raise UnreadableError(f"is not {format.name}", where=label, why=why)


def _build_query(query: TableQuery, sources: Mapping[str, str], columns: Sequence[str]) -> str:
    selected = ", ".join(f'"{column}"' for column in sources.values())
    where = ""
    if query.where and query.where[0] in columns:
        where = f' WHERE "{query.where[0]}" {query.where[1]}'
    return f'SELECT {selected} FROM "{query.table}"{where}'  # noqa: S608


def _describe_error(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "its list of tables is not text"
    if "interrupt" in str(error):
        return "reading timed out"
    return clean(" ".join(str(error).split()), 300)
