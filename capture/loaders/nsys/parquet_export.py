"""Nsight Systems exports as a folder of Parquet files, one per table: `nsys export --type parquetdir`.

Read: the same tables as from an SQLite export, by the same code. Not read: files of other tables.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.loaders._sqlite import TableQuery
from capture.loaders.nsys import export_tables as nsys
from capture.loaders.nsys.sqlite_export import build_export_run
from capture.run import Run

FORMAT: Final = "nsys-parquetdir"
PRODUCER: Final = "NVIDIA Nsight Systems"
HOWTO: Final = "nsys profile -t cuda,nvtx -o run CMD; nsys export --type parquetdir run.nsys-rep"

_SUFFIX: Final = ".parquet"
_EVENT_TABLES: Final = frozenset(query.table for query in nsys.EVENTS)
_MAX_ROWS: Final = 1 << 28
_PARQUET_ERRORS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


def find(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Group the files of each folder that contains a table of events."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if file.suffix == _SUFFIX:
            folders[file.parent].append(file)
    groups = map(tuple, folders.values())
    return [group for group in groups if any(file.stem in _EVENT_TABLES for file in group)]


def load(files: Sequence[Path]) -> list[Run]:
    """Read the files of one folder as one run."""
    folder = files[0].parent
    store = _ParquetFolder({file.stem: file for file in files}, clean(str(folder), 4096))
    if not _EVENT_TABLES & store.tables.keys():
        raise UnreadableError("contains no readable table of events", where=store.label)
    return [build_export_run(store, store.log, folder.stem)]


class _ParquetFolder:
    """The tables of one folder, read by column; a name where an id belongs gets an invented id."""

    def __init__(self, files: dict[str, Path], label: str) -> None:
        self.label = label
        self.log = Log(source=label, format=FORMAT)
        self._files = files
        self.tables = {name: columns for name in files if (columns := self._list_columns(name)) is not None}
        self.rows: dict[str, int] = {}
        self.invented_ids: dict[str, int] = {}

    def read(self, query: TableQuery) -> pl.DataFrame:
        """Read a table; missing columns are null, a missing table has no rows."""
        columns = query.resolve_columns(self.tables.get(query.table, []))
        frame = self._collect_columns(query, columns) if columns else pl.DataFrame()
        converted = pl.DataFrame([self._convert_column(c, c.name in query.texts) for c in frame])
        return pl.concat([pl.DataFrame(schema=query.types), converted], how="diagonal")

    def read_pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Read a small table of names and values, as text."""
        if not {key, value} <= set(self.tables.get(table, [])):
            return []
        rows = self._collect_columns(TableQuery(table, (key, value)), {key: key, value: value}).head(10_000)
        return [(str(k), str(v)) for k, v in rows.iter_rows()] if rows.width else []

    def _list_columns(self, name: str) -> list[str] | None:
        try:
            scan = pl.scan_parquet(self._files[name], glob=False)
            columns = scan.collect_schema().names()
            if scan.select(pl.len()).collect().item() > _MAX_ROWS:
                raise pl.exceptions.ComputeError("it has too many rows")
        except _PARQUET_ERRORS as e:
            self._note_damage(name, e)
            return None
        return columns

    def _collect_columns(self, query: TableQuery, columns: dict[str, str]) -> pl.DataFrame:
        """Read some columns under our names; an empty frame if the file is damaged."""
        scan = pl.scan_parquet(self._files[query.table], glob=False)
        if query.where and query.where[0] in self.tables[query.table]:
            scan = scan.filter(pl.sql_expr(f'"{query.where[0]}" {query.where[1]}'))
        try:
            frame = scan.select(pl.col(column).alias(name) for name, column in columns.items()).collect()
        except _PARQUET_ERRORS as e:
            self._note_damage(query.table, e)
            return pl.DataFrame()
        self.rows[query.table] = frame.height
        return frame

    def _note_damage(self, table: str, error: BaseException) -> None:
        why = clean(" ".join(str(error).split()), 300)
        self.log.note("broken_table", f"{clean(table, 100)} is incomplete: {why}", severity="data_loss")

    def _convert_column(self, values: pl.Series, text: bool) -> pl.Series:
        """Convert a column to text or integers; other values become null."""
        if isinstance(values.dtype, pl.Categorical | pl.Enum):
            values = values.cast(pl.String)
        is_text = values.dtype == pl.String
        if text:
            return values if is_text else pl.Series(values.name, [None] * values.len(), dtype=pl.String)
        if is_text and values.name == "name":
            names = [v for v in values.unique(maintain_order=True) if v is not None]
            for name in names:
                self.invented_ids.setdefault(name, -1 - len(self.invented_ids))
            return values.replace_strict(self.invented_ids, default=None, return_dtype=pl.Int64)
        if values.dtype.is_integer():
            return values.cast(pl.Int64, strict=False)
        return pl.Series(values.name, [None] * values.len(), dtype=pl.Int64)
