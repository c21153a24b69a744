"""Build a typed frame from rows; cells that do not fit their column become null and are counted."""

from collections.abc import Iterable, Mapping
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
    try:
        return pl.DataFrame(rows, schema=schema)
    except _BUILD_ERRORS:
        columns = {name: [row.get(name) for row in rows] for name in schema}
    typed_columns = {name: [_fit_value(v, schema[name]) for v in values] for name, values in columns.items()}
    pairs = (
        (old, new) for name in schema for old, new in zip(columns[name], typed_columns[name], strict=True)
    )
    lost_count = sum(new is None and old is not None for old, new in pairs)
    log.repair("bad_cell", "cells with a value of the wrong type, left out", count=lost_count)
    return pl.DataFrame(typed_columns, schema=schema)


def _fit_value(value: Any, type: Any) -> Any:
    """Return the value if a column of this type can hold it, else None."""
    if type == pl.Int64:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return value if is_integer and -_INT64_END <= value < _INT64_END else None
    if type == pl.Float64:
        return _to_float(value)
    return clean(value) if isinstance(value, str) else None


def _to_float(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
