"""What is found piece by piece of a run that grows; of pieces that an earlier snapshot had, it is known."""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

import polars as pl

from capture import pieces
from capture.pieces import Piece
from capture.run import Run, widened

Found = TypeVar("Found")

REMEMBERED: Final = 16  # things of a piece, the newest


def of_pieces(run: Run, what: Hashable, find: Callable[[pl.DataFrame], Found]) -> list[Found]:
    """Return what is found of each piece of a run's events, in order, with all columns that the run has; of
    the whole where it has no pieces. `what` tells all that the finding depends on besides the events.
    """
    own = pieces.of(run)
    if not own:
        return [find(run.events)]
    columns = tuple(run.events.columns)
    return [_found(piece, (what, columns), columns, find) for piece in own]


def _found(
    piece: Piece, what: Hashable, columns: tuple[str, ...], find: Callable[[pl.DataFrame], Found]
) -> Found:
    if what in piece.known:
        known: Found = piece.known[what]
        return known
    found = piece.known[what] = find(widened(piece.events, columns))
    for old in list(piece.known)[:-REMEMBERED]:
        piece.known.pop(old, None)
    return found
