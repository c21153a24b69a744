"""The terminal: whether a screen is possible, how it is restored on every exit, the clipboard sequence."""

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

FATAL_SIGNALS: Final = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT),
    # sent by schedulers before a time limit; they end a program that ignores them
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF),
)
GRACE_S: Final = 1.0  # the screen has so long to close after a signal
CLIPBOARD_MOST_BYTES: Final = 100_000
MANY_COLOURS: Final = 256
# Hardware terminals, and consoles whose fonts have 256 or 512 characters: no block eighths, no arrows.
POOR_TERMINALS: Final = (
    "vt", "linux", "ansi", "pcansi", "cons", "sun", "wy", "tvi", "hp", "ibm", "adm", "dumb",
)  # fmt: skip
DUMB_TERMINALS: Final = ("", "dumb", "unknown")

# CAN ends a sequence that was cut; then every mode that the screen sets is reset.
RESTORE_SEQUENCE: Final = (
    b"\x18\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1016l\x1b[?1015l\x1b[?1006l\x1b[?1003l\x1b[?1000l"
    b"\x1b[?1004l\x1b[<u\x1b[0m\x1b[?1049l\x1b[?25h"
)


def explain_unusable() -> str | None:
    """Return why the screen cannot be shown here, or None."""
    if not _is_tty(0):
        return "standard input is not a terminal"
    if not (_is_tty(1) or _is_tty(2)):
        return "standard output is not a terminal"
    if os.environ.get("TERM", "") in DUMB_TERMINALS:
        return "this terminal cannot position text (TERM is unset or dumb)"
    return None


def find_screen_stream() -> Any:
    """Return the stream of the terminal: standard error unless that is redirected."""
    return sys.__stderr__ if _is_tty(2) else sys.__stdout__


def can_show_unicode() -> bool:
    """Whether the encoding and the font of the terminal have block characters and dashes."""
    encoding = getattr(find_screen_stream(), "encoding", None) or "ascii"
    names = os.environ.get("TERM", "").lower().split(".")  # screen.linux is GNU screen on a console
    return _is_unicode(encoding) and not any(name.startswith(POOR_TERMINALS) for name in names)


def _is_unicode(encoding: str) -> bool:
    """Whether an encoding has all characters; in a plain locale Python claims UTF-8 wrongly."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return locale not in ("C", "POSIX") and encoding.lower().replace("-", "") in ("utf8", "utf16", "utf32")


def has_many_colours() -> bool:
    """Whether the terminal has more than sixteen colours, according to terminfo; unknown ones may have."""
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return True
    try:
        import curses  # not every Python has it
    except ImportError:
        return True
    try:
        curses.setupterm(fd=2)
    except curses.error:
        return True
    return curses.tigetnum("colors") >= MANY_COLOURS


def _is_tty(fd: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(fd)
    return False


class TerminalGuard:
    """Closes the screen after a fatal signal or a hang-up, by force if it does not react.

    Signals arrive through a pipe (`set_wakeup_fd`) that a thread reads, so that a main thread that is stuck
    on a stalled terminal cannot keep the process alive.
    """

    def __init__(self, close: Callable[[int], object]) -> None:
        self.received_signal: int | None = None
        self._close = close
        self._done = threading.Event()
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "TerminalGuard":
        self._modes = termios.tcgetattr(0)
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in FATAL_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, _ignore_signal)
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
        number = self._wait_for_fatal()
        if number is None or self._done.is_set():
            return
        self.received_signal = number
        with contextlib.suppress(Exception):
            self._close(number)
        if not self._done.wait(GRACE_S):
            restore_by_force(self._modes)
            os._exit(128 + number)

    def _wait_for_fatal(self) -> int | None:
        """Return the next fatal signal, SIGHUP for a hang-up, or None at the end of the guard."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.register(0, 0)  # hang-ups are always reported
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


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing; without a Python handler, the signal would not be written to the pipe."""


def restore_by_force(modes: list[Any]) -> None:
    """Restore the terminal without waiting for it; unsent output is dropped."""
    with contextlib.suppress(OSError, termios.error):
        termios.tcflush(0, termios.TCOFLUSH)
    with contextlib.suppress(OSError):
        # A new descriptor: O_NONBLOCK on the shared one would affect the shell.
        tty = os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.write(tty, RESTORE_SEQUENCE)
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetattr(0, termios.TCSANOW, modes)


def build_clipboard_sequence(text: str) -> str | None:
    """Return the sequence that sets the clipboard of the terminal; None if the text is too long."""
    raw = text.encode()
    if len(raw) > CLIPBOARD_MOST_BYTES:
        return None
    plain = f"\x1b]52;c;{base64.b64encode(raw).decode()}\x07"
    if os.environ.get("TMUX"):
        return "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if os.environ.get("TERM", "").startswith("screen"):
        return "\x1bP" + plain + "\x1b\\"
    return plain
