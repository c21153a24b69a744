"""The text that `nsys stats` prints, as CSV or aligned, one report or many, under its old or new names.

Read: sums and traces of kernels, copies, API calls and NVTX ranges; every other report is kept as a table.
The reports: https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._nsight_text import count_cut_names
from capture.loaders.nsys.printed_reports import PrintedTable, iter_tables
from capture.loaders.nsys.stats_events import READERS
from capture.run import Run, build_run, with_log
from capture.source import Head, Source
from capture.tasks import run_parallel

FORMAT = "nsys-stats"
PRODUCER = "NVIDIA Nsight Systems"
HOWTO = "nsys stats --format csv run.nsys-rep > run.csv"

DEFAULT_RUN_NAME: Final = "nsys stats"  # if the text does not name the profile
_KIND_BY_REPORT: Final = {
    "cuda_gpu_kern_sum": "kernels", "gpukernsum": "kernels",
    "cuda_gpu_kern_gb_sum": "kernels", "gpukerngbsum": "kernels",
    "cuda_gpu_mem_time_sum": "copies", "gpumemtimesum": "copies",
    "cuda_gpu_mem_size_sum": "sizes", "gpumemsizesum": "sizes",
    "cuda_gpu_sum": "device", "gpusum": "device",
    "cuda_api_sum": "calls", "cudaapisum": "calls", "osrt_sum": "calls", "osrtsum": "calls",
    "nvtx_sum": "ranges", "nvtxsum": "ranges",
    "nvtx_pushpop_sum": "ranges", "nvtxppsum": "ranges", "nvtx_startend_sum": "ranges", "nvtxsssum": "ranges",
    "nvtx_kern_sum": "range_kernels", "nvtxkernsum": "range_kernels",
    "cuda_gpu_trace": "device_trace", "gputrace": "device_trace",
    "cuda_api_trace": "call_trace", "cudaapitrace": "call_trace",
    "nvtx_pushpop_trace": "range_trace", "nvtxpptrace": "range_trace",
    "nvtx_gpu_proj_trace": "projection", "nvtxgpuproj": "projection",
}  # fmt: skip
# column words → kind of an untitled table; the first match wins
_KIND_BY_COLUMNS: Final = (
    ({"nvtx range", "kern inst"}, "range_kernels"),
    ({"projected start"}, "projection"),
    ({"rangeid"}, "range_trace"),
    ({"result", "corrid"}, "call_trace"),
    ({"corrid"}, "device_trace"),
    ({"category", "operation"}, "device"),
    ({"total time", "operation"}, "copies"),
    ({"total", "operation"}, "sizes"),
    ({"range"}, "ranges"),
    ({"num calls"}, "calls"),
    ({"instances", "name"}, "kernels"),
)
# kind → finer kinds with the same time; a coarse table then stays a table only
_FINER_KINDS: Final = {
    "kernels": ("device_trace",),
    "copies": ("device_trace",),
    "sizes": ("device_trace", "copies", "device"),
    "device": ("device_trace", "kernels"),
    "calls": ("call_trace",),
    "ranges": ("range_trace",),
    "range_kernels": ("device_trace", "kernels", "device"),
}
_CELLS_PER_DISTINCT: Final = 8  # cells per distinct cell from which it is faster to convert the distinct ones
_SINGLE_KINDS: Final = ("kernels", "copies", "device", "device_trace")


def sniff(head: Head) -> bool:
    """Accept a text whose first table is one of `nsys stats`."""
    if head.stripped_text.startswith("{"):
        return False
    return any(_infer_kind(table) != "other" for table in iter_tables(head.text.encode()))


def load(source: Source) -> list[Run]:
    """Read one run per profile named in the text, and per repetition of its reports."""
    parts_by_profile: dict[str, list[list[PrintedTable]]] = {}
    for table in iter_tables(source.read_utf8(), source.log):
        parts = parts_by_profile.setdefault(table.source, [[]])
        if _infer_kind(table) != "other" and table.title in [other.title for other in parts[-1]]:
            parts.append([])
        parts[-1].append(table)
    runs = [run for name, parts in parts_by_profile.items() for run in _build_runs(name, parts, source.log)]
    return [with_log(run, source.log) for run in runs]


def _build_runs(name: str, parts: Sequence[list[PrintedTable]], log: Log) -> list[Run]:
    """Build one run per part; a part that repeats an earlier one is ignored."""
    distinct_parts: list[list[PrintedTable]] = []
    for part in parts:
        same_length = (other for other in distinct_parts if len(other) == len(part))
        if not any(all(map(PrintedTable.equals, part, other)) for other in same_length):
            distinct_parts.append(part)
    if len(distinct_parts) == 1:
        return [_build_run(name, distinct_parts[0], log)]
    log.note("reports_again", f"{len(distinct_parts)} reports of the same kind: one run each")
    name = name or DEFAULT_RUN_NAME
    return [_build_run(f"{name}, {i}", part, log) for i, part in enumerate(distinct_parts, 1)]


def _build_run(name: str, tables: Sequence[PrintedTable], log: Log) -> Run:
    frames = [READERS[kind](table) for kind, table in _choose_tables(tables, log)]
    value_columns = ["dur" if "dur" in rows.columns else "bytes" for rows in frames]
    valid_frames = [
        rows.filter(pl.col("name") != "", pl.col(column).is_not_null())
        for rows, column in zip(frames, value_columns, strict=True)
    ]
    no_rows = pl.DataFrame(schema={"kind": pl.String, "name": pl.String})
    rows = pl.concat([*valid_frames, no_rows], how="diagonal")
    log.drop("no_figure", "rows without a name or a total", count=sum(map(len, frames)) - rows.height)
    events = _with_copy_sizes(rows, tables)
    if cut_count := count_cut_names(events["name"]):
        log.note("names_cut", "names that the source truncated; equal ones are numbered", count=cut_count)
    meta: dict[str, Any] = {"producer": "Nsight Systems, nsys stats", "profiled": True}
    meta |= {"names_cut": cut_count} if cut_count else {}
    return build_run(name or DEFAULT_RUN_NAME, meta, events, log, dict(_iter_named_tables(tables)))


def _infer_kind(table: PrintedTable) -> str:
    """Infer the kind of a table from its title, else from its columns."""
    if table.report:
        return _KIND_BY_REPORT.get(table.report, "other")
    return next((kind for words, kind in _KIND_BY_COLUMNS if words <= table.words.keys()), "other")


def _choose_tables(tables: Sequence[PrintedTable], log: Log) -> list[tuple[str, PrintedTable]]:
    """Choose the tables that become events, so that no time counts twice."""
    kinds = [(_infer_kind(t), t) for t in tables]
    kinds_present = {kind for kind, _ in kinds}
    chosen: list[tuple[str, PrintedTable]] = []
    for kind, table in kinds:
        finer_kinds = kinds_present.intersection(_FINER_KINDS.get(kind, ()))
        if kind != "other" and not finer_kinds and not _is_repeated(kind, table, chosen):
            chosen.append((kind, table))
        elif kind != "sizes":
            message = f"{table.report or kind} is kept only as a table: other reports contain its time"
            log.note("table_only", message)
    return chosen


def _is_repeated(kind: str, table: PrintedTable, chosen: Sequence[tuple[str, PrintedTable]]) -> bool:
    """Return True if an earlier table states the same."""
    if kind in _SINGLE_KINDS:
        return any(kind == k for k, _ in chosen)
    return bool(table.report) and any(table.report == t.report for _, t in chosen)


def _with_copy_sizes(rows: pl.DataFrame, tables: Iterable[PrintedTable]) -> pl.DataFrame:
    """Give copies the bytes that the table of sizes reports for them."""
    size_tables = (table for table in tables if _infer_kind(table) == "sizes")
    pairs = (zip(t.read_text("name"), t.read_bytes("total"), strict=True) for t in size_tables)
    sizes = dict(chain.from_iterable(pairs))
    if not sizes:
        return rows
    is_copy = (pl.col("kind") == "kernel") & pl.col("name").is_in(list(sizes))
    own_bytes = pl.col("bytes") if "bytes" in rows.columns else pl.lit(None, dtype=pl.Int64)
    printed_bytes = pl.col("name").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    return rows.with_columns(bytes=pl.when(is_copy).then(printed_bytes).otherwise(own_bytes))


def _iter_named_tables(tables: Iterable[PrintedTable]) -> Iterator[tuple[str, pl.DataFrame]]:
    name_counts: Counter[str] = Counter()
    for table in tables:
        name = table.report or _infer_kind(table)
        name_counts[name] += 1
        yield name if name_counts[name] == 1 else f"{name} ({name_counts[name]})", _build_frame(table)


def _build_frame(table: PrintedTable) -> pl.DataFrame:
    header = [cell or f"column {i}" for i, cell in enumerate(table.header)]
    names = [h if header.index(h) == i else f"{h} ({i})" for i, h in enumerate(header)]
    named_cells = zip(names, table.cells, strict=True)
    columns = [partial(_infer_column_type, cells.alias(name)) for name, cells in named_cells]
    return pl.DataFrame(run_parallel(columns, table.cells.height))


def _infer_column_type(text: pl.Series) -> pl.Series:
    """Convert a column to numbers if every cell is one; few distinct cells are tried once each."""
    if text.len() > 1 and (text == text[0]).all():
        return _try_numbers(text.head(1)).new_from_index(0, text.len())
    numbers = text.cast(pl.Int64, strict=False)
    if not numbers.null_count():
        return numbers
    distinct = text.unique()
    has_few_distinct = distinct.len() * _CELLS_PER_DISTINCT < text.len()
    return text if has_few_distinct and _try_numbers(distinct).dtype == pl.String else _try_numbers(text)


def _try_numbers(text: pl.Series) -> pl.Series:
    bare = text.str.strip_chars().str.replace_all(",", "", literal=True)
    blanks = (bare == "").sum()
    for type in (pl.Int64(), pl.Float64()):
        numbers = bare.cast(type, strict=False)
        if numbers.null_count() == blanks < len(text):
            return numbers
    return text
