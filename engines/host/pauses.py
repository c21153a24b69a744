"""What an engine does between two reports: it reads memory, and has its weights gathered into large pages."""

from collections.abc import Callable, Iterator
from typing import Final

import torch

from capture.native.emit import Emitter, now
from engines.host.roof_watch import EVERY_NS, SHARE, RoofWatch
from engines.processor import held
from engines.processor.pages import gather

GATHERING: Final = 0.1  # of the run's time until all are gathered


class Pause:
    """Work that takes a share of a run's time, a piece of it now and then."""

    def __init__(self, work: Iterator[object], share: float, every_ns: int = 0) -> None:
        """Take the pieces and their share of time; `every_ns` is the least time from one to the next."""
        self._work, self._share, self._every_ns = work, share, every_ns
        self._next = 0

    def take(self) -> bool:
        """Do a piece where it is time to; return whether one was done, whose time belongs to no step."""
        begun = now()
        if begun < self._next:
            return False
        did = next(self._work, self) is not self
        self._next = begun + max(self._every_ns, int((now() - begun) / self._share))
        return did


def no_pauses() -> bool:
    """Do nothing."""
    return False


def pauses(emitter: Emitter, device: torch.device, *, bare: bool) -> Callable[[], bool]:
    """Return what is to be done between two reports: nothing on a device that computes apart from the host.

    In a bare run, which times no kernels, memory is not read.
    """
    if device.type != "cpu":
        return no_pauses
    if bare:
        return Pause(gather(held()), GATHERING).take
    watch = RoofWatch(emitter)
    reading = Pause(watch.readings(), SHARE, EVERY_NS)
    gathering = Pause(gather((watch.field, *held())), GATHERING)
    return lambda: reading.take() or gathering.take()
