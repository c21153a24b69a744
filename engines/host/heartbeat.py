"""A sign of life while nothing else is written: a line a second, and nothing waits for long."""

import sys
import threading
import time

from capture.native.emit import Emitter

BEAT_S = 0.8
FLUSH_S = 0.1
TELL_S = 0.1


class Pulse(threading.Thread):
    """Flushes what waits, and says what is being done when a step or a stage takes long."""

    def __init__(self, emitter: Emitter) -> None:
        super().__init__(daemon=True, name="pulse")
        self._emitter = emitter
        self._done = threading.Event()
        self._touched = time.monotonic()
        self.doing = "starting"
        self._complained = False

    def touch(self) -> None:
        """Something was written."""
        self._touched = time.monotonic()

    def status(self, text: str) -> None:
        """What is being done now, as a mark."""
        self.doing = text
        self._emitter.mark(text, "status")
        self._emitter.flush()
        self.touch()

    def progress(self, doing: str, share: float) -> None:
        """How much of it is done, told now and then."""
        if time.monotonic() - self._touched > TELL_S:
            self.status(f"{doing} {100 * share:.0f} %")

    def run(self) -> None:
        while not self._done.wait(FLUSH_S):
            if time.monotonic() - self._touched > BEAT_S:
                self._emitter.mark(self.doing, "heartbeat")
                self.touch()
            self._emitter.flush()
            self._complain()

    def _complain(self) -> None:
        """A recording that cannot be written is told where it can be: on stderr, once."""
        if not self._complained and (why := self._emitter.unwritten):
            self._complained = True
            print(f"engines: the recording has gaps: {why}", file=sys.stderr, flush=True)

    def stop(self) -> None:
        self._done.set()
        self.join()
