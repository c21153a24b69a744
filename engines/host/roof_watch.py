"""Read memory in the pauses of a run: how fast it is now, which is the roof of this moment.

On a shared host the bandwidth itself swings with the neighbours, so that one reading at the start is no roof
of a step an hour later.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import torch

from capture.native.emit import Emitter, now
from capture.roofs import READING
from engines.processor.rows import total

SHARE: Final = 0.004  # of the run's time that is spent on reading
EVERY_NS: Final = 300_000_000  # from one pass to the next, at least
FIELD: Final = 1 << 25  # numbers that a pass reads: more than the caches hold
PIECE: Final = 1 << 21  # numbers that are read before cores wait for each other: what a matrix has
PASSES: Final = 3  # that are told together: each at a moment of its own, since one may meet a bad one


class RoofWatch:
    """Reads memory now and then, and writes how fast that was as a counter of the run.

    It is read as a step reads its weights: whoever takes a core for a moment has the other one wait at the
    end of a piece as at the end of a product, so that a reading is slowed as a step is.
    """

    def __init__(self, emitter: Emitter, field: torch.Tensor | None = None) -> None:
        self._emitter = emitter
        self.field = torch.ones(FIELD) if field is None else field

    def readings(self) -> Iterator[None]:
        """Read once at each turn, and write how fast the last few passes were together."""
        last: deque[int] = deque(maxlen=PASSES)
        while True:
            last.append(self._pass())
            self._emitter.counter(READING, 1e9 * len(last) * self.field.nbytes / max(sum(last), 1), "B/s")
            yield

    def _pass(self) -> int:
        """Return the nanoseconds that it takes to read the field."""
        begun = now()
        for piece in self.field.split(PIECE):
            total(piece)
        return now() - begun
