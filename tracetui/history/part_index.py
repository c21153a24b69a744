"""Read a log quickly: what was read of its parts before is in few files of the cache.

A log of 100,000 parts takes minutes to read part by part, and under a second from here
(`python -m tests.bench.history`). The cache holds chunks of CHUNK_PARTS parts in the order of time: a table
of the runs, and one of their lines, without single steps. Only the last chunk grows.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from capture.errors import CaptureError
from capture.files.atomic import write_atomically
from capture.files.user_dirs import find_cache_folder, make_private
from tracetui.history.part import LINE_COLUMNS, PART_SCHEMA, RUN_COLUMNS
from tracetui.history.run_log import RunLog

CHUNK_PARTS: Final = 1024
MIN_NEW_PARTS: Final = 16  # fewer are read again each time
LINES: Final = ("file", *(c for c in LINE_COLUMNS if c not in ("step", "context", "tokens")))
_RUNS: Final = {"file": pl.String, **RUN_COLUMNS, "phase": pl.String, "step_ns": pl.Float64}

Progress = Callable[[int, int], None]  # parts read so far, parts to read


@dataclass(frozen=True, eq=False)
class LogTables:
    """What a log holds: a line per run, and a function that returns the lines of some of them."""

    log: RunLog
    runs: pl.DataFrame  # file, the columns of a run, the phase that takes longest and the time of its step
    faults: tuple[str, ...]  # of parts that cannot be read
    chunks: tuple[Path, ...]
    fresh_lines: pl.DataFrame  # of parts that are in no chunk

    def read_lines(self, files: Sequence[str]) -> pl.DataFrame:
        """Return the lines of the runs of these files, without those of single steps."""
        is_asked = pl.col("file").is_in(list(files))
        tables = [self.fresh_lines.filter(is_asked)]
        first, last = (min(files), max(files)) if files else ("", "")
        for chunk in self.chunks:
            begin, end = chunk.name.split("_")[1:3]
            if files and begin <= last and first <= end:
                tables.append(pl.scan_parquet(_name_lines(chunk)).filter(is_asked).collect())
        return pl.concat(tables).unique(["file", "kind", "phase", "name"], keep="first", maintain_order=True)


def read_log(log: RunLog, progress: Progress | None = None) -> LogTables:
    """Return the tables of a log; parts that are new are read and remembered in the cache."""
    names, folder = log.list_parts(), _find_folder(log)
    tables = dict(_iter_chunks(folder)) if folder else {}
    indexed = pl.concat([pl.DataFrame(schema=_RUNS), *tables.values()]).unique("file", keep="first")
    read_before = set(indexed["file"])
    runs, lines, faults = _read_parts(log, [name for name in names if name not in read_before], progress)
    chunks: tuple[Path, ...] = ()
    if folder and runs.height >= MIN_NEW_PARTS:
        chunks = _add_chunks(folder, tables, runs, lines)
    fresh = lines.clear() if chunks else lines
    present = pl.Series("file", names, dtype=pl.String).to_frame()
    every = pl.concat([indexed, runs]).join(present, on="file", how="semi").sort("file")
    return LogTables(log, every, tuple(faults), chunks or tuple(tables), fresh)


def forget_log(log: RunLog) -> None:
    """Remove what the cache holds of a log."""
    folder = _find_folder(log)
    for path in folder.glob("*.parquet") if folder else ():
        with suppress(OSError):
            path.unlink()


def _find_folder(log: RunLog) -> Path | None:
    cache = find_cache_folder()
    base = make_private(cache / "history") if cache else None
    address = log.address if "://" in log.address else str(Path(log.address).resolve())
    key = hashlib.blake2b(f"{PART_SCHEMA} {address}".encode(), digest_size=10).hexdigest()
    return make_private(base / key) if base else None


def _iter_chunks(folder: Path) -> Iterator[tuple[Path, pl.DataFrame]]:
    """Yield each chunk with its runs; one that is damaged is as if absent."""
    for chunk in sorted(folder.glob("runs_*.parquet")):
        with suppress(pl.exceptions.PolarsError, OSError):
            yield chunk, pl.read_parquet(chunk).select(pl.col(c).cast(t) for c, t in _RUNS.items())


def _read_parts(
    log: RunLog, names: Sequence[str], progress: Progress | None
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Return the runs and lines of parts, and a sentence for each that cannot be read."""
    runs, lines, faults = [pl.DataFrame(schema=_RUNS)], [_select_lines(pl.DataFrame(), "")], []
    for number, name in enumerate(names):
        if progress and number % 64 == 0:
            progress(number, len(names))
        try:
            part = log.read(name)
        except CaptureError as error:
            faults.append(str(error))
            continue
        runs.append(_describe_part(part, name))
        lines.append(_select_lines(part, name))
    return pl.concat(runs), pl.concat(lines), faults


