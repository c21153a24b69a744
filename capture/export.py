"""Writes runs in other forms: native lines, parquet, CSV, Chrome trace, by the suffix of the file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec
import polars as pl

from capture.atomic import whole_file
from capture.errors import UsageError
from capture.export_chrome import write_chrome
from capture.frames import PARQUET_KEY, PARQUET_SCHEMA
from capture.native.write import table_record, write_native
from capture.run import Run

_FORMULA: Final = r"^([=+\-@\t\r])"


def export(runs: Sequence[Run], path: Path, *, overwrite: bool = False) -> list[str]:
    """Write the runs whole or not at all; return a note of each thing that the form cannot hold."""
    write = SUFFIXES[path.suffix]
    with whole_file(path, overwrite=overwrite) as file:
        return write(runs, file)


def _parquet(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write one run: the events as they are, the rest in the file's own metadata."""
    if len(runs) != 1:
        raise UsageError(f"a parquet file holds one run, not {len(runs)}", todo="choose one with --run")
    run = runs[0]
    tables = [table_record(name, table) for name, table in run.tables.items()]
    extra = {
        "schema": PARQUET_SCHEMA,
        "name": run.name,
        "meta": run.meta,
        "log": run.log.as_dict(),
        "tables": [record for record, _ in tables],
    }
    saved = msgspec.json.encode(extra, enc_hook=str).decode()
    run.events.write_parquet(file, compression="zstd", compression_level=1, metadata={PARQUET_KEY: saved})
    return [note for _, note in tables if note]


def _csv(runs: Sequence[Run], file: IO[bytes]) -> list[str]:
    """Write the events; text that a spreadsheet would take for a formula is quoted."""
    frames = [run.events.select(pl.lit(run.name).alias("run"), pl.all()) for run in runs]
    frame = pl.concat(frames, how="diagonal") if len(frames) > 1 else runs[0].events
    text = [name for name, type in frame.schema.items() if type in (pl.Categorical, pl.String)]
    safe = (pl.col(c).cast(pl.String).str.replace(_FORMULA, "'$1") for c in text)
    frame.with_columns(safe).write_csv(file)
    lost = [what for what in ("meta", "tables") if any(getattr(run, what) for run in runs)]
    return [f"CSV holds the events only, not {' and '.join(lost)}"] if lost else []


SUFFIXES: Final[Mapping[str, Callable[[Sequence[Run], IO[bytes]], list[str]]]] = {
    ".jsonl": write_native,
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": write_chrome,
}
