"""The terminal: whether it can be used, how it is given back on every way out, what is sent to it."""

import base64
import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

FATAL: Final = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT),
    # what schedulers send before a time limit, and what ends a program that takes no notice
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF),
)
GRACE: Final = 1.0  # seconds that the screen has to close by itself after a signal
CLIPBOARD_LIMIT: Final = 100_000
MANY: Final = 256  # colours
# Terminals of hardware, and consoles with fonts of 256 or 512 characters: no eighths of blocks, no arrows.
POOR: Final = ("vt", "linux", "ansi", "pcansi", "cons", "sun", "wy", "tvi", "hp", "ibm", "adm", "dumb")
DUMB: Final = ("", "dumb", "unknown")

# CAN ends a sequence that was cut in its middle; then every mode that the screen sets, off.
RESTORE: Final = (
    b"\x18\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1016l\x1b[?1015l\x1b[?1006l\x1b[?1003l\x1b[?1000l"
    b"\x1b[?1004l\x1b[<u\x1b[0m\x1b[?1049l\x1b[?25h"
)


def unusable() -> str | None:
    """Return why no screen can be shown here; None where one can."""
    if not _is_tty(0):
        return "standard input is no terminal"
    if not (_is_tty(1) or _is_tty(2)):
        return "standard output is no terminal"
    if os.environ.get("TERM", "") in DUMB:
        return "this terminal cannot place text (TERM is unset or dumb)"
    return None


def screen_file() -> Any:
    """Return the stream that reaches the terminal: standard error, unless that is redirected."""
    return sys.__stderr__ if _is_tty(2) else sys.__stdout__


def speaks_unicode() -> bool:
    """Return whether block characters and dashes survive the way to the terminal, and are in its font."""
    encoding = getattr(screen_file(), "encoding", None) or "ascii"
    names = os.environ.get("TERM", "").lower().split(".")  # screen.linux: in screen, on a console
    return _is_unicode(encoding) and not any(name.startswith(POOR) for name in names)


def _is_unicode(encoding: str) -> bool:
    """Return whether an encoding has all characters; not in a plain locale, which Python overrules."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return locale not in ("C", "POSIX") and encoding.lower().replace("-", "") in ("utf8", "utf16", "utf32")


def has_many_colours() -> bool:
    """Return whether the terminal has more than the sixteen colours that a person gave it, as terminfo says;
    one that is not known there may have them.
    """
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return True
    try:
        import curses  # which not every Python has
    except ImportError:
        return True
    try:
        curses.setupterm(fd=2)
    except curses.error:
        return True
    return curses.tigetnum("colors") >= MANY


def _is_tty(fd: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(fd)
    return False


class Guard:
    """While the screen is up: a signal or a lost line closes it, by force when it hangs.

    The kernel's handler writes each signal to a pipe that a thread reads, so that a main thread that is
    stuck on a stalled terminal cannot keep the process alive.
    """

    def __init__(self, close: Callable[[int], object]) -> None:
        self.received: int | None = None
        self._close = close
        self._done = threading.Event()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Guard":
        self._modes = termios.tcgetattr(0)
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in FATAL:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, _noted)
        threading.Thread(target=self._watch, name="terminal-guard", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._done.set()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._write)

    def _watch(self) -> None:
        number = self._next_fatal()
        if number is None or self._done.is_set():
            return
        self.received = number
        with contextlib.suppress(Exception):
            self._close(number)
        if not self._done.wait(GRACE):
            force_restore(self._modes)
            os._exit(128 + number)

    def _next_fatal(self) -> int | None:
        """Return the next signal that ends the program, or a hang-up; None once the guard is over."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.register(0, 0)  # hang-ups are reported without being asked for
        while True:
            for fd, event in poll.poll():
                if fd == 0 and event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                    return int(signal.SIGHUP)
                if fd == self._read:
                    numbers = os.read(self._read, 64)
                    if not numbers:
                        return None
                    fatal = [n for n in numbers if n in self._previous]
                    if fatal:
                        return fatal[0]


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: a handler must stand for the kernel to report the signal, the thread does the work."""


def force_restore(modes: list[Any]) -> None:
    """Give the terminal back without waiting for it: what is not yet sent is dropped."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(0, termios.TCOFLUSH)
    with contextlib.suppress(OSError):
        # A descriptor of our own: O_NONBLOCK on the shared one would reach the shell.
        tty = os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.write(tty, RESTORE)
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(0, termios.TCSANOW, modes)


def clipboard(text: str) -> str | None:
    """Return the sequence that hands text to the terminal's clipboard; None where it is too long."""
    raw = text.encode()
    if len(raw) > CLIPBOARD_LIMIT:
        return None
    plain = f"\x1b]52;c;{base64.b64encode(raw).decode()}\x07"
    if os.environ.get("TMUX"):
        return "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if os.environ.get("TERM", "").startswith("screen"):
        return "\x1bP" + plain + "\x1b\\"
    return plain
