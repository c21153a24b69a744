"""Pieces of a run that grows: what is found of one stands for all snapshots of the run that hold it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import polars as pl

from capture.run import Run


@dataclass(frozen=True, eq=False)
class Piece:
    """Events that never change, and what was found of them alone, by what was asked."""

    events: pl.DataFrame
    known: dict[Hashable, Any] = field(default_factory=dict)


_PIECES: Final[WeakKeyDictionary[Run, tuple[Piece, ...]]] = WeakKeyDictionary()


def tell(run: Run, pieces: Sequence[Piece]) -> None:
    """Let these be the pieces of a run: its events are theirs, in this order."""
    _PIECES[run] = tuple(pieces)


def of(run: Run) -> tuple[Piece, ...]:
    """Return the pieces of a run; none of one that does not grow, or is a part of another."""
    return _PIECES.get(run, ())
