"""Takes keys in their order: for the input line while it is open, else for the command of the key table."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from tracetui.ui.controllers.input import InputLine
from tracetui.ui.keys import ELSEWHERE, OPENING_THE_LINE

PATIENCE: Final = 1.0  # seconds that keys wait for an answer before one that leads elsewhere passes them


class Press(Struct, frozen=True):
    """A key, or a text that was pasted."""

    key: str
    text: str | None
    at: float = field(default_factory=time.monotonic)

    @property
    def pasted(self) -> bool:
        return not self.key


class Keyboard:
    """Runs the command of each key.

    A command for which the time has not come waits, and the keys behind it wait with it: keys typed ahead do
    the same as keys typed one by one. A key that leads elsewhere passes keys that have waited for long.
    """

    def __init__(
        self,
        commands: Mapping[str, Callable[[], object]],
        names: Mapping[str, str],
        input_line: InputLine,
        has_to_wait: Callable[[str], bool],
        paste: Callable[[str], None],
    ) -> None:
        self.commands = commands
        self._input, self._wait_for, self._paste = input_line, has_to_wait, paste
        self._names = names  # the command of each key
        self._waiting: deque[Press] = deque()

    @property
    def idle(self) -> bool:
        """Whether no key waits."""
        return not self._waiting

    def press(self, key: str, character: str | None) -> None:
        """Take a key that was typed."""
        self._take(Press(key, character))

    def paste(self, text: str) -> None:
        """Take a text that was pasted."""
        self._take(Press("", text))

    def run(self, name: str) -> None:
        """Run a command by its name, as if its key were pressed now."""
        self.commands[name]()

    def drain(self) -> None:
        """Run what waited, as far as it need not wait any longer."""
        while self._waiting and not self._has_to_wait(self._waiting[0]):
            self._run(self._waiting.popleft())

    def lose_patience(self) -> None:
        """Let a key that leads elsewhere pass keys that have waited for too long; they are forgotten."""
        if not self._waiting or time.monotonic() < self._waiting[0].at + PATIENCE:
            return
        for place, name in enumerate(self._names.get(press.key) for press in self._waiting):
            if name in OPENING_THE_LINE:
                return  # what follows may be text
            if name in ELSEWHERE:
                for _ in range(place):
                    self._waiting.popleft()
                self.drain()
                return

    def _take(self, press: Press) -> None:
        if self._names.get(press.key) == "quit" and not self._may_be_text():
            self._waiting.clear()
        self._waiting.append(press)
        self.lose_patience()
        self.drain()

    def _may_be_text(self) -> bool:
        """Return whether a key that is pressed now goes to the input line."""
        opens = any(self._names.get(press.key) in OPENING_THE_LINE for press in self._waiting)
        return self._input.is_open or opens

    def _has_to_wait(self, press: Press) -> bool:
        name = self._names.get(press.key)
        return name is not None and not self._input.is_open and self._wait_for(name)

    def _run(self, press: Press) -> None:
        if press.pasted:
            self._paste(press.text or "")
        elif self._input.is_open:
            self._input.press(press.key, press.text)
        elif press.key in self._names:
            self.run(self._names[press.key])
