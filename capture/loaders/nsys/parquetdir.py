"""Nsight Systems exports as a folder of Parquet files, a table each: `nsys export --type parquetdir`.

Read: the same tables as of an SQLite export, by the same code. Not read: files of other tables.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders._database import Wanted
from capture.loaders.nsys import tables as nsys
from capture.loaders.nsys.sqlite import run_of
from capture.run import Run
from capture.text import clean

FORMAT: Final = "nsys-parquetdir"
PRODUCER: Final = "NVIDIA Nsight Systems"
HOWTO: Final = "nsys profile -t cuda,nvtx -o run CMD; nsys export --type parquetdir run.nsys-rep"

_SUFFIX: Final = ".parquet"
_EVENTS: Final = frozenset(wanted.table for wanted in nsys.EVENTS)
_MOST_ROWS: Final = 1 << 28
_BROKEN: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


def find(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the files of each folder that holds a table of events."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if file.suffix == _SUFFIX:
            folders[file.parent].append(file)
    return [tuple(own) for own in folders.values() if any(file.stem in _EVENTS for file in own)]


def load(files: Sequence[Path]) -> list[Run]:
    """Read the files of one folder as one run."""
    folder = files[0].parent
    store = _Folder({file.stem: file for file in files}, clean(str(folder), 4096))
    if not _EVENTS & store.tables.keys():
        raise UnreadableError("holds no table of events that could be read", where=store.label)
    return [run_of(store, store.log, folder.stem)]


class _Folder:
    """The tables of one folder, read column by column; texts that stand where an id should are given ids."""

    def __init__(self, files: dict[str, Path], label: str) -> None:
        self.label = label
        self.log = Log(source=label, format=FORMAT)
        self._files = files
        self.tables = {name: columns for name in files if (columns := self._columns(name)) is not None}
        self.rows: dict[str, int] = {}
        self.strays: dict[str, int] = {}

    def read(self, wanted: Wanted) -> pl.DataFrame:
        """Return the rows of a table; a column that it lacks is null, a table that is missing has no rows."""
        there = self.tables.get(wanted.table, [])
        sources = wanted.sources(there)
        columns = {name: column for name, column in sources.items() if column}
        frame = self._collected(wanted, columns) if columns else pl.DataFrame()
        read = [self._column(frame[name], name in wanted.texts) for name in columns if name in frame.columns]
        types = {name: pl.String if name in wanted.texts else pl.Int64 for name in wanted.names}
        known = pl.DataFrame(read) if read else pl.DataFrame(schema=types)
        absent = [pl.lit(None, dtype=types[n]).alias(n) for n in wanted.names if n not in known.columns]
        return known.with_columns(absent).select(wanted.names)

    def pairs(self, table: str, key: str, value: str) -> list[tuple[str, str]]:
        """Return a small table of names and values, as text."""
        if not {key, value} <= set(self.tables.get(table, [])):
            return []
        rows = self._collected(Wanted(table, (key, value)), {key: key, value: value}).head(10_000)
        return [(str(k), str(v)) for k, v in rows.iter_rows()] if rows.width else []

    def _columns(self, name: str) -> list[str] | None:
        try:
            scan = pl.scan_parquet(self._files[name], glob=False)
            columns = scan.collect_schema().names()
            if scan.select(pl.len()).collect().item() > _MOST_ROWS:
                raise pl.exceptions.ComputeError("it has more rows than can be read")
        except _BROKEN as e:
            self._note(name, e)
            return None
        return columns

    def _collected(self, wanted: Wanted, columns: dict[str, str]) -> pl.DataFrame:
        """Return some columns under our names; nothing where the file breaks."""
        scan = pl.scan_parquet(self._files[wanted.table], glob=False)
        if wanted.where and wanted.where[0] in self.tables[wanted.table]:
            scan = scan.filter(pl.sql_expr(f'"{wanted.where[0]}" {wanted.where[1]}'))
        try:
            frame = scan.select(pl.col(column).alias(name) for name, column in columns.items()).collect()
        except _BROKEN as e:
            self._note(wanted.table, e)
            return pl.DataFrame()
        self.rows[wanted.table] = frame.height
        return frame

    def _note(self, table: str, error: BaseException) -> None:
        why = clean(" ".join(str(error).split()), 300)
        self.log.note("broken_table", f"{clean(table, 100)} breaks off: {why}", severity="data_loss")

    def _column(self, values: pl.Series, text: bool) -> pl.Series:
        """Return a column of texts or whole numbers; what is neither is null."""
        if isinstance(values.dtype, pl.Categorical | pl.Enum):
            values = values.cast(pl.String)
        stated = values.dtype == pl.String
        if text:
            return values if stated else pl.Series(values.name, [None] * values.len(), dtype=pl.String)
        if stated and values.name == "name":
            names = [v for v in values.unique(maintain_order=True) if v is not None]
            for name in names:
                self.strays.setdefault(name, -1 - len(self.strays))
            return values.replace_strict(self.strays, default=None, return_dtype=pl.Int64)
        if values.dtype.is_integer():
            return values.cast(pl.Int64, strict=False)
        return pl.Series(values.name, [None] * values.len(), dtype=pl.Int64)
