"""Frames that grow by chunks, and tables as JSON columns."""

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from capture.native.lines import SavedTable
from capture.run import clean_meta

PARQUET_KEY: Final = "tracetui"  # in the metadata of a parquet file: what of a run is no event
PARQUET_SCHEMA: Final = 1

_TYPES: Final[Mapping[str, pl.DataType]] = {
    str(t): t
    for t in (
        pl.String(),
        pl.Boolean(),
        pl.Int8(),
        pl.Int16(),
        pl.Int32(),
        pl.Int64(),
        pl.UInt8(),
        pl.UInt16(),
        pl.UInt32(),
        pl.UInt64(),
        pl.Float32(),
        pl.Float64(),
        pl.Categorical(),
        pl.Null(),
    )
}


class Chunks:
    """Frames in order; neighbours of like size are merged, so that few are left of many."""

    def __init__(self, *frames: pl.DataFrame) -> None:
        self._frames = [frame for frame in frames if frame.height]

    @property
    def height(self) -> int:
        return sum(frame.height for frame in self._frames)

    def joined(self) -> pl.DataFrame:
        """Return all of them as one frame."""
        return pl.concat(self._frames, how="diagonal") if self._frames else pl.DataFrame()

    def add(self, frame: pl.DataFrame) -> None:
        """Add a frame behind the others."""
        self._frames.append(frame)
        while len(self._frames) > 1 and self._frames[-2].height < 2 * self._frames[-1].height:
            last = [self._frames.pop() for _ in range(2)][::-1]
            self._frames.append(pl.concat(last, how="diagonal", rechunk=True))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return iter(self._frames)


def type_name(type: pl.DataType) -> str | None:
    """Return the name under which a column type is saved; None for a type that JSON cannot hold."""
    name = str(type)
    return name if name.replace("List(", "").rstrip(")") in _TYPES else None


def type_of(name: str) -> pl.DataType:
    """Return the type of such a name; text for an unknown one."""
    depth = name.count("List(")
    type = _TYPES.get(name.replace("List(", "").rstrip(")"), pl.String())
    for _ in range(min(depth, 8)):
        type = pl.List(type)
    return type


def table_rows(saved: SavedTable) -> pl.DataFrame:
    """Return the rows of a table that one line holds; raise what polars raises for values that do not fit."""
    return pl.DataFrame(
        [
            pl.Series(name, clean_meta(values), dtype=type_of(saved.types.get(name, "String")))
            for name, values in saved.columns.items()
        ]
    )
