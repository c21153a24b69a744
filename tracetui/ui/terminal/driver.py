"""Textual's Linux driver, on the right stream, with fewer bytes, no mode left behind, and an asciicast."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from textual.drivers.linux_driver import LinuxDriver

from capture.errors import UsageError
from capture.files import user_dirs
from tracetui.ui.terminal.screen_diff import ScreenCache
from tracetui.ui.terminal.tty import find_screen_stream

SETTLE_S: Final = 2.0  # after a resize; until then drawings may have the old size


class CastRecorder:
    """Writes all output to a new asciicast file, for asciinema and its players."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raise UsageError if it exists or cannot be created."""
        if not user_dirs.create_private_file(path):
            raise UsageError("exists already", where=str(path), todo="choose another name for --cast")
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._began, self._size = time.monotonic(), (0, 0)

    def record_output(self, data: str, size: tuple[int, int]) -> None:
        """Record output that was sent to a terminal of this size."""
        at = round(time.monotonic() - self._began, 6)
        if self._size == (0, 0):
            head = {"version": 2, "width": size[0], "height": size[1], "timestamp": int(time.time())}
            self._write_line({**head, "env": {"TERM": os.environ.get("TERM", "")}})
        elif size != self._size:
            self._write_line([at, "r", f"{size[0]}x{size[1]}"])
        self._size = size
        self._write_line([at, "o", data])

    def close(self) -> None:
        self._file.close()

    def _write_line(self, content: object) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(json.dumps(content, ensure_ascii=False) + "\n")
        except OSError:  # a full disk must end the cast only
            with suppress(OSError):
                self._file.close()


class ScreenDriver(LinuxDriver):
    """Draws on stderr or stdout, whichever is the terminal, and asks that terminal for its size."""

    cast: ClassVar[CastRecorder | None] = None  # records all output

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        screen = find_screen_stream()  # libraries must not write to stderr meanwhile
        copy = os.dup(screen.fileno())
        self._file = open(copy, "w", encoding=screen.encoding, errors=screen.errors, closefd=False)  # noqa: SIM115
        self._screen_cache = ScreenCache()
        self._cached_size = self._get_terminal_size()  # size of the terminal that it describes
        self._untrusted_until = 0.0

    def write(self, data: str) -> None:
        size = self._get_terminal_size()
        if size != self._cached_size:
            self._cached_size = size
            self.forget_screen()
        if time.monotonic() < self._untrusted_until:
            self._screen_cache.forget()
        sent = self._screen_cache.reduce_output(data)
        super().write(sent)
        if self.cast is not None:
            self.cast.record_output(sent, size)

    def forget_screen(self) -> None:
        """Send everything for a while: drawings in flight may have the old size."""
        if self._screen_cache.forget():
            self._untrusted_until = time.monotonic() + SETTLE_S

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size of the terminal itself, because COLUMNS and LINES may be stale."""
        try:
            width, height = os.get_terminal_size(self.fileno)
        except OSError:
            return 80, 24
        return (width, height) if width and height else (80, 24)

    def _sigcont_application(self, *_: Any) -> None:
        """Restart input also after an unannounced stop, or two threads would read the keys."""
        if not self._app.is_running:
            return
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application()

    def _disable_mouse_support(self) -> None:
        super()._disable_mouse_support()
        if self._mouse_pixels:
            self.write("\x1b[?1016l")
