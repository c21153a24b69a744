"""The Markdown report of the CS336 course, made from `nsys stats`: one run per model size and context length.

Read: its tables of models, forward timings, kernels of both passes, fractions and softmax. Not read: its
prose. The report's own script truncated kernel names; equal ones are numbered.
The report's script: https://github.com/damek/cs336-assignment2-systems
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._json_document import to_integer
from capture.loaders._nsight_text import ELLIPSES, number_cut_names
from capture.loaders._typed_cells import (
    MILLISECOND,
    build_frame,
    parse_decimal,
    parse_nanoseconds,
    scale_to_integer,
)
from capture.run import Run, build_run, list_column_types, with_log
from capture.source import Head, Source

FORMAT = "cs336"
PRODUCER = "CS336 analyze_nsys_reports.py, from Nsight Systems"
HOWTO = "uv run analyze_nsys_reports.py"

Row = dict[str, Any]

_TITLE: Final = "# Nsight Systems Profiling Analysis Report"
# start of a heading → our name of its table
_SECTIONS: Final = (
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
_LISTED_ONLY: Final = "the source lists only the longest kernels of a pass, so their share of it is unknown"
_ATTENTION_MATMULS: Final = "attn_scores + final_matmul + output_proj"
_ROW_SCHEMA: Final = list_column_types(
    "kind", "name", "dur", "count", "std", "lens", "phase", "category", "unit", "value"
)
_META_BY_COLUMN: Final = {"num_layers": "layers", "num_heads": "heads", "d_model": "d_model", "d_ff": "d_ff"}


@dataclass(frozen=True)
class ReportTable:
    """A printed table: its cells by column, as printed."""

    header: tuple[str, ...]
    rows: list[Mapping[str, str]]

    def to_frame(self) -> pl.DataFrame:
        """Build a frame of the table, numbers as numbers."""
        return pl.DataFrame([_build_column(name, [row[name] for row in self.rows]) for name in self.header])


def sniff(head: Head) -> bool:
    return any(line.startswith(_TITLE) for line in head.lines[:20])


def load(source: Source) -> list[Run]:
    log = source.log
    tables = dict(_iter_tables(source.read_text().splitlines(), log))
    files = dict.fromkeys(row["file"] for table in tables.values() for row in table.rows if "file" in row)
    _note_limits(tables, log)
    frames = {name: table.to_frame() for name, table in tables.items()}
    runs = [_build_run(file, tables, frames, log) for file in files]
    return [with_log(run, log) for run in runs]


def _iter_tables(lines: Iterable[str], log: Log) -> Iterator[tuple[str, ReportTable]]:
    section, table = "", None
    for line_number, line in enumerate(lines):
        if line.startswith("#"):
            heading, table = line.lstrip("#").strip().lower(), None
            section = next((name for words, name in _SECTIONS if heading.startswith(words)), "")
        elif not line.startswith("|") or not section:
            table = None
        elif table is None:
            table = ReportTable(_deduplicate(_split_row(line)), [])
            yield section, table
        elif not _RULE.fullmatch(line.strip()):
            _add_row(table, _split_row(line), line_number, log)


def _split_row(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def _deduplicate(header: tuple[str, ...]) -> tuple[str, ...]:
    """Number the later ones of equal column names."""
    names: list[str] = []
    for name in header:
        numbered = (name, *(f"{name} ({number})" for number in range(2, len(header) + 2)))
        names.append(next(candidate for candidate in numbered if candidate not in names))
    return tuple(names)


def _add_row(table: ReportTable, cells: tuple[str, ...], line_number: int, log: Log) -> None:
    log.read += 1
    if len(cells) == len(table.header) and all(cells):
        table.rows.append(dict(zip(table.header, cells, strict=True)))
    else:
        log.drop("bad_row", "table rows that do not fit their header", at=line_number)


def _note_limits(tables: Mapping[str, ReportTable], log: Log) -> None:
    """Note which printed values are incomplete."""
    if backward := tables.get("first_backward"):
        message = (
            "the backward tables miss autograd's kernels: it launches them on a thread without NVTX ranges, "
            "so they show only one tiny fill"
        )
        log.note("backward_other_thread", message, count=len(backward.rows))
    cells = (row.get("top_kernel", "") for table in tables.values() for row in table.rows)
    if cut_count := sum(cell.endswith(ELLIPSES) for cell in cells):
        message = "kernel names truncated to 80 characters, StdDev included; equal ones are numbered"
        log.note("names_cut", message, count=cut_count)


def _build_run(
    file: str, tables: Mapping[str, ReportTable], frames: Mapping[str, pl.DataFrame], log: Log
) -> Run:
    rows = [
        *_iter_forward(tables, file),
        *_iter_kernels(tables, file, "forward", ("top_forward", "first_forward")),
        *_iter_kernels(tables, file, "backward", ("first_backward",)),
        *_iter_attention(tables, file),
    ]
    for row in _select_rows(tables, "fractions", file):
        rows += _iter_counters(row, [column for column in row if column.endswith("_%")])
    events = build_frame(rows, _ROW_SCHEMA, log)
    return build_run(file, _build_meta(file, tables), events, log, frames)


def _build_meta(file: str, tables: Mapping[str, ReportTable]) -> dict[str, Any]:
    meta: dict[str, Any] = {"producer": PRODUCER, "profiled": True, "listed": _LISTED_ONLY}
    if shares := _describe_matmul_shares(tables, file):
        meta["stated_shares"] = shares
    match = _FILE.fullmatch(file)
    if not match:
        return meta
    meta |= {"model": match["size"], "size": match["size"], "context": int(match["context"][:9])}
    models = tables["models"].rows if "models" in tables else []
    for row in models:
        if row.get("Size") == match["size"]:
            sizes = {key: to_integer(row.get(column, "")) for column, key in _META_BY_COLUMN.items()}
            meta |= {key: value for key, value in sizes.items() if value is not None}
    return meta


def _describe_matmul_shares(tables: Mapping[str, ReportTable], file: str) -> str:
    """Describe the shares of matrix products that the report prints; empty if there are none."""
    row = next(iter(_select_rows(tables, "fractions", file)), {})
    pass_names = {"matmul_forward_%": "the forward pass", "matmul_train_%": "a training step"}
    return ", ".join(f"matmul {row[c]}% of {name}" for c, name in pass_names.items() if row.get(c))


def _select_rows(tables: Mapping[str, ReportTable], name: str, file: str) -> list[Mapping[str, str]]:
    return [row for row in tables[name].rows if row.get("file") == file] if name in tables else []


def _iter_forward(tables: Mapping[str, ReportTable], file: str) -> Iterator[Row]:
    """Yield the forward pass on two clocks: the NVTX range, and Python's timer without the profiler."""
    name_by_column = {"duration_ms": "forward_pass", "python_ms": "forward_pass, timed in Python"}
    for row in _select_rows(tables, "forward", file):
        for column, name in name_by_column.items():
            if (dur_ns := parse_nanoseconds(row.get(column, ""), MILLISECOND)) is not None:
                span = {"kind": "span", "lens": "wall", "name": name, "phase": "forward"}
                yield {**span, "dur": dur_ns, "count": 1}
        yield from _iter_counters(row, ("percentage",))


