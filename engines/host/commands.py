"""What the other side asks for on stdin, one JSON line each, and what the system asks for by signals."""

import json
import os
import signal
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Final

DOES: Final = frozenset(("prompt", "mode", "pause", "resume", "quit"))
LONGEST: Final = 1 << 20


class StoppedError(Exception):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Commands:
    """A queue that a thread fills from stdin."""

    def __init__(self) -> None:
        self.waiting: deque[dict[str, Any]] = deque()
        self.closed = threading.Event()
        self.refused: deque[str] = deque(maxlen=20)
        self._signal = 0

    def listen(self, *, lines: bool = True) -> None:
        """Starts to take signals, and lines unless somebody else does."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_signal)
        if lines:
            threading.Thread(target=self._read, daemon=True, name="commands").start()

    def check(self) -> None:
        """Raises where a signal has come."""
        if self._signal:
            raise StoppedError(self._signal)

    def refresh(self) -> None:
        """Between two steps: what was asked for meanwhile is there to be done."""
        self.check()

    def take(self, line: str) -> None:
        """One line: queued when it is a command, remembered as refused when not."""
        try:
            command = json.loads(line)
        except (ValueError, RecursionError):
            command = None
        if isinstance(command, dict) and command.get("do") in DOES:
            self.waiting.append(command)
        elif line.strip():
            self.refused.append(line.strip()[:200])

    def _note_signal(self, number: int, _frame: object) -> None:
        self._signal = number

    def _read(self) -> None:
        """Straight from the descriptor: a reader that is blocked in Python's own buffer aborts the exit."""
        rest = b""
        with suppress(OSError, ValueError, AttributeError):
            stdin = sys.stdin.fileno()
            while piece := os.read(stdin, 1 << 16):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self.take(line.decode(errors="replace"))
                if len(rest) > LONGEST:
                    rest = b""
        self.take(rest.decode(errors="replace"))
        self.closed.set()
