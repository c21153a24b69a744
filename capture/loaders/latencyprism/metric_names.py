"""Names, roles and real units of LatencyPrism's functions and metrics; the plain CSV lines of its files."""

import csv
from collections.abc import Iterator
from sys import intern
from typing import Final, NamedTuple

import polars as pl

from capture.import_log import Log

# word in a metric's name → unit, of which the file reports a hundredth; the first match wins
_ABSOLUTE: Final = (
    ("frequency", "MHz"), ("transmit", "B/s"), ("receive", "B/s"), ("temp", "°C"), ("power", "W"),
)  # fmt: skip
_PERCENT: Final = ("usage", "util", "rate", "occupancy", "(%)")
_SHARES_OF_MAXIMUM: Final = ("cpu_frequency", "gpu_mem_used")


class FunctionRole(NamedTuple):
    """Kind, lens and category of a function's time."""

    kind: str
    lens: str
    category: str | None


# prefix of func_type → role; python and unknown types nest, so they are spans
_ROLE_BY_TYPE: Final = (
    ("gpu_memcpy", FunctionRole("kernel", "gpu", "copy")),
    ("gpu", FunctionRole("kernel", "gpu", None)),
    ("oncpu", FunctionRole("kernel", "host", "host")),
    ("runq", FunctionRole("kernel", "wait", "wait")),
    ("cpu_sync", FunctionRole("kernel", "wait", "wait")),
    ("disk", FunctionRole("kernel", "wall", "host")),
)
_NESTED_ROLE: Final = FunctionRole("span", "wall", None)


def find_unit(metric: str) -> tuple[str | None, float]:
    """Find a metric's unit, and the divisor of the file's value (mu, times 100) to get there."""
    unit = "%" if metric in _SHARES_OF_MAXIMUM else find_sample_unit(metric)
    return unit, 1.0 if unit == "%" else 100.0


def find_sample_unit(counter: str) -> str | None:
    """Find the unit of a raw counter's samples."""
    if any(word in counter for word in _PERCENT):
        return "%"
    return next((unit for word, unit in _ABSOLUTE if word in counter), None)


def build_value_columns(metrics: pl.Series, mu: pl.Expr) -> list[pl.Expr | pl.Series]:
    """Build value and unit of metrics from the file's values."""
    units = [find_unit(metric) for metric in metrics]
    divisors = pl.Series([divisor for _, divisor in units], dtype=pl.Float64)
    return [(mu / divisors).alias("value"), pl.Series("unit", [unit for unit, _ in units], dtype=pl.String)]


def find_role(func_type: str) -> FunctionRole:
    """Find the role of a function by its type; other types nest."""
    return next((role for start, role in _ROLE_BY_TYPE if func_type.startswith(start)), _NESTED_ROLE)


def build_role_columns(roles: list[FunctionRole]) -> list[pl.Series]:
    """Build the columns of the event frame for some roles."""
    fields = FunctionRole._fields
    return [pl.Series(name, [getattr(role, name) for role in roles], dtype=pl.String) for name in fields]


def infer_func_type(function: str, device: str) -> str:
    """Infer the type that the comparison omits: from the device, else from the function's name."""
    if device.startswith("GPU"):
        return "gpu_memcpy" if function.startswith(("Memcpy", "Memset")) else "gpu_compute"
    if "Synchronize" in function:
        return "cpu_sync"
    return "disk" if function in ("read", "write") else function


def iter_csv_records(text: str, log: Log) -> Iterator[tuple[int, list[str]]]:
    """Yield records with offsets; a record is one line, so an unclosed quote costs only its own line."""
    width, offset = 0, 0
    for line in text.split("\n"):
        if line.strip("\r, "):
            cells = _split_line(line)
            width = width or len(cells)
            if offset:
                log.read += 1
            if len(cells) == width:
                yield offset, cells
            else:
                log.drop("bad_row", "lines with too few or too many cells", at=offset)
        offset += len(line) + 1
    if text and not text.endswith("\n"):
        log.note("no_last_newline", "the file ends within a line; its last cell may be cut")


def _split_line(line: str) -> list[str]:
    """Split a line; cells are interned, because long names repeat in most lines."""
    try:
        return [intern(cell) for cell in next(csv.reader([line]))]
    except csv.Error:
        return []


def parse_header(text: str) -> list[str]:
    """Split the first line into cells, in lower case."""
    return [c.strip().lower() for c in _split_line(text.split("\n", 1)[0])]


def build_text_frame(names: list[str], rows: list[list[str]]) -> pl.DataFrame:
    """Build a frame of text; a blank cell is null."""
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return frame.with_columns(pl.when(pl.all().str.strip_chars() != "").then(pl.all()))


def finite_float(column: str) -> pl.Expr:
    """Parse a column of numbers; everything but a finite number is null."""
    value = pl.col(column).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite()).then(value).alias(column)
