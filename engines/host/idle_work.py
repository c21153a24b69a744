"""Throttled work between two reports: bandwidth readings, and moving weights to huge pages.

On a shared host memory bandwidth varies with the load of other tenants, so a reading at the start is no roof
for a step an hour later.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import torch

from capture.device_roofs import READ_COUNTER
from capture.native.emit import Emitter, now
from engines.processor import iter_weights
from engines.processor.huge_pages import gather_into_pages
from engines.processor.row_ops import sum_numbers

READ_TIME_SHARE: Final = 0.004  # of the run's time that is spent on reading
GATHER_TIME_SHARE: Final = 0.1  # of the run's time until all are gathered
READ_INTERVAL_NS: Final = 300_000_000  # from one pass to the next, at least
WATCH_NUMBERS: Final = 1 << 25  # numbers that a pass reads: more than the caches hold
WATCH_PIECE_NUMBERS: Final = 1 << 21  # numbers read before cores wait for each other: what a matrix has
UNTIMED_PIECES: Final = 4  # of a pass: whoever rested for a moment is let run before others
PASSES_PER_READING: Final = 3  # reported together, each at a moment of its own, since one may meet a bad one


def sample_bandwidth(emitter: Emitter, buffer: torch.Tensor) -> Iterator[None]:
    """Measure memory bandwidth once per turn, and write the rate of the last few passes as a counter.

    Memory is read like weights: if another program takes a core for a moment, the others wait at the end of a
    piece as at the end of a product, so that a reading is slowed as much as a step.
    """
    pieces = buffer.split(WATCH_PIECE_NUMBERS)
    timed = pieces[UNTIMED_PIECES:]
    bytes_read = sum(piece.nbytes for piece in timed)
    times_ns: deque[int] = deque(maxlen=PASSES_PER_READING)
    while True:
        for piece in pieces[:UNTIMED_PIECES]:
            sum_numbers(piece)
        start = now()
        for piece in timed:
            sum_numbers(piece)
        times_ns.append(now() - start)
        rate = 1e9 * len(times_ns) * bytes_read / max(sum(times_ns), 1)
        emitter.counter(READ_COUNTER, rate, "B/s")
        yield


class ThrottledWork:
    """Runs work piece by piece, within a share of the run's time."""

    def __init__(self, work: Iterator[object], share: float, interval_ns: int = 0) -> None:
        """`interval_ns`: minimum time between two pieces."""
        self._work, self._share, self._interval_ns = work, share, interval_ns
        self._next = 0

    def run_if_due(self) -> bool:
        """Run a piece if it is due; return whether one ran, whose time belongs to no step."""
        start = now()
        if start < self._next:
            return False
        did_work = next(self._work, self) is not self
        self._next = start + max(self._interval_ns, int((now() - start) / self._share))
        return did_work


def build_idle_work(emitter: Emitter, device: torch.device, *, is_bare: bool) -> Callable[[], bool] | None:
    """Build the work between two reports; None on accelerators, which compute apart from the host.

    A bare run, which times no kernels, does not measure bandwidth.
    """
    if device.type != "cpu":
        return None
    if is_bare:
        return ThrottledWork(gather_into_pages(iter_weights()), GATHER_TIME_SHARE).run_if_due
    buffer = torch.ones(WATCH_NUMBERS)
    sampling = ThrottledWork(sample_bandwidth(emitter, buffer), READ_TIME_SHARE, READ_INTERVAL_NS)
    gathering = ThrottledWork(gather_into_pages((buffer, *iter_weights())), GATHER_TIME_SHARE)
    return lambda: sampling.run_if_due() or gathering.run_if_due()
