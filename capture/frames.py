"""Frames that grow by chunks, and tables as JSON columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from capture.native.lines import SavedTable
from capture.pieces import Piece
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
    """Frames in order, as pieces; neighbours of like size become one, so that few are left of many."""

    def __init__(self, largest: int | None = None, pieces: Sequence[Piece] = ()) -> None:
        """Merge frames as long as they are of so many rows together, None for any number."""
        self._largest = largest
        self.pieces = [piece for piece in pieces if piece.events.height]

    @property
    def height(self) -> int:
        return sum(frame.height for frame in self)

    def add(self, frame: pl.DataFrame) -> None:
        """Add a frame behind the others."""
        self.pieces.append(Piece(frame))
        while len(self.pieces) > 1 and self._alike(*self.pieces[-2:]):
            last = [self.pieces.pop().events for _ in range(2)][::-1]
            self.pieces.append(Piece(pl.concat(last, how="diagonal", rechunk=True)))

    def _alike(self, one: Piece, other: Piece) -> bool:
        small, large = other.events.height, one.events.height
        return large < 2 * small and (self._largest is None or small + large <= self._largest)

    def parted(self, stays: Callable[[pl.DataFrame], bool]) -> tuple[pl.DataFrame, list[Piece]]:
        """Return as one frame all up to the last frame that does not stay, and the pieces behind that."""
        first = len(self.pieces)
        while first and stays(self.pieces[first - 1].events):
            first -= 1
        rest = [piece.events for piece in self.pieces[:first]]
        return pl.concat(rest, how="diagonal") if rest else pl.DataFrame(), self.pieces[first:]

    def with_first(self, frame: pl.DataFrame, pieces: Sequence[Piece]) -> "Chunks":
        """Return a frame and the pieces that come behind it, which go on as these do."""
        return Chunks(self._largest, (Piece(frame), *pieces))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return (piece.events for piece in self.pieces)


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
