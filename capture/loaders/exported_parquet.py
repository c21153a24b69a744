"""Load runs that `tracetui export` wrote as Parquet; other Parquet files are rejected.

Read: events, metadata, tables and the log of the first import, without loss.
"""

import io
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.import_log import Log
from capture.native.line_types import SavedLog, SavedTable
from capture.native.saved_tables import PARQUET_KEY, PARQUET_SCHEMA, build_table
from capture.run import DTYPES, Run, build_run, clean_meta
from capture.source import Head, Source
from capture.unknown_input import build_unknown_input_error

FORMAT: Final = "parquet"
PRODUCER: Final = "tracetui export"
HOWTO: Final = "tracetui export prof.jsonl -o prof.parquet"

_BROKEN: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)


class RunMetadata(msgspec.Struct):
    """The file's metadata: everything but the events."""

    schema: int
    name: str
    meta: dict[str, Any]
    log: SavedLog
    tables: list[SavedTable]


def sniff(head: Head) -> bool:
    return head.raw.startswith(b"PAR1")


def load(source: Source) -> list[Run]:
    """Read the exported run."""
    file = io.BytesIO(source.read())
    try:
        encoded = pl.read_parquet_metadata(file).get(PARQUET_KEY)
        if encoded is None:
            raise build_unknown_input_error(source)
        metadata = msgspec.json.decode(encoded, type=RunMetadata)
        file.seek(0)
        return [_build_run(metadata, pl.read_parquet(file), source)]
    except _BROKEN:
        what = "is a damaged Parquet file"
        raise UnreadableError(what, where=source.label, todo="export it again") from None


def _build_run(metadata: RunMetadata, events: pl.DataFrame, source: Source) -> Run:
    if metadata.schema > PARQUET_SCHEMA:
        raise UnreadableError("was written by a newer tracetui", where=source.label, todo="update tracetui")
    log = Log.from_saved(clean_meta(msgspec.to_builtins(metadata.log)))
    tables = {table.name: build_table(table) for table in metadata.tables}
    frame = events.select(column for column in DTYPES if column in events.columns)
    return build_run(metadata.name, metadata.meta, frame, log, tables)
