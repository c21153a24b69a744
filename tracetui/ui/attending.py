"""What keys do to an engine that runs beside the screen."""

from typing import Final

from tracetui.ui.desk import Desk
from tracetui.ui.screens.prompt import Draft

NOT_OURS: Final = "no engine of ours writes this file"


class Attending(Desk):
    """The desk of a live run."""

    def do_pause(self) -> None:
        self.paused = not self.paused
        self.tell("held; Space goes on" if self.paused else "going on")
        self.catch_up()

    def do_mode(self) -> None:
        """The engine captures in another way; where it is not ours, that cannot be asked."""
        mode = self.following.next_mode() if self.following else None
        self.tell(f"the engine is asked to capture {mode}" if mode else NOT_OURS)

    def do_restart(self) -> None:
        """A new engine in the same file: the old run stays beside it."""
        self.tell("starting anew" if self.following and self.following.restart() else NOT_OURS)

    def do_prompt(self) -> None:
        if self.following is None or not self.following.ours:
            self.tell(NOT_OURS)
        else:
            self.draft = Draft.of("prompt", "what the model shall answer; Enter sends it", "")
            self.show_bands()

    def send_prompt(self, text: str) -> None:
        if self.following is not None and text.strip():
            heard = self.following.order({"do": "prompt", "text": text.strip()})
            self.tell("sent to the engine" if heard else NOT_OURS)
