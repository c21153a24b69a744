"""Tables as typed JSON columns, and the keys of our Parquet metadata."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from capture.native.line_types import SavedTable
from capture.run import clean_meta

PARQUET_KEY: Final = "tracetui"  # key of everything besides events in the metadata of a Parquet file
PARQUET_SCHEMA: Final = 1

_TYPES: Final[Mapping[str, pl.DataType]] = {
    str(t): t
    for t in (
        pl.String(), pl.Boolean(), pl.Categorical(), pl.Null(), pl.Float32(), pl.Float64(),
        pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64(),
    )
}  # fmt: skip


def format_type(type: pl.DataType) -> str | None:
    """Return the name under which a column type is saved, or None for a type that JSON cannot hold."""
    name = str(type)
    return name if name.replace("List(", "").rstrip(")") in _TYPES else None


def parse_type(name: str) -> pl.DataType:
    """Return the column type with this name, String if it is unknown."""
    type = _TYPES.get(name.replace("List(", "").rstrip(")"), pl.String())
    for _ in range(min(name.count("List("), 8)):
        type = pl.List(type)
    return type


def build_table(saved: SavedTable) -> pl.DataFrame:
    """Return the table of one line; polars errors are raised for values that do not match their type."""
    types = {name: parse_type(saved.types.get(name, "String")) for name in saved.columns}
    return pl.DataFrame([pl.Series(n, clean_meta(saved.columns[n]), type) for n, type in types.items()])
