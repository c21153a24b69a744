"""What `nsys stats` prints, as CSV or as tables, one report or many, by its old names and its new ones.

Read: sums and traces of kernels, copies, API calls and NVTX ranges; every other report is kept as a table.
The reports: https://docs.nvidia.com/nsight-systems/UserGuide/index.html
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import polars as pl

from capture.importlog import Log
from capture.loaders._nsight_text import count_cut_names
from capture.loaders.nsys.reports import Section, sections
from capture.loaders.nsys.stats_rows import READERS, Row
from capture.run import DTYPES, Run, build, with_log
from capture.source import Head, Source, decode

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
_ONCE: Final = ("kernels", "copies", "device", "device_trace")


def sniff(head: Head) -> bool:
    """Return whether the first table of the text is one of `nsys stats`."""
    if head.start.startswith("{"):
        return False
    return any(True for s in sections(enumerate(head.lines)) if _kind(s) != "other")


def load(source: Source) -> list[Run]:
    """Return a run for each profile that the text says it comes from, or whose reports begin anew."""
    profiles: dict[str, list[list[Section]]] = {}
    for table in sections(_lines(source), source.log):
        parts = profiles.setdefault(table.source, [[]])
        if _kind(table) != "other" and any(_alike(t, table) for t in parts[-1]):
            parts.append([])
        parts[-1].append(table)
    runs = [run for name, parts in profiles.items() for run in _profile(name, parts, source.log)]
    return [with_log(run, source.log) for run in runs]


def _profile(name: str, parts: Sequence[list[Section]], log: Log) -> list[Run]:
    """Return a run of each part; one that says what a part before it says is none."""
    distinct = [part for i, part in enumerate(parts) if part not in parts[:i]]
    if len(distinct) == 1:
        return [_run(name, distinct[0], log)]
    log.note("reports_again", f"{len(distinct)} reports of the same kind: a run each")
    return [_run(f"{name or NAME}, {i}", part, log) for i, part in enumerate(distinct, 1)]


def _alike(one: Section, other: Section) -> bool:
    return (one.report, one.header) == (other.report, other.header)


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    if source.head.raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return enumerate(source.text().split("\n"))
    return ((at, decode(raw)) for at, raw in source.lines())


def _run(name: str, tables: Sequence[Section], log: Log) -> Run:
    chosen = _chosen(tables, log)
    stated = [row for kind, table in chosen for row in READERS[kind](table)]
    rows = [row for row in stated if row["name"] and row.get("dur", row.get("bytes")) is not None]
    log.drop("no_figure", "rows without a name or a total", count=len(stated) - len(rows))
    _weigh(rows, tables)
    cut = count_cut_names([row["name"] for row in rows])
    if cut:
        log.note("names_cut", "names that the source cut; equal ones are numbered", count=cut)
    meta = {"producer": "Nsight Systems, nsys stats", "profiled": True} | ({"names_cut": cut} if cut else {})
    events = pl.DataFrame(rows, schema=_schema(rows))
    return build(name or NAME, meta, events, log, dict(_named_tables(tables)))


def _schema(rows: Iterable[Row]) -> dict[str, pl.DataType]:
    text = {c: pl.String() if t == pl.Categorical else t for c, t in DTYPES.items()}
    used = {"kind", "name"}.union(*rows)
    return {c: t for c, t in text.items() if c in used}


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


def _weigh(rows: Iterable[Row], tables: Iterable[Section]) -> None:
    """Give copies the bytes that the table of sizes states for them."""
    sizes = {
        t.text(row, "name"): t.bytes(row, "total") for t in tables if _kind(t) == "sizes" for row in t.rows
    }
    for row in rows:
        if row["kind"] == "kernel" and row["name"] in sizes:
            row["bytes"] = sizes[row["name"]]


def _named_tables(tables: Iterable[Section]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield every printed table whole, under its report's name."""
    seen: Counter[str] = Counter()
    for table in tables:
        name = table.report or _kind(table)
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})", _frame(table)


def _frame(table: Section) -> pl.DataFrame:
    """Return columns as numbers where every cell is one."""
    header = [cell or f"column {i}" for i, cell in enumerate(table.header)]
    names = [h if header.index(h) == i else f"{h} ({i})" for i, h in enumerate(header)]
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(names)
    return pl.DataFrame([_column(n, cells) for n, cells in zip(names, columns, strict=True)])


def _column(name: str, cells: Sequence[str]) -> pl.Series:
    text = pl.Series(name, cells, dtype=pl.String)
    bare = text.str.strip_chars().str.replace_all(",", "", literal=True)
    blanks = (bare == "").sum()
    for type in (pl.Int64(), pl.Float64()):
        numbers = bare.cast(type, strict=False)
        if numbers.null_count() == blanks < len(cells):
            return numbers
    return text
