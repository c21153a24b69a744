"""Commands to a running engine: read from stdin, a JSON line each, and from signals; obeyed between steps."""

import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from capture.native.emit import Emitter
from engines.host.heartbeat import Heartbeat

KINDS: Final = frozenset(("prompt", "mode", "pause", "resume", "quit"))
LONGEST: Final = 1 << 20  # bytes of a line
IDLE_S: Final = 0.02


class StoppedError(Exception):
    """Raised where a signal has asked for the end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Commands:
    """Queues the commands that a thread reads from stdin."""

    def __init__(self) -> None:
        self.waiting: deque[dict[str, Any]] = deque()
        self.closed = threading.Event()
        self.refused: deque[str] = deque(maxlen=20)
        self._signal = 0

    def listen(self, *, lines: bool = True) -> None:
        """Start to take signals, and lines where `lines` says so."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_signal)
        if lines:
            threading.Thread(target=self._read, daemon=True, name="commands").start()

    def check(self) -> None:
        """Raise StoppedError where a signal has come."""
        if self._signal:
            raise StoppedError(self._signal)

    def refresh(self) -> None:
        """Bring `waiting` up to date between two steps. Raise StoppedError where a signal has come."""
        self.check()

    def take(self, line: str) -> None:
        """Queue a line that is a command; remember another one as refused."""
        try:
            command = json.loads(line)
        except (ValueError, RecursionError):
            command = None
        if isinstance(command, dict) and command.get("do") in KINDS:
            self.waiting.append(command)
        elif line.strip():
            self.refused.append(line.strip()[:200])

    def _note_signal(self, number: int, _frame: object) -> None:
        self._signal = number

    def _read(self) -> None:
        """Read the descriptor itself: a thread blocked in Python's own buffer would abort the exit."""
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


class Control:
    """Carries out the commands that have come; `mode` and `prompt` do so for theirs, and return an answer."""

    def __init__(
        self,
        commands: Commands,
        emitter: Emitter,
        heartbeat: Heartbeat,
        mode: Callable[[str], str],
        prompt: Callable[[str], str],
    ) -> None:
        self._commands, self._emitter, self._heartbeat = commands, emitter, heartbeat
        self._mode, self._prompt = mode, prompt
        self._paused = False
        self.ended = False

    def refuse_prompts(self, why: str) -> None:
        """From now on answer each prompt with a sentence."""
        self._prompt = lambda _: why

    def obey(self) -> bool:
        """Carry out what was asked for; return whether the time that it took belongs to no step."""
        self._commands.refresh()
        if not self._commands.waiting and not self._commands.refused:
            return False
        self._obey_all()
        while self._paused and not self.ended:
            self.idle("paused")
        return True

    def idle(self, why: str) -> None:
        """Rest for a moment under this status, then carry out what was asked for meanwhile."""
        if self._heartbeat.doing != why:
            self._heartbeat.status(why)
        time.sleep(IDLE_S)
        self._commands.refresh()
        self._obey_all()

    @property
    def closed(self) -> bool:
        """Whether stdin has ended, so that no further command can come."""
        return self._commands.closed.is_set()

    def _obey_all(self) -> None:
        while self._commands.waiting:
            self._do(self._commands.waiting.popleft())
        while self._commands.refused:
            self._emitter.mark(f"no such command: {self._commands.refused.popleft()}", "log")

    def _do(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "quit":
                self.ended = True
            case "pause":
                self._paused = not self._paused
            case "resume":
                self._paused = False
            case "prompt":
                self._note(self._prompt(str(command.get("text", ""))))
            case "mode":
                self._note(self._mode(str(command.get("mode"))))

    def _note(self, answer: str) -> None:
        if answer:
            self._emitter.mark(answer, "note")
