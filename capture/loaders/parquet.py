"""A run that `tracetui export` wrote as parquet; parquet of any other kind is refused by name.

Read: events, metadata, tables and the account of the first import, without a loss.
"""

import io
from typing import Any, Final

import msgspec
import polars as pl

from capture.errors import UnreadableError
from capture.frames import PARQUET_KEY, PARQUET_SCHEMA, table_rows
from capture.importlog import Log
from capture.native.lines import SavedLog, SavedTable
from capture.run import DTYPES, Run, build, clean_meta
from capture.source import Head, Source
from capture.unknown import unknown_input

FORMAT: Final = "parquet"
PRODUCER: Final = "tracetui export"
HOWTO: Final = "tracetui export prof.jsonl -o prof.parquet"

_BROKEN: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException, msgspec.MsgspecError, OSError)


class About(msgspec.Struct):
    """What the metadata says of the run."""

    schema: int
    name: str
    meta: dict[str, Any]
    log: SavedLog
    tables: list[SavedTable]


def sniff(head: Head) -> bool:
    return head.raw.startswith(b"PAR1")


def load(source: Source) -> list[Run]:
    """Read the run that was exported."""
    whole = io.BytesIO(source.read())
    try:
        saved = pl.read_parquet_metadata(whole).get(PARQUET_KEY)
        if saved is None:
            raise unknown_input(source)
        about = msgspec.json.decode(saved, type=About)
        whole.seek(0)
        return [_run(about, pl.read_parquet(whole), source)]
    except (*_BROKEN, ValueError):
        raise UnreadableError(
            "is a Parquet file that is damaged", where=source.label, todo="export it again"
        ) from None


def _run(about: About, events: pl.DataFrame, source: Source) -> Run:
    if about.schema > PARQUET_SCHEMA:
        raise UnreadableError("was written by a newer tracetui", where=source.label, todo="update tracetui")
    log = Log.of(clean_meta(msgspec.to_builtins(about.log)))
    tables = {t.name: table_rows(t) for t in about.tables}
    frame = events.select(c for c in DTYPES if c in events.columns)
    return build(about.name, about.meta, frame, log, tables)
