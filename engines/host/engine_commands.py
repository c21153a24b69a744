"""Commands to a running engine: JSON lines on stdin, and signals; run between steps.

`RunningEngine` is what its parts share.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from capture.native.emit import Emitter
from capture.record.torchrun import Rank
from engines.host.heartbeat import Heartbeat

COMMAND_NAMES: Final = frozenset(("prompt", "mode", "pause", "resume", "quit"))
MAX_LINE_BYTES: Final = 1 << 20  # bytes of a line
IDLE_S: Final = 0.02


class StoppedError(Exception):
    """A signal asked the engine to end."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class Commands:
    """Queues the commands that a thread reads from stdin."""

    def __init__(self) -> None:
        self.pending: deque[dict[str, Any]] = deque()
        self.closed = threading.Event()
        self.rejected: deque[str] = deque(maxlen=20)
        self._signal = 0

    def listen(self, *, reads_lines: bool = True) -> None:
        """Handle signals, and start to read lines if `reads_lines`."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_signal)
        if reads_lines:
            threading.Thread(target=self._read_lines, daemon=True, name="commands").start()

    def check_signals(self) -> None:
        """Raise StoppedError if a signal has arrived."""
        if self._signal:
            raise StoppedError(self._signal)

    def refresh(self) -> None:
        """Update `pending` between two steps. Raise StoppedError if a signal has arrived."""
        self.check_signals()

    def accept_line(self, line: str) -> None:
        """Queue a line if it is a command; store others as rejected."""
        try:
            command = json.loads(line)
        except (ValueError, RecursionError):
            command = None
        if isinstance(command, dict) and command.get("do") in COMMAND_NAMES:
            self.pending.append(command)
        elif line.strip():
            self.rejected.append(line.strip()[:200])

    def _note_signal(self, number: int, _frame: object) -> None:
        self._signal = number

    def _read_lines(self) -> None:
        """Read the file descriptor: a thread blocked in Python's own buffer would abort the exit."""
        partial = b""
        with suppress(OSError, ValueError, AttributeError):
            stdin = sys.stdin.fileno()
            while chunk := os.read(stdin, 1 << 16):
                *lines, partial = (partial + chunk).split(b"\n")
                for line in lines:
                    self.accept_line(line.decode(errors="replace"))
                if len(partial) > MAX_LINE_BYTES:
                    partial = b""
        self.accept_line(partial.decode(errors="replace"))
        self.closed.set()


class Control:
    """Runs pending commands; `set_mode` and `accept_prompt` run theirs and return an answer."""

    def __init__(
        self,
        commands: Commands,
        emitter: Emitter,
        heartbeat: Heartbeat,
        set_mode: Callable[[str], str],
        accept_prompt: Callable[[str], str],
    ) -> None:
        self._commands, self._emitter, self._heartbeat = commands, emitter, heartbeat
        self._set_mode, self._accept_prompt = set_mode, accept_prompt
        self._paused = False
        self.has_ended = False

    def refuse_prompts(self, reason: str) -> None:
        """Answer each further prompt with the reason."""
        self._accept_prompt = lambda _: reason

    def run_commands(self) -> bool:
        """Run pending commands; return whether that took time, which belongs to no step."""
        self._commands.refresh()
        if not self._commands.pending and not self._commands.rejected:
            return False
        self._run_pending()
        while self._paused and not self.has_ended:
            self.wait_idle("paused")
        return True

    def wait_idle(self, status: str) -> None:
        """Sleep briefly under this status, then run pending commands."""
        if self._heartbeat.activity != status:
            self._heartbeat.write_status(status)
        time.sleep(IDLE_S)
        self._commands.refresh()
        self._run_pending()

    @property
    def is_closed(self) -> bool:
        """Whether stdin has ended, so that no further command can come."""
        return self._commands.closed.is_set()

    def _run_pending(self) -> None:
        while self._commands.pending:
            self._run_command(self._commands.pending.popleft())
        while self._commands.rejected:
            self._emitter.mark(f"unknown command: {self._commands.rejected.popleft()}", "log")

    def _run_command(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "quit":
                self.has_ended = True
            case "pause":
                self._paused = not self._paused
            case "resume":
                self._paused = False
            case "prompt":
                self._note_answer(self._accept_prompt(str(command.get("text", ""))))
            case "mode":
                self._note_answer(self._set_mode(str(command.get("mode"))))

    def _note_answer(self, answer: str) -> None:
        if answer:
            self._emitter.mark(answer, "note")


class RunningEngine(NamedTuple):
    """What every part of an engine shares: its arguments, where it writes, and what it is told."""

    args: argparse.Namespace
    emitter: Emitter
    id: str  # of the run
    heartbeat: Heartbeat
    commands: Commands
    rank: Rank | None

    def write_meta(self, name: str, meta: dict[str, Any]) -> None:
        self.emitter.run(name, meta, id=self.id)

    def report_built(self, share: float) -> None:
        """Write the share of the weights that is built. Raise StoppedError if a signal has arrived."""
        self.commands.check_signals()
        self.heartbeat.write_progress("building weights", share)
