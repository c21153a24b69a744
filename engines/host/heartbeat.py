"""A thread that flushes the recording, and writes a sign of life while nothing else is written."""

import sys
import threading
import time

from capture.native.emit import Emitter

BEAT_INTERVAL_S = 0.8
FLUSH_INTERVAL_S = 0.1
PROGRESS_INTERVAL_S = 0.1


class Heartbeat(threading.Thread):
    """Flushes the recording, and repeats the current activity during long steps and stages."""

    def __init__(self, emitter: Emitter) -> None:
        super().__init__(daemon=True, name="pulse")
        self._emitter = emitter
        self._done = threading.Event()
        self._touched = time.monotonic()
        self.activity = "starting"
        self._printed = False

    def touch(self) -> None:
        """Record that something was written."""
        self._touched = time.monotonic()

    def write_status(self, text: str) -> None:
        """Write the current activity as a mark."""
        self.activity = text
        self._emitter.mark(text, "status")
        self._emitter.flush()
        self.touch()

    def write_progress(self, activity: str, share: float) -> None:
        """Write the share that is done: the first of an activity, then at most ten per second."""
        is_first = not self.activity.startswith(activity)
        if is_first or time.monotonic() - self._touched > PROGRESS_INTERVAL_S:
            self.write_status(f"{activity} {100 * share:.0f} %")

    def run(self) -> None:
        while not self._done.wait(FLUSH_INTERVAL_S):
            if time.monotonic() - self._touched > BEAT_INTERVAL_S:
                self._emitter.mark(self.activity, "heartbeat")
                self.touch()
            self._emitter.flush()
            self._print_gaps()

    def _print_gaps(self) -> None:
        """Print on stderr, once, why the recording cannot be written."""
        if not self._printed and (reason := self._emitter.unwritten):
            self._printed = True
            print(f"engines: the recording has gaps: {reason}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._done.set()
        self.join()