def _describe_part(part: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the line of a run: its columns, and the phase that takes longest."""
    phases = part.filter((pl.col("kind") == "phase") & (pl.col("name") == "step"))
    total = pl.col("mean_ns") * pl.col("steps")
    longest = phases.sort(total, descending=True, nulls_last=True).head(1)
    phase, step_ns = longest.select("phase", "median_ns").row(0) if longest.height else (None, None)
    facts = (pl.lit(phase, pl.String).alias("phase"), pl.lit(step_ns, pl.Float64).alias("step_ns"))
    return part.head(1).select(pl.lit(name).alias("file"), *RUN_COLUMNS, *facts)


def _select_lines(part: pl.DataFrame, name: str) -> pl.DataFrame:
    if not part.width:
        return pl.DataFrame(schema={c: LINE_COLUMNS.get(c, pl.String) for c in LINES})
    return part.filter(pl.col("kind") != "step").select(pl.lit(name).alias("file"), *LINES[1:])


def _add_chunks(
    folder: Path, tables: Mapping[Path, pl.DataFrame], runs: pl.DataFrame, lines: pl.DataFrame
) -> tuple[Path, ...]:
    """Write new runs into chunks, with the last one if it is not full; return all, none on failure."""
    full = [chunk for chunk, table in tables.items() if table.height >= CHUNK_PARTS]
    partial = [chunk for chunk in tables if chunk not in full]
    try:
        runs = pl.concat([*map(tables.__getitem__, partial), runs]).unique("file", keep="first").sort("file")
        old = [pl.read_parquet(_name_lines(chunk)) for chunk in partial]
        lines = pl.concat([*old, lines]).sort("file", maintain_order=True)
        written = list(_write_chunks(folder, runs, lines))
    except (CaptureError, OSError, pl.exceptions.PolarsError):
        return ()
    for chunk in set(partial) - set(written):
        with suppress(OSError):
            chunk.unlink()
            _name_lines(chunk).unlink()
    return (*full, *written)


def _write_chunks(folder: Path, runs: pl.DataFrame, lines: pl.DataFrame) -> Iterator[Path]:
    for begin in range(0, runs.height, CHUNK_PARTS):
        chunk = runs.slice(begin, CHUNK_PARTS)
        first, last = chunk["file"][0], chunk["file"][-1]
        digest = hashlib.blake2b("".join(chunk["file"]).encode(), digest_size=6).hexdigest()
        path = folder / f"runs_{first}_{last}_{digest}.parquet"
        chunk_lines = lines.filter(pl.col("file").is_between(pl.lit(first), pl.lit(last)))
        with write_atomically(_name_lines(path), overwrite=True) as file:
            chunk_lines.write_parquet(file, row_group_size=4096)
        with write_atomically(path, overwrite=True) as file:
            chunk.write_parquet(file)
        yield path


def _name_lines(chunk: Path) -> Path:
    """Return the file with the lines of a chunk."""
    return chunk.with_name(chunk.name.replace("runs_", "lines_", 1))
