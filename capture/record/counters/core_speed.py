"""Measure the speed of each core during a recording: the time of one fixed loop.

The loop counts in registers, so that neither memory nor the recorded program affects it, only the core
itself: its clock, and another program on the second thread of the same physical core, which a virtual machine
shows in no other way.
"""

import os
import threading
import time
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from ...native.emit import Emitter

COUNTER: Final = "fixed_loop_time"
LOOP_ROUNDS: Final = 1_500  # about 10 µs
WARM_UP_ROUNDS: Final = 300  # before measuring, to warm the caches
MAX_CORE_SHARE: Final = 0.005  # of each core
MIN_PAUSE_NS: Final = 20_000_000
PAUSE_PER_CORE_NS: Final = 2_500_000  # the threads take turns
MIN_CHANGE_SHARE: Final = 0.05  # from which a reading is written
REWRITE_INTERVAL_NS: Final = 1_000_000_000  # after which an unchanged reading is written, too


def measure_loop_ns() -> int:
    """Return the CPU time of the loop, the better of two because an interrupt may hit one of them."""
    _run_loop(WARM_UP_ROUNDS)
    return min(_time_loop(), _time_loop())


def _time_loop() -> int:
    began = time.thread_time_ns()
    _run_loop(LOOP_ROUNDS)
    return time.thread_time_ns() - began


def _run_loop(rounds: int) -> None:
    for _ in repeat(None, rounds):
        pass


def compute_pause_ns(spent_ns: int, cores: int) -> int:
    """Return the pause of one of the threads after this much CPU time, so that it keeps its share."""
    return max(MIN_PAUSE_NS, cores * PAUSE_PER_CORE_NS, int(spent_ns / MAX_CORE_SHARE))


class LastReadings:
    """The reading written last for each core: it holds until another one is written."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}

    def should_write(self, core: int, at: int, loop_ns: int) -> bool:
        """Return whether a reading is to be written, and remember it as written then."""
        last_at, last_ns = self._last.get(core, (at - REWRITE_INTERVAL_NS, loop_ns))  # the first is due
        if at - last_at < REWRITE_INTERVAL_NS and abs(loop_ns - last_ns) < MIN_CHANGE_SHARE * last_ns:
            return False
        self._last[core] = at, loop_ns
        return True


def list_allowed_cores(pid: int) -> list[int]:
    """Return the cores that a process may use; none if the system does not report them."""
    try:
        return sorted(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return []


class CoreSpeedProbe:
    """Times the loop on each core, with one thread per core, until stopped."""

    def __init__(self, emitter: Emitter, cores: Iterable[int]) -> None:
        self._emitter, self._last_readings = emitter, LastReadings()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._measure_core, args=(n,), name=f"speed of core {n}", daemon=True)
            for n in cores
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads and wait for them."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _measure_core(self, core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})  # of this thread only
        except OSError as e:
            self._emitter.mark(f"cannot be measured: the speed of core {core} ({e.strerror})", "log")
            return
        while True:
            start = time.thread_time_ns()
            at, loop_ns = time.perf_counter_ns(), measure_loop_ns()
            if self._last_readings.should_write(core, at, loop_ns):
                self._emitter.event("counter", COUNTER, t=at, value=loop_ns, unit="ns", track=f"core {core}")
            pause_ns = compute_pause_ns(time.thread_time_ns() - start, len(self._threads))
            if self._stopped.wait(pause_ns / 1e9):
                return
