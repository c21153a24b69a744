"""The pace of the processors beside a recording: how long one fixed loop takes on each of them.

The loop counts in registers, so neither memory nor the recorded program has a part in its time: what moves it
is the processor itself. It runs slower where the clock is lower, and where somebody else's program has the
other thread of the same physical core, which a virtual machine shows in no other way.
"""

import os
import threading
import time
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from ..native.emit import Emitter

NAME: Final = "fixed_loop_time"
ROUNDS: Final = 1_500  # of the loop: some 10 µs
READY: Final = 300  # rounds before them, while what others left in the caches makes way
SHARE: Final = 0.005  # of each processor that it may take
LEAST_PAUSE_NS: Final = 20_000_000
EACH_NS: Final = 2_500_000  # of the pause for each processor, since the threads take turns
MOVED: Final = 0.05  # from which a time is written down anew
AGAIN_NS: Final = 1_000_000_000  # after which it is written down though it did not move


def loop_ns() -> int:
    """Return the processor time of the loop, the better of two: an interrupt falls into one of them."""
    _count(READY)
    return min(_timed(), _timed())


def _timed() -> int:
    began = time.thread_time_ns()
    _count(ROUNDS)
    return time.thread_time_ns() - began


def _count(rounds: int) -> None:
    for _ in repeat(None, rounds):
        pass


def pause_ns(spent_ns: int, processors: int) -> int:
    """Return how long one of so many rests after so much processor time, so that the share is kept."""
    return max(LEAST_PAUSE_NS, processors * EACH_NS, int(spent_ns / SHARE))


class Kept:
    """What was written down last of each processor: a time holds until another one is written."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def is_news(self, core: int, at: int, took: int) -> bool:
        """Tell whether a time is to be written down, and take it for written down then."""
        known = self._last.get(core)
        if known and at - known[0] < AGAIN_NS and abs(took - known[1]) < MOVED * known[1]:
            return False
        self._last[core] = at, took
        return True


def processors_of(pid: int) -> list[int]:
    """Return the processors that a process may use; none where the system does not tell."""
    try:
        return sorted(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return []


class Pace:
    """Times the loop on each processor, by a thread that stays there, until it is told to end."""

    def __init__(self, emitter: Emitter, cores: Iterable[int]) -> None:
        self._emitter, self._kept = emitter, Kept()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(core,), name=f"pace of core {core}", daemon=True)
            for core in cores
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _watch(self, core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})  # of this thread alone
        except OSError as e:
            self._emitter.mark(f"cannot be measured: the pace of core {core} ({e.strerror})", "log")
            return
        over = False
        while not over:
            began = time.thread_time_ns()
            self.note(core, time.perf_counter_ns(), loop_ns())
            over = self._over.wait(pause_ns(time.thread_time_ns() - began, len(self._threads)) / 1e9)

    def note(self, core: int, at: int, took: int) -> None:
        """Write a time of the loop down where it is news."""
        if self._kept.is_news(core, at, took):
            self._emitter.event("counter", NAME, t=at, value=took, unit="ns", track=f"core {core}")
