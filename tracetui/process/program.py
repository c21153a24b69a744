"""A program that runs as it would alone: in the foreground, with streams, terminal and signals of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Final

from capture.errors import EngineError
from capture.text import clean

PASSED_ON: Final = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT")
FROM_TERMINAL: Final = ("SIGINT", "SIGQUIT")  # that a terminal sends to all of its foreground, so also to it


class Program:
    """A program beside us, as a shell would start it; from then on signals to us are passed on to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; raise EngineError where that cannot be done."""
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals that came before it was there
        self._before = self._pass_signals_on()
        try:
            self._child = subprocess.Popen(command, env=dict(environment))
        except OSError as e:
            self._take_signals_back()
            why = os.strerror(e.errno or 0)
            raise EngineError(f"{clean(command[0])} cannot be started", why=why) from None
        for number in self._early:
            self._child.send_signal(number)

    @property
    def pid(self) -> int:
        assert self._child is not None  # noqa: S101
        return self._child.pid

    def wait(self, every: float, meanwhile: Callable[[], None]) -> int:
        """Return its exit code once it has ended, as a shell has it; `meanwhile` is done now and then."""
        assert self._child is not None  # noqa: S101
        try:
            while True:
                try:
                    code = self._child.wait(every)
                except subprocess.TimeoutExpired:
                    meanwhile()
                else:
                    return 128 - code if code < 0 else code
        finally:
            self._take_signals_back()

    def _pass_signals_on(self) -> dict[int, Any]:
        """Pass signals on from now on; return what was done with each before."""
        numbers = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
        before = {number: signal.getsignal(number) for number in numbers}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:  # what we were started without, it was too
                signal.signal(number, self._pass_on)
        return before

    def _take_signals_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if signal.Signals(number).name in FROM_TERMINAL and _is_in_foreground():
            return
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)


def _is_in_foreground() -> bool:
    """Return whether a terminal sends its signals to our group, and with it to the program."""
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None and stream.isatty():
                return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            continue
    return False
