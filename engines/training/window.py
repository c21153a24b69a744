"""What a window of the profiler shows of a training step, each piece of it under the row whose work it is.

Autograd works on a thread of its own; the sequence number of a forward op ties its backward work to it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from capture.native.schema import PATH_SEPARATOR
from capture.record.kernels import Row as Piece
from capture.record.kernels import Window
from engines.training.rows import GRADIENTS, STRAY, Placed, StepRows

SEED: Final = "backward"  # the annotation around the backward pass: where its first gradient is made


class Work(NamedTuple):
    """A row that was done."""

    row: Placed
    phase: str | None
    start: int
    duration: int


class Owners:
    """Whose work a piece is, by the annotation that it stands in or that its forward op stood in."""

    def __init__(self, rows: StepRows) -> None:
        loss = rows.backward[0]
        self._ahead = {row.scope: row for row in (*rows.forward, *rows.optimizer)}
        self._ahead |= {SEED: loss, "optimizer": rows.optimizer[0]}
        pairs = zip(rows.forward, reversed(rows.backward), strict=True)
        self._back = {ahead.scope: back for ahead, back in pairs} | {"gradients": GRADIENTS}

    def backward(self, window: Window) -> list[Work]:
        """The backward pass on the processor: one piece for each row, with all the time that it took."""
        started: dict[Placed, int] = {}
        spent: dict[Placed, int] = {}
        for seen in window.rows:
            if seen.phase == "backward" or seen.owner == SEED:
                row = self._of(seen)
                started[row] = min(seen.start, started.get(row, seen.start))
                spent[row] = spent.get(row, 0) + seen.duration
        done = [Work(row, "backward", started[row], spent[row]) for row in spent]
        return sorted(done, key=lambda work: work.start)

    def kernels(self, window: Window) -> list[Work]:
        """Kernels under the names that the device gives them; the longest of a row carries its work."""
        owned = [(seen, self._of(seen)) for seen in window.rows if seen.lens == "gpu"]
        longest = _longest(owned)
        done = [
            Work(_kernel(seen.name, row, i in longest), _phase(row), seen.start, seen.duration)
            for i, (seen, row) in enumerate(owned)
        ]
        return sorted(done, key=lambda work: work.start)

    def _of(self, seen: Piece) -> Placed:
        known = self._back if seen.phase == "backward" else self._ahead
        return known.get(seen.owner or "", STRAY if seen.phase == "backward" else replace(STRAY, path=""))


def _longest(owned: Iterable[tuple[Piece, Placed]]) -> set[int]:
    """Where the longest kernel of each row stands."""
    best: dict[Placed, tuple[int, int]] = {}
    for i, (seen, row) in enumerate(owned):
        if row not in best or seen.duration > best[row][0]:
            best[row] = (seen.duration, i)
    return {i for _, i in best.values()}


def _kernel(name: str, row: Placed, carries: bool) -> Placed:
    path = PATH_SEPARATOR.join(part for part in (row.path, row.name) if part)
    kernel = replace(row, name=name, path=path, lens="gpu")
    return kernel if carries else replace(kernel, flops=(0.0, 0.0), bytes=(0.0, 0.0))


def _phase(row: Placed) -> str | None:
    return row.path.partition(PATH_SEPARATOR)[0] or None
