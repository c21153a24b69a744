"""What `nsys stats` prints, as CSV or as tables, one report or many, by its old names and its new ones.

Read: sums and traces of kernels, copies, API calls and NVTX ranges; every other report is kept as a table.
The reports: https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import polars as pl

from capture.at_once import at_once
from capture.importlog import Log
from capture.loaders._nsight_text import count_cut_names
from capture.loaders.nsys.reports import Section, sections
from capture.loaders.nsys.stats_rows import READERS
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT = "nsys-stats"
PRODUCER = "NVIDIA Nsight Systems"
HOWTO = "nsys stats --format csv run.nsys-rep > run.csv"

NAME: Final = "nsys stats"  # of a run whose profile the text does not name
_BY_REPORT: Final = {
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
# which column words tell a table that has no title, the first that fits
_BY_COLUMNS: Final = (
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
# what states the same time as something finer: it is kept as a table only
_INSTEAD: Final = {
    "kernels": ("device_trace",),
    "copies": ("device_trace",),
    "sizes": ("device_trace", "copies", "device"),
    "device": ("device_trace", "kernels"),
    "calls": ("call_trace",),
    "ranges": ("range_trace",),
    "range_kernels": ("device_trace", "kernels", "device"),
}
_FEW: Final = 8  # cells a distinct one, from which it is sooner to look at those
_ONCE: Final = ("kernels", "copies", "device", "device_trace")


def sniff(head: Head) -> bool:
    """Return whether the first table of the text is one of `nsys stats`."""
    if head.start.startswith("{"):
        return False
    return any(_kind(table) != "other" for table in sections(head.text.encode()))


def load(source: Source) -> list[Run]:
    """Return a run for each profile that the text says it comes from, or whose reports begin anew."""
    profiles: dict[str, list[list[Section]]] = {}
    for table in sections(source.utf8(), source.log):
        parts = profiles.setdefault(table.source, [[]])
        if _kind(table) != "other" and any(_alike(t, table) for t in parts[-1]):
            parts.append([])
        parts[-1].append(table)
    runs = [run for name, parts in profiles.items() for run in _profile(name, parts, source.log)]
    return [with_log(run, source.log) for run in runs]


def _profile(name: str, parts: Sequence[list[Section]], log: Log) -> list[Run]:
    """Return a run of each part; one that says what a part before it says is none."""
    distinct = [part for i, part in enumerate(parts) if not any(_equal(part, other) for other in parts[:i])]
    if len(distinct) == 1:
        return [_run(name, distinct[0], log)]
    log.note("reports_again", f"{len(distinct)} reports of the same kind: a run each")
    return [_run(f"{name or NAME}, {i}", part, log) for i, part in enumerate(distinct, 1)]


def _equal(part: Sequence[Section], other: Sequence[Section]) -> bool:
    pairs = zip(part, other, strict=False)
    return len(part) == len(other) and all(one.equals(another) for one, another in pairs)


def _alike(one: Section, other: Section) -> bool:
    return (one.report, one.header) == (other.report, other.header)


def _run(name: str, tables: Sequence[Section], log: Log) -> Run:
    stated = [READERS[kind](table) for kind, table in _chosen(tables, log)]
    kept = [rows.filter(pl.col("name") != "", pl.col(_figure(rows)).is_not_null()) for rows in stated]
    rows = pl.concat([*kept, pl.DataFrame(schema={"kind": pl.String, "name": pl.String})], how="diagonal")
    log.drop("no_figure", "rows without a name or a total", count=sum(map(len, stated)) - rows.height)
    events = _weighed(rows, tables)
    cut = count_cut_names(events["name"])
    if cut:
        log.note("names_cut", "names that the source cut; equal ones are numbered", count=cut)
    meta = {"producer": "Nsight Systems, nsys stats", "profiled": True} | ({"names_cut": cut} if cut else {})
    return build(name or NAME, meta, events, log, dict(_named_tables(tables)))


def _figure(rows: pl.DataFrame) -> str:
    return "dur" if "dur" in rows.columns else "bytes"


def _kind(table: Section) -> str:
    """Return what a table speaks of: by its title, else by its columns."""
    if table.report:
        return _BY_REPORT.get(table.report, "other")
    return next((kind for words, kind in _BY_COLUMNS if words <= table.words.keys()), "other")


def _chosen(tables: Sequence[Section], log: Log) -> list[tuple[str, Section]]:
    """Return the tables that become events: no time is stated twice."""
    kinds = [(_kind(t), t) for t in tables]
    there = {kind for kind, _ in kinds}
    chosen: list[tuple[str, Section]] = []
    for kind, table in kinds:
        finer = there.intersection(_INSTEAD.get(kind, ()))
        if kind != "other" and not finer and not _repeats(kind, table, chosen):
            chosen.append((kind, table))
        elif kind != "sizes":
            log.note("table_only", f"{table.report or kind} is kept as a table: it is no time of its own")
    return chosen


def _repeats(kind: str, table: Section, chosen: Sequence[tuple[str, Section]]) -> bool:
    """Return whether a table states again what one before it states."""
    if kind in _ONCE:
        return any(kind == k for k, _ in chosen)
    return bool(table.report) and any(table.report == t.report for _, t in chosen)


def _weighed(rows: pl.DataFrame, tables: Iterable[Section]) -> pl.DataFrame:
    """Return rows in which copies have the bytes that the table of sizes states for them."""
    sizes = {
        name: size
        for t in tables
        if _kind(t) == "sizes"
        for name, size in zip(t.text("name"), t.bytes("total"), strict=True)
    }
    if not sizes:
        return rows
    sized = (pl.col("kind") == "kernel") & pl.col("name").is_in(list(sizes))
    stated = pl.col("bytes") if "bytes" in rows.columns else pl.lit(None, dtype=pl.Int64)
    printed = pl.col("name").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    return rows.with_columns(bytes=pl.when(sized).then(printed).otherwise(stated))


def _named_tables(tables: Iterable[Section]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield every printed table whole, under its report's name."""
    seen: Counter[str] = Counter()
    for table in tables:
        name = table.report or _kind(table)
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})", _frame(table)


def _frame(table: Section) -> pl.DataFrame:
    """Return the columns of a table by their headings."""
    header = [cell or f"column {i}" for i, cell in enumerate(table.header)]
    names = [h if header.index(h) == i else f"{h} ({i})" for i, h in enumerate(header)]
    columns = [partial(_column, cells.alias(n)) for n, cells in zip(names, table.cells, strict=True)]
    return pl.DataFrame(at_once(columns, table.cells.height))


def _column(text: pl.Series) -> pl.Series:
    """Return a column as numbers where every cell is one, else as it is; few distinct cells once each."""
    if text.len() > 1 and (text == text[0]).all():
        return _numbers(text.head(1)).new_from_index(0, text.len())
    numbers = text.cast(pl.Int64, strict=False)
    if not numbers.null_count():
        return numbers
    words = text.unique()
    few = words.len() * _FEW < text.len()
    return text if few and _numbers(words).dtype == pl.String else _numbers(text)


def _numbers(text: pl.Series) -> pl.Series:
    bare = text.str.strip_chars().str.replace_all(",", "", literal=True)
    blanks = (bare == "").sum()
    for type in (pl.Int64(), pl.Float64()):
        numbers = bare.cast(type, strict=False)
        if numbers.null_count() == blanks < len(text):
            return numbers
    return text
