"""The Markdown report of the CS336 course, made from `nsys stats`: a run per model size and context.

Read: its tables of models, forward timings, kernels of both passes, fractions and softmax. Not read: its
prose. Names of kernels were cut by the report's own script; equal ones get a number each.
The report's script: https://github.com/damek/cs336-assignment2-systems
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._json_document import whole
from capture.loaders._nsight_text import ELLIPSES, number_cut_names
from capture.loaders._numbers import MILLISECOND, exact, number
from capture.loaders._rows import frame_of
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT = "cs336"
PRODUCER = "CS336 analyze_nsys_reports.py, from Nsight Systems"
HOWTO = "uv run analyze_nsys_reports.py"

Row = dict[str, Any]

_TITLE: Final = "# Nsight Systems Profiling Analysis Report"
# words of a heading → what its table is called here
_TABLES: Final = (
    ("model specifications", "models"),
    ("forward pass timings", "forward"),
    ("top 5 cuda kernels in forward", "top_forward"),
    ("top cuda kernels in forward", "first_forward"),
    ("top cuda kernels in backward", "first_backward"),
    ("matrix multiplication vs other", "fractions"),
    ("softmax vs matrix", "softmax"),
)
_FILE: Final = re.compile(r"(?P<size>.+)_ctx(?P<context>\d+)")
_KERNEL: Final = re.compile(r"(?P<std>\d[\d.]*)\s+(?P<name>\S.*)")
_RULE: Final = re.compile(r"\|[-:| ]+\|")
_LISTED: Final = "the source lists the longest kernels of a pass alone: of what they are a share is not known"
_ATTENTION_MATMULS: Final = "attn_scores + final_matmul + output_proj"
_OF_MODEL: Final = {"num_layers": "layers", "num_heads": "heads", "d_model": "d_model", "d_ff": "d_ff"}


@dataclass(frozen=True)
class Table:
    """A printed table: its cells by column, as they stand there."""

    header: tuple[str, ...]
    rows: list[Mapping[str, str]]

    def of(self, file: str) -> list[Mapping[str, str]]:
        return [row for row in self.rows if row.get("file") == file]

    def frame(self) -> pl.DataFrame:
        """Return the table whole, numbers as numbers."""
        return pl.DataFrame([_column(name, [row[name] for row in self.rows]) for name in self.header])


def sniff(head: Head) -> bool:
    return any(line.startswith(_TITLE) for line in head.lines[:20])


def load(source: Source) -> list[Run]:
    log = source.log
    tables = dict(_read(source.text().splitlines(), log))
    files = dict.fromkeys(row["file"] for t in tables.values() for row in t.rows if "file" in row)
    _note_limits(tables, log)
    frames = {name: table.frame() for name, table in tables.items()}
    runs = [_run(file, tables, frames, log) for file in files]
    return [with_log(run, log) for run in runs]


def _read(lines: Iterable[str], log: Log) -> Iterator[tuple[str, Table]]:
    """Yield the known tables under their headings."""
    section, table = "", None
    for at, line in enumerate(lines):
        if line.startswith("#"):
            section, table = _section_of(line), None
        elif not line.startswith("|") or not section:
            table = None
        elif table is None:
            table = Table(_distinct(_cells(line)), [])
            yield section, table
        elif not _RULE.fullmatch(line.strip()):
            _add(table, _cells(line), at, log)


def _section_of(heading: str) -> str:
    text = heading.lstrip("#").strip().lower()
    return next((name for words, name in _TABLES if text.startswith(words)), "")


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def _distinct(header: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of columns of which none stands twice: a later one is numbered."""
    names: list[str] = []
    for name in header:
        numbered = (name, *(f"{name} ({n})" for n in range(2, len(header) + 2)))
        names.append(next(each for each in numbered if each not in names))
    return tuple(names)


def _add(table: Table, cells: tuple[str, ...], at: int, log: Log) -> None:
    log.read += 1
    if len(cells) == len(table.header) and all(cells):
        table.rows.append(dict(zip(table.header, cells, strict=True)))
    else:
        log.drop("bad_row", "table rows that do not fit their header", at=at)


def _note_limits(tables: Mapping[str, Table], log: Log) -> None:
    """Note what the report cannot know, though it prints it."""
    backward = tables.get("first_backward")
    if backward:
        message = (
            "the backward tables were measured outside autograd's thread: its kernels are launched where "
            "no NVTX range stands, so one tiny fill is all that they show"
        )
        log.note("backward_other_thread", message, count=len(backward.rows))
    cut = sum(row.get("top_kernel", "").endswith(ELLIPSES) for t in tables.values() for row in t.rows)
    if cut:
        log.note(
            "names_cut",
            "kernel names cut at 80 characters, the StdDev before them included: equal ones are numbered",
            count=cut,
        )


