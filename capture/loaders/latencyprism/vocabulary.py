"""What all of LatencyPrism's files share: functions, metrics and their real units, and plain CSV lines."""

import csv
from collections.abc import Iterator
from sys import intern
from typing import Final, NamedTuple

import polars as pl

from capture.importlog import Log

# words in a metric's name → its unit, where the file holds a hundredth of it; the first that fits decides
_ABSOLUTE: Final = (
    ("frequency", "MHz"), ("transmit", "B/s"), ("receive", "B/s"), ("temp", "°C"), ("power", "W"),
)  # fmt: skip
_PERCENT: Final = ("usage", "util", "rate", "occupancy", "(%)")
_OF_MAXIMUM: Final = ("cpu_frequency", "gpu_mem_used")


class Role(NamedTuple):
    """Where a function's time belongs."""

    kind: str
    lens: str
    category: str | None


# start of func_type → role; python and unknown types nest, so they are spans
_TYPES: Final = (
    ("gpu_memcpy", Role("kernel", "gpu", "copy")),
    ("gpu", Role("kernel", "gpu", None)),
    ("oncpu", Role("kernel", "host", "host")),
    ("runq", Role("kernel", "wait", "wait")),
    ("cpu_sync", Role("kernel", "wait", "wait")),
    ("disk", Role("kernel", "wall", "host")),
)
_NESTED: Final = Role("span", "wall", None)


def unit_of(metric: str) -> tuple[str | None, float]:
    """Return a metric's unit and what the file's value (mu, times 100) is divided by to get there."""
    if metric in _OF_MAXIMUM or any(word in metric for word in _PERCENT):
        return "%", 1.0
    return next((unit for word, unit in _ABSOLUTE if word in metric), None), 100.0


def sample_unit(counter: str) -> str | None:
    """Return the unit of a raw counter's samples."""
    if any(word in counter for word in _PERCENT):
        return "%"
    return next((unit for word, unit in _ABSOLUTE if word in counter), None)


def role_of(func_type: str) -> Role:
    return next((role for start, role in _TYPES if func_type.startswith(start)), _NESTED)


def role_columns(roles: list[Role]) -> list[pl.Series]:
    """Return roles as columns of the event frame."""
    return [pl.Series(name, [getattr(r, name) for r in roles], dtype=pl.String) for name in Role._fields]


def type_of(function: str, device: str) -> str:
    """Return the type that the comparison leaves out: from the device, else from the function's name."""
    if device.startswith("GPU"):
        return "gpu_memcpy" if function.startswith(("Memcpy", "Memset")) else "gpu_compute"
    if "Synchronize" in function:
        return "cpu_sync"
    return "disk" if function in ("read", "write") else function


def csv_rows(text: str, log: Log) -> Iterator[tuple[int, list[str]]]:
    """Yield records with their offsets. A record is a line, so a quote that is never closed costs only its
    own.
    """
    width, at = 0, 0
    for line in text.split("\n"):
        if line.strip("\r, "):
            cells = _cells(line)
            width = width or len(cells)
            if at:
                log.read += 1
            if len(cells) == width:
                yield at, cells
            else:
                log.drop("bad_row", "lines with too few or too many cells", at=at)
        at += len(line) + 1
    if text and not text.endswith("\n"):
        log.note("no_last_newline", "the file ends within a line; its last cell may be cut")


def _cells(line: str) -> list[str]:
    """Return the cells of a line; long names repeat in most lines and are kept once."""
    try:
        return [intern(cell) for cell in next(csv.reader([line]))]
    except csv.Error:
        return []


def header_of(text: str) -> list[str]:
    """Return the cells of the first line, in lower case."""
    return [c.strip().lower() for c in _cells(text.split("\n", 1)[0])]


def strings(names: list[str], rows: list[list[str]]) -> pl.DataFrame:
    """Return rows of text as a frame; a blank cell is null."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pl.DataFrame(
        {n: pl.Series(list(c), dtype=pl.String) for n, c in zip(names, columns, strict=True)}
    ).with_columns(pl.when(pl.all().str.strip_chars() != "").then(pl.all()))


def floats(column: str) -> pl.Expr:
    """Return printed numbers as floats; what is no finite number is null."""
    value = pl.col(column).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value).alias(column)
