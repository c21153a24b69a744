"""Detect the layout of a plain table: separator, headings, their meaning and units, from its first lines."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from capture.loaders.plain import line_records

_FOREIGN_KEYS: Final = frozenset({"kind", "ph", "cat", "event"})  # of other JSON-lines formats
_MAX_HEADER_LENGTH: Final = 100_000
HEADER_LINES: Final = 50  # the headings are on one of these first lines
_NS_BY_UNIT: Final = {
    "ns": 1, "nsec": 1, "nanoseconds": 1,
    "us": 1_000, "µs": 1_000, "μs": 1_000, "usec": 1_000, "microseconds": 1_000,
    "ms": 1_000_000, "msec": 1_000_000, "millis": 1_000_000, "milliseconds": 1_000_000,
    "s": 1_000_000_000, "sec": 1_000_000_000, "secs": 1_000_000_000, "seconds": 1_000_000_000,
}  # fmt: skip
_UNIT: Final = re.compile(rf"^(?P<base>.*?)[\s_.\-]*[(\[]?\b(?P<unit>{'|'.join(_NS_BY_UNIT)})[)\]]?$")
_INNER_UNIT: Final = re.compile(
    rf"[(\[]({'|'.join(_NS_BY_UNIT)})[)\]] (sum|total|mean|min|max)$"
)  # time (µs) sum
MICROSECOND: Final = 1_000
OPERATOR: Final = "operator"  # column of what a node is, which its name need not say
# event column → headings that mean it, the most likely first
_HEADINGS_BY_COLUMN: Final = {
    "name": (
        "name", "kernel name", "kernel", "op name", "operation", "operator", "event name", "function",
        "function name", "event", "label", "region", "task", "layer name", "op",
    ),
    "dur": (
        "duration", "dur", "kernel time sum", "gpu time", "cuda time", "kernel time", "device time",
        "total duration", "elapsed", "elapsed time", "latency", "total time", "run time", "runtime", "time",
        "real time", "wall time", "wall", "total", "sum", "",
    ),
    "t": ("start", "start time", "start timestamp", "ts", "begin", "timestamp", "t"),
    "count": (
        "count", "calls", "instances", "invocations", "launches", "num calls", "operation count",
        "name count",
    ),
    "step": ("step", "iteration", "iter", "cycle", "decode step"),
    "layer": ("layer", "layer id", "layer index", "block"),
    "phase": ("phase", "stage"),
    "op": ("op", "role", "op type"),
    OPERATOR: ("layer type",),
    "shape": ("shape", "shapes", "input shapes"),
    "bytes": ("bytes", "size bytes", "bytes moved"),
    "flops": ("flops", "flop"),
    "min": ("min", "min time", "min duration"),
    "max": ("max", "max time", "max duration", "peak", "peak time"),
    "p50": ("p50", "median", "med"),
    "p95": ("p95",),
    "p99": ("p99",),
    "std": ("std", "stddev", "std dev"),
}  # fmt: skip
SIDES: Final = ("source trace1", "source trace2")  # tracks of the two traces that TraceLens compares
TRACK_COLUMNS: Final = (
    "rank", "device", "gpu", "stream", "thread", "tid", "process", "pid", "queue", "source",
)  # fmt: skip
TIME_COLUMNS: Final = ("dur", "t", "min", "max", "p50", "p95", "p99", "std")


class MatchedHeading(NamedTuple):
    """A heading with a known meaning: its position, its text, and its unit in ns."""

    position: int
    heading: str
    unit: int | None


class TableLayout(Struct, frozen=True):
    """Layout of a table, and the meaning of its columns."""

    separator: str | None  # None: JSON lines
    header_line: int  # number of the line with the headings
    headings: tuple[str, ...]
    columns: dict[str, MatchedHeading]

    @property
    def has_decimal_comma(self) -> bool:
        """Whether a single comma in a number may be its decimal point."""
        return self.separator not in (",", None)


def detect_layout(lines: Sequence[str]) -> TableLayout | None:
    """Detect the layout from the first lines; None without a name and a duration among the headings."""
    numbered = enumerate(lines[:HEADER_LINES])
    first = next((number for number, line in numbered if line.strip() and not line.startswith("#")), None)
    if first is None or len(lines[first]) > _MAX_HEADER_LENGTH:
        return None
    if lines[first].lstrip().startswith("{"):
        return _detect_json_layout(lines[first], first)
    for separator in line_records.SEPARATORS:
        headings = tuple(line_records.split_record(lines[first], separator))
        if len(headings) > 1 and (columns := match_headings(headings)) is not None:
            units = line_records.split_record((*lines, "")[first + 1], separator)
            if _is_units(units, len(headings), columns["dur"].position):
                columns = {name: _with_unit(column, units) for name, column in columns.items()}
                first += 1
            return TableLayout(separator, first, headings, columns)
    return None


def _is_units(cells: Sequence[str], count: int, duration: int) -> bool:
    """Return whether the line below the headings holds units, as nvprof prints them, and no values."""
    is_unit = len(cells) == count and cells[duration].strip() in _NS_BY_UNIT
    return is_unit and not any(cell[:1].isdigit() for cell in cells)


def _with_unit(column: MatchedHeading, units: Sequence[str]) -> MatchedHeading:
    unit = _NS_BY_UNIT.get(units[column.position].strip())
    return column if unit is None else column._replace(unit=unit)


def _detect_json_layout(line: str, first: int) -> TableLayout | None:
    record = line_records.parse_object(line)
    if record is None or _FOREIGN_KEYS & record.keys():
        return None
    columns = match_headings(tuple(record))
    return TableLayout(None, first, tuple(record), columns) if columns else None


def match_headings(headings: Sequence[str]) -> dict[str, MatchedHeading] | None:
    """Map event columns to headings; None unless there are a name and a duration."""
    words = [_normalise_heading(heading) for heading in headings]
    columns: dict[str, MatchedHeading] = {}
    for column, candidates in _HEADINGS_BY_COLUMN.items():
        at = _find_heading(column, candidates, words, {match.position for match in columns.values()})
        if at is not None:
            columns[column] = MatchedHeading(at, headings[at].strip(), words[at][1])
    for track in TRACK_COLUMNS:
        names = (track, f"{track} id")
        at = next((position for position, (base, _) in enumerate(words) if base in names), None)
        if at is not None:
            columns[track] = MatchedHeading(at, headings[at].strip(), None)
    return columns if "name" in columns and "dur" in columns else None


def _find_heading(
    column: str, candidates: Sequence[str], headings: Sequence[tuple[str, int | None]], used: set[int]
) -> int | None:
    """Find the most likely heading of a column; one that is only a unit counts as a duration."""
    for word in candidates:
        for position, (base, unit) in enumerate(headings):
            fits = base == word and (bool(word) or unit is not None)
            if fits and position not in used and (unit is None or column in TIME_COLUMNS):
                return position
    return None


def _normalise_heading(heading: str) -> tuple[str, int | None]:
    """Return the words of a heading and its unit in ns: `Time (ms)` → `time`, 1,000,000."""
    words = re.sub(r"[\s_.\-]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", heading.strip())).lower().strip()
    words = _INNER_UNIT.sub(r"\2 (\1)", words)
    unit = _UNIT.match(words)
    if unit is None:
        return words, None
    return " ".join(unit["base"].split()), _NS_BY_UNIT[unit["unit"]]


def describe_guesses(columns: dict[str, MatchedHeading]) -> list[str]:
    """Describe which heading was taken for which column, and which units were assumed."""
    sentences = [f"{column} is the column {match.heading!r}" for column, match in columns.items()]
    times = [columns[column] for column in TIME_COLUMNS if column in columns]
    without_unit = [match.heading for match in times if match.unit is None]
    if without_unit:
        duration_has_unit = columns["dur"].unit is not None
        assumed_unit = "the duration's" if duration_has_unit else "microseconds"
        headings = ", ".join(map(repr, without_unit))
        sentences.append(f"the unit of {headings} is unknown: assumed to be {assumed_unit}")
    return sentences
