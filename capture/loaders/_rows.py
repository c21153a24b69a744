"""Rows that a loader has read, as a frame: a cell that is no value of its column is left out and counted."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.text import clean

_BROKEN: Final = (
    TypeError,
    ValueError,
    OverflowError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
_LARGEST: Final = 1 << 63


def frame_of(rows: Iterable[Mapping[str, Any]], schema: Mapping[str, Any], log: Log) -> pl.DataFrame:
    """Return rows as a frame of these columns; a value that its column cannot hold is null, and logged."""
    rows = list(rows)
    try:
        return pl.DataFrame(rows, schema=schema)
    except _BROKEN:
        columns = {name: [row.get(name) for row in rows] for name in schema}
    fitted = {name: [_fitted(value, schema[name]) for value in values] for name, values in columns.items()}
    bad = sum(
        new is None and old is not None
        for name, values in columns.items()
        for old, new in zip(values, fitted[name], strict=True)
    )
    log.repair("bad_cell", "cells that hold no value of their column's kind are left out", count=bad)
    return pl.DataFrame(fitted, schema=schema)


def _fitted(value: Any, type: Any) -> Any:
    """Return the value as a column of this type holds it; None where it cannot."""
    if type == pl.Int64:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and -_LARGEST <= value < _LARGEST else None
    if type == pl.Float64:
        return _real(value)
    return clean(value) if isinstance(value, str) else None


def _real(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
