"""Run a program as a shell would: in the foreground, with our streams, our terminal and our signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Final

from capture.clean_text import clean
from capture.errors import EngineError

FORWARDED_SIGNALS: Final = (
    "SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT",
)  # fmt: skip
TERMINAL_SIGNALS: Final = ("SIGINT", "SIGQUIT")  # a terminal sends these to its whole foreground group


class ForegroundProgram:
    """A program in the foreground; signals that we receive are forwarded to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it. Raise EngineError if that fails."""
        self._child: subprocess.Popen[bytes] | None = None
        self._early_signals: list[int] = []  # received before the child existed
        self._old_handlers = self._forward_signals()
        try:
            self._child = subprocess.Popen(command, env=dict(environment))
        except OSError as e:
            self._restore_signals()
            why = os.strerror(e.errno or 0)
            raise EngineError(f"{clean(command[0])} cannot be started", why=why) from None
        for number in self._early_signals:
            self._child.send_signal(number)

    @property
    def pid(self) -> int:
        assert self._child is not None  # noqa: S101
        return self._child.pid

    def wait(self, interval_s: float, poll: Callable[[], None]) -> int:
        """Wait for its end, calling `poll` at an interval; return its exit code as a shell reports it."""
        assert self._child is not None  # noqa: S101
        try:
            while True:
                try:
                    code = self._child.wait(interval_s)
                except subprocess.TimeoutExpired:
                    poll()
                else:
                    return 128 - code if code < 0 else code
        finally:
            self._restore_signals()

    def _forward_signals(self) -> dict[int, Any]:
        """Forward signals to the child from now on; return the handlers before."""
        numbers = [getattr(signal, name) for name in FORWARDED_SIGNALS if hasattr(signal, name)]
        handlers = {number: signal.getsignal(number) for number in numbers}
        for number, handler in handlers.items():
            # the child inherits what we ignore, but polars has taken SIGINT over without a look
            is_ignored = handler is signal.SIG_IGN
            signal.signal(number, signal.SIG_IGN if is_ignored else self._forward_signal)
        return handlers

    def _restore_signals(self) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _forward_signal(self, number: int, _: FrameType | None) -> None:
        if signal.Signals(number).name in TERMINAL_SIGNALS and _is_in_foreground():
            return
        if self._child is None:
            self._early_signals.append(number)
        else:
            self._child.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether the terminal sends its signals to our process group, and so to the program."""
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and stream.isatty():
                return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            continue
    return False
