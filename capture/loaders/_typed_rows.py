"""Build a typed frame from rows; cells that do not fit their column become null and are counted."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import polars as pl
from polars.exceptions import PanicException, PolarsError

from capture.clean_text import clean
from capture.import_log import Log

_BUILD_ERRORS: Final = (TypeError, ValueError, OverflowError, PolarsError, PanicException)
_INT64_END: Final = 1 << 63


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
