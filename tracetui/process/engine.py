"""An engine that runs: its command channel, its output, its helpers, and how it ended."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from capture.errors import CaptureError, EngineError
from capture.text import clean
from tracetui import rooms
from tracetui.process.commands import sampler_command, watchdog_command
from tracetui.process.output import OutputTail

PATIENCE: Final = 3.0  # seconds between asking an engine to end and ending it
LOOK_S: Final = 0.005  # between two looks whether it has
OWN: Final = re.compile(r"^(engines|tracetui): ")  # begins a line that a recorder of ours prints
GAPS: Final = re.compile(OWN.pattern + "the recording has gaps")


class Engine:
    """A program that writes a recording, with the processes beside it."""

    first_words = "starting the engine"  # what is going on while its file does not say it yet
    who = "the engine"
    patience: float = PATIENCE
    moment: float | None = None  # seconds after which another process sees to its end; None: we do

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        with_watchdog: bool = False,
        takes_orders: bool = True,
        log: Path | None = None,
    ) -> None:
        """Start the command; raise EngineError where it cannot be started.

        A watchdog ends it with this process; an engine that sees to that itself needs none. What takes no
        orders finds its standard input at its end: it never waits for a line that nobody writes. All that it
        prints is added to `log`, where given.
        """
        self._log = log
        self.command = list(command)
        self._environment = dict(environment) if environment is not None else None
        self._with_watchdog, self._takes_orders = with_watchdog, takes_orders
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._sampler: Engine | None = None
        self._sampled: Path | None = None
        self.start()

    def start(self) -> None:
        """Start it, also once more after its end: what it appends to its file is a run of its own."""
        try:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if self._takes_orders else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as e:
            raise EngineError(
                f"{clean(self.command[0])} cannot be started", why=os.strerror(e.errno or 0)
            ) from None
        assert self._child.stdout is not None  # noqa: S101
        self._output = OutputTail(self._child.stdout, self._log)
        self._asked_to_end = False
        self._leaving: list[int] | None = None  # what was asked to end beside it, once it was
        if self._with_watchdog:
            self._watchdog = _start_watchdog(self._child.pid)
        if self._sampled is not None:
            self.sample_into(self._sampled)

    def sample_later(self, out: Path) -> None:
        """Note where counters go, to be sampled from `sample` on: the sampler's start would slow others."""
        self._sampled = out

    def sample(self) -> None:
        """Start the sampler that was put off, if there is one."""
        if self._sampled is not None and self._sampler is None:
            self.sample_into(self._sampled)

    def sample_into(self, out: Path) -> None:
        """Start the process that adds CPU, memory and GPU counters to a recording, here and at each start."""
        self._sampled = out
        self._sampler = Engine(sampler_command(out, self.pid), rooms.environment(), takes_orders=False)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self.returncode is None

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self._watchdog is not None:
            self._watchdog.poll()  # its helpers end soon after it, and nobody else reaps them
        if self._sampler is not None:
            self._sampler._child.poll()
        return self._child.poll()

    def send(self, order: Mapping[str, Any]) -> bool:
        """Send one JSON line to the engine; return False where it no longer listens."""
        if self._child.stdin is None or not self.running:
            return False
        try:
            self._child.stdin.write(json.dumps(order).encode() + b"\n")
            self._child.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def ask_to_end(self) -> None:
        """Ask the engine and its helpers to end, once, and wait for nothing: `stop` does."""
        if self._leaving is not None:
            return
        self._asked_to_end = self._asked_to_end or self.running
        self._leaving = self._strays()
        if not self.send({"do": "quit"}):
            self._signal(signal.SIGTERM, self._leaving)
        if self._sampler is not None:
            self._sampler.ask_to_end()

    def stop(self, *, in_background: bool = False) -> None:
        """Ask the engine to end, then tell it, then kill all that it started; no orphan stays.

        In the background means that another process does the killing where it takes more than a moment.
        """
        self.ask_to_end()
        strays = self._leaving or []
        if self._takes_orders:
            self._wait(self.patience)
            self._signal(signal.SIGTERM, strays)
        moment = self.moment if in_background and self.moment is not None else self.patience
        if not self._wait(moment, strays) and moment < self.patience:
            _start_watchdog(self._child.pid, strays)
        else:
            self._signal(signal.SIGKILL, strays)
            self._wait(self.patience)
        self._output.wait(min(moment, 1.0) if self.moment is None else 0.05)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
        if self._sampler is not None:
            self._sampler.stop()

    def nothing_reason(self) -> str:
        """Return why nothing of it was recorded, after its end."""
        return f"{self.who} ended before its first step"

    def _strays(self) -> list[int]:
        """Return processes that belong to it but are outside of its group."""
        return []

    def last_lines(self, lines: int = 20) -> list[str]:
        """Return the last lines that the engine printed, cleaned."""
        return self._output.last_lines(lines)

    @property
    def printed(self) -> int:
        """How many bytes it has printed."""
        return self._output.read

    def failure_reason(self) -> str:
        """Return why the engine died, in a sentence; empty while it runs or when it ended as it should."""
        code = self.returncode
        if code is None or code == 0 or self._asked_to_end:
            return ""
        if code < 0:
            return f"{self.who} was ended by {_signal_name(-code)}{_suspicion(-code)}"
        last = [OWN.sub("", line) for line in self.last_lines(1)]
        return f"{self.who} ended with exit code {code}" + (f": {last[0]}" if last else "")

    def failure(self, todo: str = "") -> CaptureError:
        """Return the error to raise of an engine that has died."""
        return EngineError(self.failure_reason(), todo=todo)

    @property
    def gap_warning(self) -> str:
        """What a recorder of ours printed of gaps in its recording; empty where it has none."""
        own = (line for line in reversed(self.last_lines()) if GAPS.match(line))
        return OWN.sub("", next(own, ""))

    def _wait(self, seconds: float, others: Sequence[int] = ()) -> bool:
        """Wait for its end and that of others, at most so long; return whether all have come."""
        deadline = time.monotonic() + seconds
        while (going := self.running or any(map(_is_alive, others))) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return not going

    def _signal(self, number: signal.Signals, strays: Sequence[int] = ()) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _start_watchdog(group: int, strays: Sequence[int] | None = None) -> subprocess.Popen[bytes]:
    """Start what ends a group once this process is gone; with strays it ends both at once."""
    return subprocess.Popen(
        watchdog_command(group, strays or ()),
        stdin=subprocess.PIPE if strays is None else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=rooms.environment(),
    )


def _is_alive(pid: int) -> bool:
    """Return whether a process that is not our child has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _suspicion(number: int) -> str:
    """Return what a signal makes likely, as the end of a sentence; empty where it says nothing."""
    reasons = {signal.SIGKILL: ", probably for want of memory", signal.SIGSEGV: ", a fault in native code"}
    return next((words for likely, words in reasons.items() if likely == number), "")
