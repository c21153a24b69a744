"""Textual's Linux driver with more manners: its stream, its size, fewer bytes, no mode left behind."""

import os
import time
from typing import Any, ClassVar, Final

from textual.drivers.linux_driver import LinuxDriver

from tracetui.ui.terminal.cast import Cast
from tracetui.ui.terminal.seen import Seen
from tracetui.ui.terminal.tty import screen_file

SETTLING: Final = 2.0  # seconds after a change of size until all that is drawn is of the new one


class Driver(LinuxDriver):
    """Draws on whichever of stderr and stdout is the terminal, and asks that terminal for its size."""

    cast: ClassVar[Cast | None] = None  # that takes down what is sent

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        screen = screen_file()  # of which standard error is kept from libraries meanwhile
        own = os.dup(screen.fileno())
        self._file = open(own, "w", encoding=screen.encoding, errors=screen.errors, closefd=False)  # noqa: SIM115
        self._seen = Seen()
        self._seen_in = self._get_terminal_size()  # of a terminal of this size
        self._doubted_until = 0.0

    def write(self, data: str) -> None:
        size = self._get_terminal_size()
        if size != self._seen_in:
            self._seen_in = size
            self.forget_screen()
        if time.monotonic() < self._doubted_until:
            self._seen.forget()
        sent = self._seen.lessened(data)
        super().write(sent)
        if self.cast is not None:
            self.cast.wrote(sent, size)

    def forget_screen(self) -> None:
        """Rely for a while on nothing that the terminal shows: what is drawn may be of another size yet."""
        if self._seen.forget():
            self._doubted_until = time.monotonic() + SETTLING

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size of the terminal itself: COLUMNS and LINES may be stale."""
        try:
            width, height = os.get_terminal_size(self.fileno)
        except OSError:
            return 80, 24
        return (width, height) if width and height else (80, 24)

    def _sigcont_application(self, *_: Any) -> None:
        """Begin anew, also after an unannounced stop: else two threads would wait for the same keys."""
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
