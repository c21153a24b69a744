"""What `nsys stats` prints, as CSV or as tables, one report or many, by its old names and its new ones."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from capture.classify.names import phase_of
from capture.importlog import Log
from capture.loaders._nsight_text import cut_names, told_apart
from capture.loaders.nsys.reports import Section, sections
from capture.native.schema import PATH_SEPARATOR
from capture.run import DTYPES, Run, build, with_log
from capture.source import Head, Source, decode

FORMAT = "nsys-stats"
PRODUCER = "NVIDIA Nsight Systems"
HOWTO = "nsys stats --format csv run.nsys-rep > run.csv"

Row = dict[str, Any]

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
_COPY: Final = re.compile(r"^\[?(?:CUDA )?mem(?:cpy|set)", re.IGNORECASE)
_DEVICE_NUMBER: Final = re.compile(r"\((\d+)\)\s*$")


def sniff(head: Head) -> bool:
    """Whether the first table of the text is one of ours."""
    if head.start.startswith("{"):
        return False
    return any(True for s in sections(enumerate(head.lines)) if _kind(s) != "other")


def load(source: Source) -> list[Run]:
    """A run for each profile that the text says it comes from."""
    profiles: dict[str, list[Section]] = {}
    for table in sections(_lines(source), source.log):
        profiles.setdefault(table.source, []).append(table)
    runs = [_run(name, tables, source.log) for name, tables in profiles.items()]
    return [with_log(run, source.log) for run in runs]


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    if source.head.raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return enumerate(source.text().split("\n"))
    return ((at, decode(raw)) for at, raw in source.lines())


def _run(name: str, tables: Sequence[Section], log: Log) -> Run:
    chosen = _chosen(tables, log)
    stated = [row for kind, table in chosen for row in _READERS[kind](table)]
    rows = [row for row in stated if row["name"] and row.get("dur", row.get("bytes")) is not None]
    log.drop("no_figure", "rows without a name or a total", count=len(stated) - len(rows))
    _weigh(rows, tables)
    cut = cut_names([row["name"] for row in rows])
    if cut:
        log.note("names_cut", "names that the source cut; equal ones are numbered", count=cut)
    meta = {"producer": "Nsight Systems, nsys stats", "profiled": True} | ({"names_cut": cut} if cut else {})
    events = pl.DataFrame(rows, schema=_schema(rows))
    return build(name or "nsys stats", meta, events, log, dict(_named_tables(tables)))


def _schema(rows: Iterable[Row]) -> dict[str, pl.DataType]:
    text = {c: pl.String() if t == pl.Categorical else t for c, t in DTYPES.items()}
    used = {"kind", "name"}.union(*rows)
    return {c: t for c, t in text.items() if c in used}


def _kind(table: Section) -> str:
    """What a table speaks of: by its title, else by its columns."""
    if table.report:
        return _BY_REPORT.get(table.report, "other")
    return next((kind for words, kind in _BY_COLUMNS if words <= table.words.keys()), "other")


def _chosen(tables: Sequence[Section], log: Log) -> list[tuple[str, Section]]:
    """The tables that become events: no time is stated twice."""
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
    """Whether a table states again what one before it states."""
    if kind in _ONCE:
        return any(kind == k for k, _ in chosen)
    return bool(table.report) and any(table.report == t.report for _, t in chosen)


def _sums(table: Section, **fixed: Any) -> Iterator[Row]:
    """The rows of a summary: count, total and the spread that it prints."""
    names = told_apart([table.text(row, "name") for row in table.rows])
    for name, row in zip(names, table.rows, strict=True):
        yield {
            "name": name,
            "count": table.whole(row, "count"),
            "dur": table.ns(row, "total time"),
            "min": table.ns(row, "min"),
            "max": table.ns(row, "max"),
            "p50": table.ns(row, "med"),
            "std": table.ns(row, "stddev"),
            **fixed,
        }


def _kernels(table: Section) -> Iterator[Row]:
    for row in _sums(table, kind="kernel", lens="gpu"):
        yield row | ({"category": "copy"} if _COPY.match(row["name"]) else {})


def _sizes(table: Section) -> Iterator[Row]:
    for row in table.rows:
        yield {
            "kind": "memory",
            "name": table.text(row, "name"),
            "count": table.whole(row, "count"),
            "bytes": table.bytes(row, "total"),
        }


def _calls(table: Section) -> Iterator[Row]:
    return _sums(table, kind="span", lens="host", category="host")


def _ranges(table: Section) -> Iterator[Row]:
    for row in _sums(table, kind="span", lens="wall"):
        name = row["name"].removeprefix(":")
        yield row | {"name": name, "phase": phase_of(name)}


def _range_kernels(table: Section) -> Iterator[Row]:
    """Kernels under every range that encloses them: with more than one range they must not be added up."""
    ranges = [table.text(row, "nvtx range").removeprefix(":") for row in table.rows]
    kind = "span" if len(set(ranges)) > 1 else "kernel"
    for row, path in zip(_sums(table, kind=kind, lens="gpu"), ranges, strict=True):
        yield row | {"path": path}


def _device_trace(table: Section) -> Iterator[Row]:
    for row in table.rows:
        name = table.text(row, "name")
        yield {
            "kind": "kernel",
            "lens": "gpu",
            "name": name,
            "category": "copy" if _COPY.match(name) else None,
            "t": table.ns(row, "start"),
            "dur": table.ns(row, "duration"),
            "bytes": table.bytes(row, "bytes"),
            "track": _gpu_track(table.text(row, "device"), table.text(row, "strm")),
        }


def _gpu_track(device: str, stream: str) -> str:
    found = _DEVICE_NUMBER.search(device)
    gpu = f"gpu{found[1]}" if found else device or "gpu?"
    return f"{gpu}/stream{stream}" if stream else gpu


def _call_trace(table: Section) -> Iterator[Row]:
    for row in table.rows:
        yield {
            "kind": "span",
            "lens": "host",
            "category": "host",
            "name": table.text(row, "name"),
            "t": table.ns(row, "start"),
            "dur": table.ns(row, "duration"),
            "track": _thread(table, row),
        }


def _range_trace(table: Section) -> Iterator[Row]:
    return _traced_ranges(table, "wall", "start", "duration")


def _projection(table: Section) -> Iterator[Row]:
    """NVTX ranges laid over the device time of what they launched."""
    return _traced_ranges(table, "gpu", "projected start", "projected duration")


def _traced_ranges(table: Section, lens: str, start: str, duration: str) -> Iterator[Row]:
    names = {table.text(row, "rangeid"): table.text(row, "name").removeprefix(":") for row in table.rows}
    for row in table.rows:
        *above, _ = table.text(row, "rangestack").strip(":").split(":")
        parents = [names[i] for i in above if i in names]
        name = table.text(row, "name").removeprefix(":")
        yield {
            "kind": "span",
            "lens": lens,
            "name": name,
            "t": table.ns(row, start),
            "dur": table.ns(row, duration),
            "path": PATH_SEPARATOR.join(parents) or None,
            "phase": phase_of(PATH_SEPARATOR.join([*parents, name])),
            "track": _thread(table, row),
        }


def _thread(table: Section, row: Sequence[str]) -> str | None:
    pid, tid = table.text(row, "pid"), table.text(row, "tid")
    return f"pid{pid}/tid{tid}" if tid else None


_READERS: Final[Mapping[str, Callable[[Section], Iterator[Row]]]] = {
    "kernels": _kernels,
    "copies": _kernels,
    "device": _kernels,
    "sizes": _sizes,
    "calls": _calls,
    "ranges": _ranges,
    "range_kernels": _range_kernels,
    "device_trace": _device_trace,
    "call_trace": _call_trace,
    "range_trace": _range_trace,
    "projection": _projection,
}


def _weigh(rows: Iterable[Row], tables: Iterable[Section]) -> None:
    """Gives copies the bytes that the table of sizes states for them."""
    sizes = {
        t.text(row, "name"): t.bytes(row, "total") for t in tables if _kind(t) == "sizes" for row in t.rows
    }
    for row in rows:
        if row["kind"] == "kernel" and row["name"] in sizes:
            row["bytes"] = sizes[row["name"]]


def _named_tables(tables: Iterable[Section]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Every printed table whole, under its report's name."""
    met: Counter[str] = Counter()
    for table in tables:
        name = table.report or _kind(table)
        met[name] += 1
        yield name if met[name] == 1 else f"{name} ({met[name]})", _frame(table)


def _frame(table: Section) -> pl.DataFrame:
    """Columns as numbers where every cell is one."""
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
