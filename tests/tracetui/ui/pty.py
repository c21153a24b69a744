"""The program on a real pseudo-terminal: every byte it sends is kept, and a screen is made of them."""

import contextlib
import os
import re
import signal
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pyte

ROOT = Path(__file__).parents[3]
MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
START = 15.0


def _default_signals() -> None:
    """A suite under nohup or in the background ignores signals; the program shall not inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """One run of the program."""

    def __init__(
        self,
        *argv: str,
        size: tuple[int, int] = (80, 24),
        env: dict[str, str] | None = None,
        argv0: tuple[str, ...] = ("-m", "tracetui"),
        root: Path = ROOT,
    ) -> None:
        columns, rows = size
        base = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM", "TMUX")}
        self.sent = b""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.child = pexpect.spawn(
            sys.executable,
            [*argv0, *argv],
            cwd=str(root),
            env={**base, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})},
            dimensions=(rows, columns),
            timeout=START,
            preexec_fn=_default_signals,
        )
        self.child.delaybeforesend = None
        self.modes_before: list[Any] = termios.tcgetattr(self.child.child_fd)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, pexpect.ExceptionPexpect):
            self.child.close(force=True)

    def read(self, seconds: float = 0.05) -> bytes:
        """What has come by now."""
        try:
            got = self.child.read_nonblocking(1 << 16, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return b""
        self.sent += got
        self._stream.feed(got)
        return bytes(got)

    def wait(self, holds: Callable[[str], bool], seconds: float = START) -> str:
        """Until the screen looks as it should."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()
            if holds(self.text):
                return self.text
        raise AssertionError(f"the screen never came:\n{self.text}")

    def quiet(self, seconds: float = 0.3) -> bytes:
        """All that comes until nothing has come for so long."""
        got = b""
        while more := self.read(seconds):
            got += more
        return got

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def wiped(self) -> None:
        """Clears the screen behind the program's back, as another one that writes on it may."""
        self._screen.erase_in_display(2)

    def keys(self, text: str) -> None:
        self.child.send(text)

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(max(1, rows), max(1, columns))
        self.child.setwinsize(rows, columns)

    def end(self, seconds: float = 5.0) -> int:
        """The exit status, 128 + n for a signal; all bytes are read first."""
        end = time.monotonic() + seconds
        while self.child.isalive():
            assert time.monotonic() < end, f"it does not end:\n{self.text}"
            self.read()
        while self.read():
            pass
        status = self.child.exitstatus
        return int(status if status is not None else 128 + self.child.signalstatus)

    def modes_left_on(self) -> set[str]:
        """Private modes that stand otherwise than a terminal begins."""
        on = {"7", "25"}
        now = set(on)
        for numbers, what in MODE.findall(self.sent):
            for number in numbers.decode().split(";"):
                (now.add if what == b"h" else now.discard)(number)
        return now ^ on
