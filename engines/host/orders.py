"""What an engine does with what it is told between two steps: hold, go on, end, capture otherwise, answer."""

import time
from collections.abc import Callable
from typing import Any, Final

from capture.native.emit import Emitter
from engines.host.commands import Commands
from engines.host.heartbeat import Pulse

IDLE_S: Final = 0.02


class Orders:
    """Obeys the commands that have come; what they mean to a prompt or to the capture, the engine says."""

    def __init__(
        self, commands: Commands, emitter: Emitter, pulse: Pulse,
        mode: Callable[[str], str], prompt: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._commands, self._emitter, self._pulse = commands, emitter, pulse
        self._mode, self._prompt = mode, prompt
        self._paused = False
        self.ended = False

    def refuse_prompts(self, why: str) -> None:
        """From now on a prompt is answered with a sentence."""
        self._prompt = lambda _: why

    def heed(self) -> bool:
        """Does what was asked for; true when the time that it took belongs to no step."""
        self._commands.refresh()
        if not self._commands.waiting and not self._commands.refused:
            return False
        self._obey()
        while self._paused and not self.ended:
            self.idle("paused")
        return True

    def idle(self, why: str) -> None:
        """A short rest, and what was asked for meanwhile."""
        if self._pulse.doing != why:
            self._pulse.status(why)
        time.sleep(IDLE_S)
        self._commands.refresh()
        self._obey()

    @property
    def closed(self) -> bool:
        """Whether nobody is left who could ask for anything."""
        return self._commands.closed.is_set()

    def _obey(self) -> None:
        while self._commands.waiting:
            self._do(self._commands.waiting.popleft())
        while self._commands.refused:
            self._emitter.mark(f"no such command: {self._commands.refused.popleft()}", "log")

    def _do(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "quit":
                self.ended = True
            case "pause":
                self._paused = not self._paused
            case "resume":
                self._paused = False
            case "prompt":
                self._note(self._prompt(str(command.get("text", ""))))
            case "mode":
                self._note(self._mode(str(command.get("mode"))))

    def _note(self, answer: str) -> None:
        if answer:
            self._emitter.mark(answer, "note")
