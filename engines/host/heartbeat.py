"""A thread that flushes the recording, and writes a sign of life while nothing else is written."""

import sys
import threading
import time

from capture.native.emit import Emitter

BEAT_S = 0.8
FLUSH_S = 0.1
TELL_S = 0.1


class Heartbeat(threading.Thread):
    """Flushes what waits, and says what is being done when a step or a stage takes long."""

    def __init__(self, emitter: Emitter) -> None:
        super().__init__(daemon=True, name="pulse")
        self._emitter = emitter
        self._done = threading.Event()
        self._touched = time.monotonic()
        self.doing = "starting"
        self._printed = False

    def touch(self) -> None:
        """Note that something was written."""
        self._touched = time.monotonic()

    def status(self, text: str) -> None:
        """Write what is being done now, as a mark."""
        self.doing = text
        self._emitter.mark(text, "status")
        self._emitter.flush()
        self.touch()

    def progress(self, doing: str, share: float) -> None:
        """Write how much of it is done, at most every tenth of a second."""
        if time.monotonic() - self._touched > TELL_S:
            self.status(f"{doing} {100 * share:.0f} %")

    def run(self) -> None:
        while not self._done.wait(FLUSH_S):
            if time.monotonic() - self._touched > BEAT_S:
                self._emitter.mark(self.doing, "heartbeat")
                self.touch()
            self._emitter.flush()
            self._print_gaps()

    def _print_gaps(self) -> None:
        """Print on stderr, once, why the recording cannot be written."""
        if not self._printed and (why := self._emitter.unwritten):
            self._printed = True
            print(f"engines: the recording has gaps: {why}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._done.set()
        self.join()
