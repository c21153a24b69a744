"""Typed cells: parse printed numbers exactly, and build a frame of rows whose cells fit their columns.

Printed times become integer nanoseconds without passing through a float. Cells that do not fit become null
and are counted.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Final

import polars as pl
from polars.exceptions import PanicException, PolarsError

from capture.clean_text import clean
from capture.import_log import Log

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,(?:\d{1,2}|\d{4,})")  # three digits are a group of thousands
_THOUSANDS_BLANK: Final = re.compile(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))")
_MAX_EXPONENT: Final = 15  # a time in ns with a larger one exceeds 64 bits
_BUILD_ERRORS: Final = (TypeError, ValueError, OverflowError, PolarsError, PanicException)
_INT64_END: Final = 1 << 63


def parse_decimal(text: str) -> Decimal | None:
    """Parse a number, without its thousands separators and per cent sign; None for anything else."""
    text = _THOUSANDS_BLANK.sub("", text.strip().removesuffix("%").rstrip())
    text = text.replace(",", "." if _DECIMAL_COMMA.fullmatch(text) else "")
    return Decimal(text) if len(text) < 64 and _NUMBER.fullmatch(text) else None


def scale_to_integer(value: Decimal | None, scale: int) -> int | None:
    """Return `value * scale`, rounded half to even; None if it is missing or too large for 64 bits."""
    if value is None or not value.is_finite() or (value and value.adjusted() > _MAX_EXPONENT):
        return None
    return int((value * scale).to_integral_value(ROUND_HALF_EVEN))


def parse_nanoseconds(text: str, unit: int) -> int | None:
    """Parse a printed time as ns; `unit` is the length of its unit in ns."""
    return scale_to_integer(parse_decimal(text), unit)


def parse_float(text: str) -> float | None:
    """Parse a printed number as a float; None for `nan`, `-`, `N/A` and blanks."""
    value = parse_decimal(text)
    return None if value is None else float(value)


def build_frame(rows: Iterable[Mapping[str, Any]], schema: Mapping[str, Any], log: Log) -> pl.DataFrame:
    """Build a frame with these columns; a value that its column cannot hold becomes null, and is counted."""
    rows = list(rows)
    with suppress(*_BUILD_ERRORS):
        return pl.DataFrame(rows, schema=schema)
    columns, lost_count = {}, 0
    for name, dtype in schema.items():
        cells = [row.get(name) for row in rows]
        columns[name] = [_fit_value(cell, dtype) for cell in cells]
        lost_count += columns[name].count(None) - cells.count(None)
    log.repair("bad_cell", "cells with a value of the wrong type, left out", count=lost_count)
    return pl.DataFrame(columns, schema=schema)


def _fit_value(value: Any, dtype: Any) -> Any:
    """Return the value if a column of this type can hold it, else None."""
    if dtype == pl.Int64:
        return value if type(value) is int and -_INT64_END <= value < _INT64_END else None
    if dtype != pl.Float64:
        return clean(value) if isinstance(value, str) else None
    with suppress(OverflowError):
        return float(value) if isinstance(value, int | float) else None
    return None
