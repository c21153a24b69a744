"""Read memory in the pauses of a run: how fast it is now, which is the roof of this moment.

On a shared host the bandwidth itself swings with the neighbours, so that one reading at the start is no roof
of a step an hour later.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import torch

from capture.native.emit import Emitter, now
from capture.roofs import READING
from engines.processor.rows import total

SHARE: Final = 0.004  # of the run's time that is spent on reading
EVERY_NS: Final = 300_000_000  # from one pass to the next, at least
FIELD: Final = 1 << 25  # numbers that a pass reads: more than the caches hold
PIECE: Final = 1 << 21  # numbers that are read before cores wait for each other: what a matrix has
LEAD: Final = 4  # pieces of a pass that are not timed: whoever rested for a moment is let run before others
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
        lead, timed = (self.field.split(PIECE)[part] for part in (slice(LEAD), slice(LEAD, None)))
        size = sum(piece.nbytes for piece in timed)
        last: deque[int] = deque(maxlen=PASSES)
        while True:
            _read(lead)
            last.append(_read(timed))
            self._emitter.counter(READING, 1e9 * len(last) * size / max(sum(last), 1), "B/s")
            yield


def _read(pieces: Sequence[torch.Tensor]) -> int:
    """Return the nanoseconds that it takes to read the pieces."""
    begun = now()
    for piece in pieces:
        total(piece)
    return now() - begun
