"""The CSVs of one job of rocprofv3 as one run: kernels, copies and calls, which are on one clock.

Files are of one job where they lie in one folder under names that differ only in what they hold
(`77_kernel_trace.csv`, `77_memory_copy_trace.csv`). Statistics say again what a trace says: beside one they
stand among the tables, and so do counters beside the trace of the kernels.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from capture.loaders.rocprof import csv_tables
from capture.ranks import merge_logs
from capture.run import Run, tidy
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
    """Return the files of each job that has several."""
    jobs: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for file in files:
        match = _NAME.fullmatch(file.name)
        if match and csv_tables.sniff(Source.of(file).head):
            jobs[file.parent, match["job"]].append(file)
    return [tuple(own) for own in jobs.values() if len(own) > 1]


def load(files: Sequence[Path]) -> list[Run]:
    """Read the files of one job as one run."""
    runs = {_part(file, "kind"): run for file in files for run in csv_tables.load(Source.of(file))}
    repeated = [kind for kind in runs if _says_again(kind, runs)]
    log = merge_logs(list(runs.values()))
    log.format = FORMAT
    names = ", ".join(file.name for file in files)
    log.note("one_job", f"files of one job, read as one run on one clock: {names}", count=len(files))
    if repeated:
        message = f"say again what another file says and stand among the tables: {', '.join(repeated)}"
        log.note("said_again", message, count=len(repeated))
    events = pl.concat([run.events for kind, run in runs.items() if kind not in repeated], how="diagonal")
    first = next(iter(runs.values()))
    name = _part(files[0], "job") or files[0].parent.name or first.name
    return [Run(name, first.meta, tidy(events).rechunk(), log.freeze(), _tables(runs, repeated))]


def _part(file: Path, which: str) -> str:
    """Return the job or the kind that a file's name states."""
    match = _NAME.fullmatch(file.name)
    return match[which] if match else file.name


def _says_again(kind: str, runs: Mapping[str, Run]) -> bool:
    """Return whether a file's rows are those of another file once more."""
    if kind == _COUNTERS:
        return _KERNELS in runs
    if kind == _DOMAINS:
        return len(runs) > 1
    traced = {_domain(other) for other in runs if other.endswith("_trace")}
    return kind.endswith("_stats") and _domain(kind) in traced


def _domain(kind: str) -> str:
    return kind.removesuffix("_trace").removesuffix("_stats").removesuffix("_api")


def _tables(runs: Mapping[str, Run], repeated: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Return the tables of all files, and the rows of statistics that say again what a trace says."""
    tables = {name: table for run in runs.values() for name, table in run.tables.items()}
    for kind in repeated:
        rows = runs[kind].events
        figures = [c for c in ("count", "dur", "min", "max", "std") if c in rows.columns]
        if kind != _COUNTERS and rows.height:
            tables[kind] = rows.select(pl.col("name").cast(pl.String), *figures)
    return tables
