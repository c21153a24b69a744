"""What keys do to an engine that runs beside the screen."""

import asyncio
import shlex
from typing import Final

from capture.errors import EngineError
from tracetui import process
from tracetui.process import Bundled, Engine
from tracetui.ui.desk import Desk
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.workers.follow import Following

NOT_OURS: Final = "no engine of ours writes this file"
NOT_BUNDLED: Final = "only the engine that comes with tracetui takes other options; R starts this one anew"


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
        if self.following is None or self.following.engine is None:
            self.tell(NOT_OURS)
        else:
            self._replace_engine(self.following, self.following.engine)

    def do_engine(self) -> None:
        """The arguments of the engine, to be changed; the old run stays beside the new one."""
        engine = self.following.engine if self.following else None
        if isinstance(engine, Bundled):
            self._edit_arguments(shlex.join(engine.arguments))
        else:
            self.tell(NOT_BUNDLED if engine else NOT_OURS)

    def _edit_arguments(self, text: str) -> None:
        self.draft = Draft.of("engine", "options of the engine; Enter starts it anew with them", text)
        self.show_bands()
        self.run_worker(self._show_offered(), group="offered", exclusive=True)

    async def _show_offered(self) -> None:
        """What may be asked, in place of the view while the line is open."""
        offered = await asyncio.to_thread(process.offered)
        if self.draft is not None and self.draft.purpose == "engine" and offered:
            self.show_options(offered)

    def send_arguments(self, text: str) -> None:
        """Asked of the engine's own door first: the old engine goes on where they are refused."""
        engine = self.following.engine if self.following else None
        if isinstance(engine, Bundled):
            self.tell("asking the engine …")
            self.run_worker(self._switch(engine, text), group="engine", exclusive=True)

    async def _switch(self, engine: Bundled, text: str) -> None:
        try:
            arguments = shlex.split(text)
            refused = await asyncio.to_thread(process.refusal, arguments)
        except ValueError as e:
            refused = str(e).lower()
        if refused:
            self._edit_arguments(text)
            self.tell(refused)
        elif self.following is not None:
            engine.take(arguments)
            self._replace_engine(self.following, engine)

    def _replace_engine(self, following: Following, engine: Engine) -> None:
        self.tell("the engine is asked to end …" if engine.running else "starting anew")
        self.run_worker(self._start_anew(following, engine), group="engine", exclusive=True)

    async def _start_anew(self, following: Following, engine: Engine) -> None:
        """An engine may take seconds to end. The next one is a child of this thread: it ends with it."""
        await asyncio.to_thread(engine.stop)
        try:
            following.start_anew()
        except EngineError as e:
            self.tell(str(e))
        else:
            self.start_over()

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