def _iter_kernels(
    tables: Mapping[str, ReportTable], file: str, phase: str, names: Iterable[str]
) -> Iterator[Row]:
    """Yield the top kernels of a phase, from the longest table that lists them."""
    rows = next((rows_of_file for name in names if (rows_of_file := _select_rows(tables, name, file))), [])
    cells = [_split_std(row.get("top_kernel", "")) for row in rows]
    numbered_names = number_cut_names([name for _, name in cells])
    for row, (std, _), name in zip(rows, cells, numbered_names, strict=True):
        yield {
            "kind": "kernel",
            "lens": "gpu",
            "name": name,
            "phase": phase,
            "count": scale_to_integer(parse_decimal(row.get("count", "")), 1),
            "dur": parse_nanoseconds(row.get("total_time_ms", ""), MILLISECOND),
            "std": parse_nanoseconds(std, 1),
        }


def _split_std(cell: str) -> tuple[str, str]:
    """Split the StdDev in ns from the name: the script left it in front of each kernel."""
    match = _KERNEL.fullmatch(cell)
    return (match["std"], match["name"]) if match else ("", cell)


def _iter_attention(tables: Mapping[str, ReportTable], file: str) -> Iterator[Row]:
    """Yield softmax and the matrix products around it, over all profiled passes."""
    parts = (("softmax_ms", "softmax", "softmax"), ("matmul_ms", _ATTENTION_MATMULS, "matmul"))
    for row in _select_rows(tables, "softmax", file):
        for column, name, category in parts:
            if (dur_ns := parse_nanoseconds(row.get(column, ""), MILLISECOND)) is not None:
                yield {"kind": "span", "lens": "wall", "name": name, "category": category, "dur": dur_ns}


def _iter_counters(row: Mapping[str, str], columns: Iterable[str]) -> Iterator[Row]:
    for column in columns:
        value = parse_decimal(row.get(column, ""))
        if value is not None:
            yield {"kind": "counter", "name": column, "value": float(value), "unit": "%"}


def _build_column(name: str, cells: list[str]) -> pl.Series:
    values = [parse_decimal(cell) for cell in cells]
    if None in values or not values:
        return pl.Series(name, cells, dtype=pl.String)
    return pl.Series(name, [float(value) for value in values if value is not None])
