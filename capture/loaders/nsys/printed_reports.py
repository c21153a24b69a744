"""Parse the tables that `nsys stats` prints, as CSV or aligned text: a title, a header, rows of cells."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

import polars as pl

from capture.import_log import Log
from capture.loaders._delimited import (
    BLANKS,
    compute_line_ends,
    parse_scaled_integers,
    split_lines,
    split_with_fallback,
)
from capture.loaders._nsight_text import (
    BYTE_UNITS,
    RULE,
    TIME_UNITS,
    find_spans,
    slice_row,
    split_csv_line,
    split_row,
)
from capture.loaders._typed_cells import parse_nanoseconds

_TITLES: Final = (
    re.compile(r"^\s*\*\* .*\((?P<report>\w+)\):"),
    re.compile(r"^\s*\[\d+/\d+\] Executing '(?P<report>\w+)' stats report"),
    re.compile(r"^\s*Processing \[(?P<source>[^\]]+)\] with \[(?P<script>[^\]]+)\]"),
)
# until 2021: `CUDA Memory Operation Statistics (by size in KiB):`, `CUDA Kernel Statistics (nanoseconds)`
_OLD_TITLE: Final = re.compile(r"(?P<subject>[\w -]+) Statistics(?: \((?P<measure>[\w ]+)\))?:?")
_OLD_SUBJECTS: Final = {
    "CUDA API": "cuda_api_sum",
    "CUDA Kernel": "cuda_gpu_kern_sum",
    "CUDA Memory Operation": "cuda_gpu_mem_time_sum",
    "Operating System Runtime API": "osrt_sum",
    "NVTX Push-Pop Range": "nvtx_pushpop_sum",
    "NVTX Range": "nvtx_sum",
}
_OLD_SIZES: Final = {"by size", "by size in KiB", "KiB"}
_PROGRESS: Final = "Generating "  # printed right below the last row of a table
# lines that may not be rows: blank ones, titles, rules and headings
_SPECIAL_LINE: Final = r"^[\s\x1c-\x1f]*(?:$|\*\* |\[\d+/|Processing \[|-{2,})"
_HEADER_WORDS: Final = ("Statistics", "Time", "Total", "Start")
_UNIT: Final = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_ALIASES: Final = {
    "average": "avg", "median": "med", "minimum": "min", "maximum": "max", "std dev": "stddev",
    "instances": "count", "num calls": "count", "operations": "count", "kern inst": "count", "calls": "count",
    "kernel name": "name", "operation": "name", "range": "name",
}  # fmt: skip
_COUNTS: Final = {"instances", "num calls", "count", "operations", "kern inst", "calls"}
_NAMES: Final = {"name", "operation", "range", "kernel name"}


@dataclass(frozen=True, eq=False)
class PrintedTable:
    """One printed table."""

    report: str  # cuda_gpu_kern_sum …, empty if not printed
    source: str  # the profile it was made from, empty if not printed
    header: tuple[str, ...]
    cells: pl.DataFrame  # rows as text; columns are named by their position in the header

    @property
    def title(self) -> tuple[str, tuple[str, ...]]:
        return self.report, self.header

    def equals(self, other: "PrintedTable") -> bool:
        """Return True if both tables were printed alike."""
        is_same_place = (self.title, self.source) == (other.title, other.source)
        return is_same_place and self.cells.equals(other.cells)

    @cached_property
    def words(self) -> dict[str, int]:
        """Column words without units, and their positions."""
        return {_split_heading(cell)[0]: i for i, cell in enumerate(self.header)}

    @cached_property
    def _columns(self) -> dict[str, tuple[int, str]]:
        columns = {}
        for i, cell in enumerate(self.header):
            word, unit = _split_heading(cell)
            columns[word] = columns[_ALIASES.get(word, word)] = (i, unit)
        return columns

    def read_text(self, column: str) -> pl.Series:
        """Return a column as text; empty texts if the table lacks it."""
        return self.read_cells(column).str.strip_chars(BLANKS)

    def read_integers(self, column: str) -> pl.Series:
        return self._parse_numbers(column, 1)

    def read_ns(self, column: str) -> pl.Series:
        """Parse times as ns, by the unit in the header (default: ns)."""
        return self._parse_numbers(column, TIME_UNITS.get(self._find_unit(column), 1))

    def read_bytes(self, column: str) -> pl.Series:
        """Parse sizes as bytes, by the unit in the header; headers without one are of reports in KiB."""
        return self._parse_numbers(column, BYTE_UNITS.get(self._find_unit(column), BYTE_UNITS["kib"]))

    def _parse_numbers(self, column: str, scale: int) -> pl.Series:
        parse = partial(parse_nanoseconds, unit=scale)
        return parse_scaled_integers(self.read_cells(column), scale, parse)

    def read_cells(self, column: str) -> pl.Series:
        """Return a column as printed; empty texts if the table lacks it."""
        if column not in self._columns:
            return pl.Series([""], dtype=pl.String).new_from_index(0, self.cells.height)
        return self.cells[str(self._columns[column][0])]

    def _find_unit(self, column: str) -> str:
        return self._columns[column][1] if column in self._columns else ""


def _is_known_header(header: Sequence[str]) -> bool:
    words = {_split_heading(cell)[0] for cell in header}
    if "total time" in words:
        return bool(words & _COUNTS and words & _NAMES) and bool(words & {"avg", "average"})
    if {"total", "count", "operation"} <= words or {"projected start", "rangeid"} <= words:
        return True
    return {"start", "duration", "name"} <= words and bool(words & {"corrid", "rangeid"})


def iter_tables(text: bytes, log: Log | None = None) -> Iterator[PrintedTable]:
    """Yield every table of a UTF-8 text, ignoring what is between them."""
    reader, lines, next_line = _ReportReader(log or Log()), split_lines(text), 0
    is_special = lines.str.contains_any(list(_HEADER_WORDS)) | lines.str.contains(_SPECIAL_LINE)
    # only the first of several empty lines ends a table
    is_repeated_blank = (lines == "") & (lines.shift(1) == "").fill_null(False)
    special_lines = (is_special & ~is_repeated_blank).arg_true()
    ends = compute_line_ends(lines)
    next_offset = 0
    for line in [*special_lines, lines.len()]:
        if line > next_line:
            reader.add_rows(text[next_offset : ends[line - 1] - 1], line - next_line, lines[line - 1])
        table = reader.add_line(lines[line], line) if line < lines.len() else reader.close()
        next_line, next_offset = line + 1, ends[line] if line < lines.len() else 0
        if table:
            yield table


@dataclass
class _TableDraft:
    """A table while its rows are collected."""

    report: str
    source: str
    header: list[str]
    first: int  # line number of its first row
    delimiter: str = ""
    spans: Sequence[tuple[int, int]] = ()  # of the columns, if the table is aligned
    pieces: list[bytes] = field(default_factory=list)  # text below the header
    height: int = 0  # in lines

    def split_rows(self) -> tuple[pl.DataFrame, list[int]]:
        """Split the rows into cells; also return the numbers of lines that do not fit the header."""
        names = [str(at) for at in range(len(self.header))]
        text = b"\n".join(self.pieces)
        if self.delimiter and self.height:
            split_line = partial(split_csv_line, delimiter=self.delimiter)
            cells, bad = split_with_fallback(text, self.delimiter, names, split_line)
            return cells.select(names), bad
        lines = text.decode().split("\n") if self.height else []
        rows = [split_row(line, self.spans) for line in lines]
        fitting = [row for row in rows if row is not None]
        bad = [at for at, row in enumerate(rows) if row is None]
        return pl.DataFrame(fitting, schema=dict.fromkeys(names, pl.String), orient="row"), bad


@dataclass
class _ReportReader:
    """The position in the text: the current title and table."""

    log: Log
    report: str = ""
    source: str = ""
    before: str = ""
    table: _TableDraft | None = None

    def add_rows(self, text: bytes, height: int, last: str) -> None:
        """Add lines that can only be rows of the open table; `last` is the last of them."""
        self.before = last
        if self.table:
            self.table.pieces.append(text)
            self.table.height += height

    def add_line(self, line: str, at: int) -> PrintedTable | None:
        """Add one line; return the table that it ends, if any."""
        before, self.before = self.before, line
        if not line.strip() or line.startswith(_PROGRESS) or self._is_title(line):
            return self.close()
        if RULE.match(line):
            spans = find_spans(line)
            header = slice_row(before, spans)
            return self._open_table(_TableDraft(self.report, self.source, header, at + 1, spans=spans))
        delimiter = _guess_delimiter(line)
        if delimiter:
            cells = split_csv_line(line, delimiter) or []
            if _is_known_header(cells):
                return self._open_table(_TableDraft(self.report, self.source, cells, at + 1, delimiter))
        if self.table:
            self.table.pieces.append(line.encode())
            self.table.height += 1
        return None

    def close(self) -> PrintedTable | None:
        """End the open table and return it; None if none is open."""
        table, self.table = self.table, None
        if table is None:
            return None
        cells, bad = table.split_rows()
        self.log.read += table.height
        for at in bad:
            self.log.drop("bad_row", "rows that do not fit the header above them", at=table.first + at)
        return PrintedTable(table.report, table.source, tuple(table.header), cells)

    def _open_table(self, table: _TableDraft) -> PrintedTable | None:
        ended = self.close()
        if _is_known_header(table.header) or self.report:
            self.table, self.report = table, ""
        return ended

    def _is_title(self, line: str) -> bool:
        """Return True if a line names the next table or its profile, and remember the name."""
        old_report = _read_old_title(line)
        self.report = old_report or self.report
        for pattern in _TITLES:
            if title := pattern.match(line):
                groups = title.groupdict()
                self.report = groups.get("report") or _extract_stem(groups["script"])
                self.source = _extract_stem(groups["source"]) if groups.get("source") else self.source
                return True
        return bool(old_report)


def _read_old_title(line: str) -> str:
    """Return the report that an old title names; empty for any other line."""
    title = _OLD_TITLE.fullmatch(line.strip())
    report = _OLD_SUBJECTS.get(title["subject"], "") if title else ""
    is_size = title is not None and title["measure"] in _OLD_SIZES
    return "cuda_gpu_mem_size_sum" if report == "cuda_gpu_mem_time_sum" and is_size else report


def _split_heading(cell: str) -> tuple[str, str]:
    """Split a column heading into words and unit: `Total Time (ns)` → `total time`, `ns`."""
    parts = _UNIT.match(cell.strip())
    words, unit = parts.groups() if parts else (cell, "")
    return words.strip().lower(), unit.strip().lower()


def _extract_stem(path: str) -> str:
    return PureWindowsPath(path).stem if "\\" in path else PurePosixPath(path).stem


def _guess_delimiter(line: str) -> str:
    """Guess the delimiter of a possible header line; empty if it is not one."""
    is_header = "Time" in line or "Total" in line or "Start" in line
    return max("\t;,", key=line.count) if is_header and any(d in line for d in "\t;,") else ""
