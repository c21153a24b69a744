"""What a window of the profiler shows of a training step, each piece under the row whose work it is.

Autograd works on a thread of its own; the sequence number of a forward op ties its backward work to it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from capture.native.schema import PATH_SEPARATOR
from capture.record.kernels import Row as Piece
from capture.record.kernels import Window
from engines.training.rows import GRADIENTS, STRAY, PlacedRow, StepRows

SEED: Final = "backward"  # the annotation around the backward pass: where its first gradient is made


class Work(NamedTuple):
    """A row that was done."""

    row: PlacedRow
    phase: str | None
    start: int
    duration: int


class Owners:
    """Finds whose work a piece is, by the annotation around it or around its forward op."""

    def __init__(self, rows: StepRows) -> None:
        loss = rows.backward[0]
        self._ahead = {row.scope: row for row in (*rows.forward, *rows.optimizer)}
        self._ahead |= {SEED: loss, "optimizer": rows.optimizer[0]}
        pairs = zip(rows.forward, reversed(rows.backward), strict=True)
        self._back = {ahead.scope: back for ahead, back in pairs} | {"gradients": GRADIENTS}

    def backward(self, window: Window) -> list[Work]:
        """Return the backward pass on the processor: one piece for each row, with all the time it took."""
        started: dict[PlacedRow, int] = {}
        spent: dict[PlacedRow, int] = {}
        for piece in window.rows:
            if piece.phase == "backward" or piece.owner == SEED:
                row = self._owner(piece)
                started[row] = min(piece.start, started.get(row, piece.start))
                spent[row] = spent.get(row, 0) + piece.duration
        done = [Work(row, "backward", started[row], spent[row]) for row in spent]
        return sorted(done, key=lambda work: work.start)

    def kernels(self, window: Window) -> list[Work]:
        """Return kernels under the names that the device gives them; a row's longest carries its work."""
        owned = [(piece, self._owner(piece)) for piece in window.rows if piece.lens == "gpu"]
        longest = _longest(owned)
        done = [
            Work(_kernel(piece.name, row, i in longest), _phase(row), piece.start, piece.duration)
            for i, (piece, row) in enumerate(owned)
        ]
        return sorted(done, key=lambda work: work.start)

    def _owner(self, piece: Piece) -> PlacedRow:
        owners = self._back if piece.phase == "backward" else self._ahead
        return owners.get(piece.owner or "", STRAY if piece.phase == "backward" else replace(STRAY, path=""))


def _longest(owned: Iterable[tuple[Piece, PlacedRow]]) -> set[int]:
    """Return the index of the longest kernel of each row."""
    best: dict[PlacedRow, tuple[int, int]] = {}
    for i, (piece, row) in enumerate(owned):
        if row not in best or piece.duration > best[row][0]:
            best[row] = (piece.duration, i)
    return {i for _, i in best.values()}


def _kernel(name: str, row: PlacedRow, carries: bool) -> PlacedRow:
    path = PATH_SEPARATOR.join(part for part in (row.path, row.name) if part)
    kernel = replace(row, name=name, path=path, lens="gpu")
    return kernel if carries else replace(kernel, flops=(0.0, 0.0), bytes=(0.0, 0.0))


def _phase(row: PlacedRow) -> str | None:
    return row.path.partition(PATH_SEPARATOR)[0] or None
