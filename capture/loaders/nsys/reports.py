"""The text that `nsys stats` prints, as sections: a title, a header, and rows of cells."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from capture.importlog import Log
from capture.loaders._nsight_text import BYTE_UNITS, TIME_UNITS, csv_cells
from capture.loaders._numbers import exact, number

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
_RULE: Final = re.compile(r"^\s*-{2,}(?:\s+-{2,}){2,}\s*$")
_UNIT: Final = re.compile(r"^(.*?)\s*\(([^()]*)\)$")
_ALIASES: Final = {
    "average": "avg", "median": "med", "minimum": "min", "maximum": "max", "std dev": "stddev",
    "instances": "count", "num calls": "count", "operations": "count", "kern inst": "count",
    "kernel name": "name", "operation": "name", "range": "name",
}  # fmt: skip
_COUNTS: Final = {"instances", "num calls", "count", "operations", "kern inst"}
_NAMES: Final = {"name", "operation", "range", "kernel name"}


@dataclass(frozen=True)
class Section:
    """One printed table."""

    report: str  # cuda_gpu_kern_sum …, empty where nothing says
    source: str  # the profile that it was made from, where a line says so
    header: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

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

    def text(self, row: Sequence[str], column: str) -> str:
        place = self._columns.get(column)
        return row[place[0]].strip() if place else ""

    def value(self, row: Sequence[str], column: str) -> Decimal | None:
        return number(self.text(row, column))

    def whole(self, row: Sequence[str], column: str) -> int | None:
        return exact(self.value(row, column), 1)

    def ns(self, row: Sequence[str], column: str) -> int | None:
        """Return a time in ns, by the unit in the header; a header without one is in ns."""
        return exact(self.value(row, column), TIME_UNITS.get(self._unit(column), 1))

    def bytes(self, row: Sequence[str], column: str) -> int | None:
        """Return a size in bytes, by the unit in the header."""
        return exact(self.value(row, column), BYTE_UNITS.get(self._unit(column), 1))

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


def sections(lines: Iterable[tuple[int, str]], log: Log | None = None) -> Iterator[Section]:
    """Yield every table of a text, whatever stands between them."""
    reader = _Reader(log or Log())
    for at, line in lines:
        done = reader.take(line, at)
        if done:
            yield done
    last = reader.close()
    if last:
        yield last


@dataclass
class _Reader:
    """Where in the text we are: under which title, and in which table."""

    log: Log
    report: str = ""
    source: str = ""
    before: str = ""
    section: Section | None = None
    split: Callable[[str], list[str] | None] = lambda line: None

    def take(self, line: str, at: int) -> Section | None:
        """Take one more line; return the table that it ends, None while there is none."""
        before, self.before = self.before, line
        if not line.strip() or self._title(line):
            return self.close()
        if _RULE.match(line):
            spans = [(m.start(), m.end()) for m in re.finditer("-+", line)]
            return self._open(_sliced(before, spans), lambda text: _sliced(text, spans))
        delimiter = _delimiter(line)
        if delimiter:
            cells = csv_cells(line, delimiter) or []
            if is_known(cells):
                return self._open(cells, lambda text: csv_cells(text, delimiter))
        if self.section:
            self._row(self.section, line, at)
        return None

    def close(self) -> Section | None:
        done, self.section = self.section, None
        return done

    def _open(self, header: list[str], split: Callable[[str], list[str] | None]) -> Section | None:
        done = self.close()
        if is_known(header) or self.report:
            self.section = Section(self.report, self.source, tuple(header))
            self.split, self.report = split, ""
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

    def _row(self, section: Section, line: str, at: int) -> None:
        self.log.read += 1
        cells = self.split(line)
        if cells is None or len(cells) != len(section.header):
            self.log.drop("bad_row", "rows that do not fit the header above them", at=at)
        else:
            section.rows.append(tuple(cells))


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
