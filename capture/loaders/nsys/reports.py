"""The text that `nsys stats` prints, as sections: a title, a header, and rows of cells."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

import polars as pl

from capture.importlog import Log
from capture.loaders._nsight_text import BYTE_UNITS, TIME_UNITS, csv_cells
from capture.loaders._numbers import nanoseconds
from capture.loaders._separated import BLANKS, ends_of, lines_of, records, whole_numbers

_TITLES: Final = (
    re.compile(r"^\s*\*\* .*\((?P<report>\w+)\):"),
    re.compile(r"^\s*\[\d+/\d+\] Executing '(?P<report>\w+)' stats report"),
    re.compile(r"^\s*Processing \[(?P<source>[^\]]+)\] with \[(?P<script>[^\]]+)\]"),
)
_OLD_TITLES: Final = {
    "CUDA API Statistics": "cuda_api_sum",
    "CUDA Kernel Statistics": "cuda_gpu_kern_sum",
    "CUDA Memory Operation Statistics (by time)": "cuda_gpu_mem_time_sum",
    "CUDA Memory Operation Statistics (by size)": "cuda_gpu_mem_size_sum",
    "CUDA Memory Operation Statistics (by size in KiB)": "cuda_gpu_mem_size_sum",
    "Operating System Runtime API Statistics": "osrt_sum",
    "NVTX Push-Pop Range Statistics": "nvtx_pushpop_sum",
    "NVTX Range Statistics": "nvtx_sum",
}
# lines that may be more than rows: blank ones, titles, rules and headings
_TELLING: Final = r"^[\s\x1c-\x1f]*(?:$|\*\* |\[\d+/|Processing \[|-{2,})"
_TELLING_WORDS: Final = ("Statistics", "Time", "Total", "Start")
_RULE: Final = re.compile(r"^\s*-{2,}(?:\s+-{2,}){2,}\s*$")
_UNIT: Final = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_ALIASES: Final = {
    "average": "avg", "median": "med", "minimum": "min", "maximum": "max", "std dev": "stddev",
    "instances": "count", "num calls": "count", "operations": "count", "kern inst": "count",
    "kernel name": "name", "operation": "name", "range": "name",
}  # fmt: skip
_COUNTS: Final = {"instances", "num calls", "count", "operations", "kern inst"}
_NAMES: Final = {"name", "operation", "range", "kernel name"}


@dataclass(frozen=True, eq=False)
class Section:
    """One printed table."""

    report: str  # cuda_gpu_kern_sum …, empty where nothing says
    source: str  # the profile that it was made from, where a line says so
    header: tuple[str, ...]
    cells: pl.DataFrame  # the rows as text: a column for each of the header, named by its place

    def equals(self, other: "Section") -> bool:
        """Return whether both print the same."""
        mine, theirs = ((s.report, s.source, s.header) for s in (self, other))
        return mine == theirs and self.cells.equals(other.cells)

    @cached_property
    def words(self) -> dict[str, int]:
        """Column words without units, and where they stand."""
        return {word: i for i, word in enumerate(plain_words(self.header))}

    @cached_property
    def _columns(self) -> dict[str, tuple[int, str]]:
        columns = {}
        for i, cell in enumerate(self.header):
            word, unit = _word(cell), _unit(cell)
            columns[word] = columns[_ALIASES.get(word, word)] = (i, unit)
        return columns

    def text(self, column: str) -> pl.Series:
        """Return a column as text, empty where the table has no such column."""
        return self.printed(column).str.strip_chars(BLANKS)

    def whole(self, column: str) -> pl.Series:
        return self._numbers(column, 1)

    def ns(self, column: str) -> pl.Series:
        """Return times in ns, by the unit in the header; a header without one is in ns."""
        return self._numbers(column, TIME_UNITS.get(self._unit(column), 1))

    def bytes(self, column: str) -> pl.Series:
        """Return sizes in bytes, by the unit in the header."""
        return self._numbers(column, BYTE_UNITS.get(self._unit(column), 1))

    def _numbers(self, column: str, scale: int) -> pl.Series:
        return whole_numbers(self.printed(column), scale, lambda text: nanoseconds(text, scale))

    def printed(self, column: str) -> pl.Series:
        """Return a column as it was printed, empty where the table has no such column."""
        if column not in self._columns:
            return pl.Series([""], dtype=pl.String).new_from_index(0, self.cells.height)
        return self.cells[str(self._columns[column][0])]

    def _unit(self, column: str) -> str:
        return self._columns[column][1] if column in self._columns else ""


def plain_words(header: Iterable[str]) -> list[str]:
    return [_word(cell) for cell in header]


def is_known(header: Sequence[str]) -> bool:
    """Return whether a header is one that `nsys stats` prints."""
    words = set(plain_words(header))
    if "total time" in words:
        return bool(words & _COUNTS and words & _NAMES) and bool(words & {"avg", "average"})
    if {"total", "count", "operation"} <= words:
        return True
    if {"projected start", "rangeid"} <= words:
        return True
    return {"start", "duration", "name"} <= words and bool(words & {"corrid", "rangeid"})


def sections(text: bytes, log: Log | None = None) -> Iterator[Section]:
    """Yield every table of a text in UTF-8, whatever stands between them."""
    reader, lines, at = _Reader(log or Log()), lines_of(text), 0
    telling = lines.str.contains_any(list(_TELLING_WORDS)) | lines.str.contains(_TELLING)
    again = (lines == "") & (lines.shift(1) == "").fill_null(False)  # of empty lines the first ends a table
    telling = (telling & ~again).arg_true()
    ends = ends_of(lines)
    begin = 0
    for place in [*telling, lines.len()]:
        if place > at:
            reader.take_rows(text[begin : ends[place - 1] - 1], place - at, lines[place - 1])
        done = reader.take(lines[place], place) if place < lines.len() else reader.close()
        at, begin = place + 1, ends[place] if place < lines.len() else 0
        if done:
            yield done


@dataclass
class _Open:
    """A table while its rows are collected."""

    report: str
    source: str
    header: list[str]
    first: int  # the number of its first row's line
    delimiter: str = ""
    spans: Sequence[tuple[int, int]] = ()  # where the columns stand, if nothing but their places parts them
    pieces: list[bytes] = field(default_factory=list)  # of the text below the header
    height: int = 0  # lines of it

    def records(self) -> tuple[pl.DataFrame, list[int]]:
        """Return the rows as cells, and which lines do not fit the header."""
        names = [str(at) for at in range(len(self.header))]
        text = b"\n".join(self.pieces)
        if self.delimiter and self.height:
            cells, bad = records(text, self.delimiter, names, lambda line: csv_cells(line, self.delimiter))
            return cells.select(names), bad
        lines = text.decode().split("\n") if self.height else []
        rows = [_sliced(line, self.spans) for line in lines]
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row"), []


@dataclass
class _Reader:
    """Where in the text we are: under which title, and in which table."""

    log: Log
    report: str = ""
    source: str = ""
    before: str = ""
    table: _Open | None = None

    def take_rows(self, text: bytes, height: int, last: str) -> None:
        """Take lines that can be nothing but rows of the table that is open; the last is given again."""
        self.before = last
        if self.table:
            self.table.pieces.append(text)
            self.table.height += height

    def take(self, line: str, at: int) -> Section | None:
        """Take one more line; return the table that it ends, None while there is none."""
        before, self.before = self.before, line
        if not line.strip() or self._title(line):
            return self.close()
        if _RULE.match(line):
            spans = [(m.start(), m.end()) for m in re.finditer("-+", line)]
            return self._open(_Open(self.report, self.source, _sliced(before, spans), at + 1, spans=spans))
        delimiter = _delimiter(line)
        if delimiter:
            cells = csv_cells(line, delimiter) or []
            if is_known(cells):
                return self._open(_Open(self.report, self.source, cells, at + 1, delimiter))
        if self.table:
            self.table.pieces.append(line.encode())
            self.table.height += 1
        return None

    def close(self) -> Section | None:
        """Return the table that is open, with its rows; None where there is none."""
        table, self.table = self.table, None
        if table is None:
            return None
        cells, bad = table.records()
        self.log.read += table.height
        for at in bad:
            self.log.drop("bad_row", "rows that do not fit the header above them", at=table.first + at)
        return Section(table.report, table.source, tuple(table.header), cells)

    def _open(self, table: _Open) -> Section | None:
        done = self.close()
        if is_known(table.header) or self.report:
            self.table, self.report = table, ""
        return done

    def _title(self, line: str) -> bool:
        """Return whether a line names the next table or the profile that it comes from."""
        old = _OLD_TITLES.get(line.strip().removesuffix(":"))
        if old:
            self.report = old
        for pattern in _TITLES:
            if title := pattern.match(line):
                groups = title.groupdict()
                self.report = groups.get("report") or _stem(groups["script"])
                self.source = _stem(groups["source"]) if groups.get("source") else self.source
                return True
        return bool(old)


def _word(cell: str) -> str:
    parts = _UNIT.match(cell.strip())
    return (parts[1] if parts else cell).strip().lower()


def _unit(cell: str) -> str:
    found = _UNIT.match(cell.strip())
    return found[2].strip().lower() if found else ""


def _stem(path: str) -> str:
    return PureWindowsPath(path).stem if "\\" in path else PurePosixPath(path).stem


def _sliced(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return the cells of a printed line: the dashes of the rule give every column its place, the last
    runs on.
    """
    starts = [start for start, _ in spans]
    ends = [end for _, end in spans[:-1]] + [len(line)]
    return [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def _delimiter(line: str) -> str:
    """Return the delimiter of what may be a header line."""
    if not ("Time" in line or "Total" in line or "Start" in line):
        return ""
    return max("\t;,", key=line.count) if any(d in line for d in "\t;,") else ""