def _run(file: str, tables: Mapping[str, Table], frames: Mapping[str, pl.DataFrame], log: Log) -> Run:
    rows = [
        *_forward(tables, file),
        *_kernels(tables, file, "forward", ("top_forward", "first_forward")),
        *_kernels(tables, file, "backward", ("first_backward",)),
        *_attention(tables, file),
        *_shares(tables, file),
    ]
    schema = {"kind": pl.String, "name": pl.String, "dur": pl.Int64, "count": pl.Int64, "std": pl.Int64}
    schema |= {"lens": pl.String, "phase": pl.String, "category": pl.String, "unit": pl.String}
    events = frame_of(rows, schema | {"value": pl.Float64}, log)
    return build(file, _meta(file, tables), events, log, frames)


def _meta(file: str, tables: Mapping[str, Table]) -> dict[str, Any]:
    meta: dict[str, Any] = {"producer": PRODUCER, "profiled": True, "listed": _LISTED}
    if shares := _stated_shares(tables, file):
        meta["stated_shares"] = shares
    match = _FILE.fullmatch(file)
    if not match:
        return meta
    meta |= {"model": match["size"], "size": match["size"], "context": int(match["context"][:9])}
    models = tables["models"].rows if "models" in tables else []
    for row in models:
        if row.get("Size") == match["size"]:
            stated = {ours: whole(row.get(c, "")) for c, ours in _OF_MODEL.items()}
            meta |= {ours: value for ours, value in stated.items() if value is not None}
    return meta


def _stated_shares(tables: Mapping[str, Table], file: str) -> str:
    """Return what the report says of the share of matrix products, in words; empty where it says nothing."""
    row = next(iter(_rows(tables, "fractions", file)), {})
    passes = {"matmul_forward_%": "the forward pass", "matmul_train_%": "a training step"}
    return ", ".join(f"matmul {row[c]}% of {words}" for c, words in passes.items() if row.get(c))


def _rows(tables: Mapping[str, Table], name: str, file: str) -> list[Mapping[str, str]]:
    return tables[name].of(file) if name in tables else []


def _forward(tables: Mapping[str, Table], file: str) -> Iterator[Row]:
    """Yield the forward pass on two clocks: the NVTX range, and Python's timer in a run without the
    profiler.
    """
    timed = {"duration_ms": "forward_pass", "python_ms": "forward_pass, timed in Python"}
    for row in _rows(tables, "forward", file):
        for column, name in timed.items():
            if (ns := _ns(row, column, MILLISECOND)) is not None:
                yield {
                    "kind": "span",
                    "lens": "wall",
                    "name": name,
                    "phase": "forward",
                    "dur": ns,
                    "count": 1,
                }
        yield from _counters(row, ("percentage",))


def _kernels(tables: Mapping[str, Table], file: str, phase: str, names: Iterable[str]) -> Iterator[Row]:
    """Yield the top kernels of a phase, from the longest table that lists them."""
    rows = next((rows_of_file for name in names if (rows_of_file := _rows(tables, name, file))), [])
    split = [_std_and_name(row.get("top_kernel", "")) for row in rows]
    unique = number_cut_names([name for _, name in split])
    for row, (std, _), name in zip(rows, split, unique, strict=True):
        yield {
            "kind": "kernel",
            "lens": "gpu",
            "name": name,
            "phase": phase,
            "count": exact(number(row.get("count", "")), 1),
            "dur": _ns(row, "total_time_ms", MILLISECOND),
            "std": exact(std, 1),
        }


def _std_and_name(cell: str) -> tuple[Decimal | None, str]:
    """Split the StdDev, in ns, from the name: the script left it standing before each kernel."""
    match = _KERNEL.fullmatch(cell)
    return (number(match["std"]), match["name"]) if match else (None, cell)


def _attention(tables: Mapping[str, Table], file: str) -> Iterator[Row]:
    """Yield softmax against the matrix multiplications around it, over all profiled passes."""
    parts = (("softmax_ms", "softmax", "softmax"), ("matmul_ms", _ATTENTION_MATMULS, "matmul"))
    for row in _rows(tables, "softmax", file):
        for column, name, category in parts:
            if (ns := _ns(row, column, MILLISECOND)) is not None:
                yield {"kind": "span", "lens": "wall", "name": name, "category": category, "dur": ns}


def _shares(tables: Mapping[str, Table], file: str) -> Iterator[Row]:
    for row in _rows(tables, "fractions", file):
        yield from _counters(row, [column for column in row if column.endswith("_%")])


def _counters(row: Mapping[str, str], columns: Iterable[str]) -> Iterator[Row]:
    for column in columns:
        value = number(row.get(column, ""))
        if value is not None:
            yield {"kind": "counter", "name": column, "value": float(value), "unit": "%"}


def _ns(row: Mapping[str, str], column: str, unit: int) -> int | None:
    return exact(number(row.get(column, "")), unit)


def _column(name: str, cells: list[str]) -> pl.Series:
    values = [number(cell) for cell in cells]
    if None in values or not values:
        return pl.Series(name, cells, dtype=pl.String)
    return pl.Series(name, [float(v) for v in values if v is not None])
