"""Read memory in the pauses of a run: how fast it is now, which is the roof of this moment.

On a shared host the bandwidth itself swings with the neighbours, so that one reading at the start is no roof
of a step an hour later.
"""

from collections.abc import Callable
from typing import Final

import torch

from capture.native.emit import Emitter, now
from capture.roofs import READING

SHARE: Final = 0.004  # of the run's time that is spent on readings
EVERY_NS: Final = 1_000_000_000  # from one reading to the next, at least
FIELD: Final = 1 << 25  # numbers that are read: more than the caches hold
PASSES: Final = 3  # of a reading: whoever takes a core for a moment, as a screen does, spoils one of them


class RoofWatch:
    """Reads memory now and then, and writes how fast that was as a counter of the run."""

    def __init__(self, emitter: Emitter, field: torch.Tensor | None = None) -> None:
        self._emitter = emitter
        self._field = torch.ones(FIELD) if field is None else field
        self._size = self._field.numel() * self._field.element_size()
        self._next = 0

    def pause(self) -> bool:
        """Read where it is time to; return whether any time was taken, which belongs to no step."""
        begun = now()
        if begun < self._next:
            return False
        best = min(self._pass() for _ in range(PASSES))
        self._emitter.counter(READING, 1e9 * self._size / best, "B/s")
        self._next = begun + max(EVERY_NS, int((now() - begun) / SHARE))
        return True

    def _pass(self) -> int:
        begun = now()
        self._field.sum()
        return max(now() - begun, 1)


def watch(emitter: Emitter, device: torch.device, *, bare: bool) -> Callable[[], bool]:
    """Return what is to be done between two reports; nothing where the clock of the host times no kernels."""
    if device.type != "cpu" or bare:
        return lambda: False
    return RoofWatch(emitter).pause
