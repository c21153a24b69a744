"""Load the CSVs of one rocprofv3 job as one run: kernels, copies and calls, which share one clock.

Files belong to one job if they are in one folder and their names differ only in the kind of data
(`77_kernel_trace.csv`, `77_memory_copy_trace.csv`). Statistics repeat what a trace says, so next to a trace
they become tables, as do counters next to the kernel trace.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from capture.loaders.rocprof import csv_tables
from capture.merge_ranks import merge_logs
from capture.run import Run, drop_empty_columns
from capture.source import Source

FORMAT: Final = csv_tables.FORMAT
PRODUCER: Final = csv_tables.PRODUCER
HOWTO: Final = csv_tables.HOWTO

_NAME: Final = re.compile(
    r"(?P<job>.*?)_?(?P<kind>(?:kernel|memory_copy|memory_allocation|scratch_memory|hip(?:_api)?|hsa(?:_api)?|"
    r"marker(?:_api)?|rccl(?:_api)?|domain)_(?:trace|stats)|counter_collection)\.csv(?:\.gz)?"
)
_KERNELS: Final = "kernel_trace"
_COUNTERS: Final = "counter_collection"
_DOMAINS: Final = "domain_stats"


def find(files: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Group the files of each job that has several."""
    jobs: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for file in files:
        match = _NAME.fullmatch(file.name)
        if match and csv_tables.sniff(Source.from_path(file).head):
            jobs[file.parent, match["job"]].append(file)
    return [tuple(files_of_job) for files_of_job in jobs.values() if len(files_of_job) > 1]


def load(files: Sequence[Path]) -> list[Run]:
    """Read the files of one job as one run."""
    runs = {
        _parse_name_part(file, "kind"): run
        for file in files
        for run in csv_tables.load(Source.from_path(file))
    }
    repeated = [kind for kind in runs if _is_repetition(kind, runs)]
    log = merge_logs(list(runs.values()))
    log.format = FORMAT
    names = ", ".join(file.name for file in files)
    log.note("one_job", f"files of one job, read as one run on one clock: {names}", count=len(files))
    if repeated:
        message = f"repeat another file and are kept as tables: {', '.join(repeated)}"
        log.note("said_again", message, count=len(repeated))
    events = pl.concat([run.events for kind, run in runs.items() if kind not in repeated], how="diagonal")
    first = next(iter(runs.values()))
    name = _parse_name_part(files[0], "job") or files[0].parent.name or first.name
    columns, tables = drop_empty_columns(events).rechunk(), _build_tables(runs, repeated)
    return [Run(name, first.meta, columns, log.freeze(), tables)]


def _parse_name_part(file: Path, which: str) -> str:
    match = _NAME.fullmatch(file.name)
    return match[which] if match else file.name


def _is_repetition(kind: str, runs: Mapping[str, Run]) -> bool:
    """Return True if a file's rows repeat those of another file."""
    if kind == _COUNTERS:
        return _KERNELS in runs
    if kind == _DOMAINS:
        return len(runs) > 1
    traced = {_strip_kind(other) for other in runs if other.endswith("_trace")}
    return kind.endswith("_stats") and _strip_kind(kind) in traced


def _strip_kind(kind: str) -> str:
    return kind.removesuffix("_trace").removesuffix("_stats").removesuffix("_api")


def _build_tables(runs: Mapping[str, Run], repeated: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Collect the tables of all files, and the statistics that repeat a trace."""
    tables = {name: table for run in runs.values() for name, table in run.tables.items()}
    for kind in repeated:
        rows = runs[kind].events
        value_columns = [c for c in ("count", "dur", "min", "max", "std") if c in rows.columns]
        if kind != _COUNTERS and rows.height:
            tables[kind] = rows.select(pl.col("name").cast(pl.String), *value_columns)
    return tables
