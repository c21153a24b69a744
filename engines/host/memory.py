"""How fast this machine reads memory: the roof of every decode."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Final

import torch

from engines.processor.pages import gather
from engines.processor.rows import total

FIELD: Final = 1 << 26  # numbers that are read in one pass
PIECE: Final = 1 << 22  # numbers that are timed by themselves
QUICK_S: Final = 0.1  # of reading
LONG_S: Final = 1.0  # the same where there is time for it: a shared host swings from second to second


class Memory:
    """A field that no cache holds, and that is read again and again."""

    def __init__(self, *, large: bool) -> None:
        """Fill it, in large pages where the system has them if it is to be so: that takes half a second."""
        field = torch.ones(FIELD)
        for _ in gather([field]) if large else ():
            pass
        self._pieces = field.split(PIECE)

    def passes(self, seconds: float) -> list[float]:
        """Return the bytes a second of every pass over the field in so long a time, one at least.

        It is that of the middle piece: in some of them a core was somebody else's.
        """
        rates: list[float] = []
        until = time.perf_counter() + seconds
        while not rates or time.perf_counter() < until:
            rates.append(median(map(_rate, self._pieces)))
        return rates

    def rate(self, seconds: float = QUICK_S) -> float:
        """Return the bytes a second that memory keeps up."""
        return kept_up(self.passes(seconds))


def kept_up(passes: Sequence[float]) -> float:
    """Return the rate that every fourth pass comes up to: neighbours take from a roof and add nothing."""
    return float(torch.tensor(passes, dtype=torch.float64).quantile(0.75))


def _rate(piece: torch.Tensor) -> float:
    start = time.perf_counter()
    total(piece)
    return piece.nbytes / (time.perf_counter() - start)
