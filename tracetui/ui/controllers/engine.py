"""What keys do to an engine that runs beside the screen."""

import asyncio
import shlex
from collections.abc import Callable
from typing import Final

from capture.errors import EngineError
from tracetui import process
from tracetui.process import Bundled
from tracetui.ui.controllers.input import Entry, InputLine, RunAsync
from tracetui.ui.pages.page import Page, ViewPage
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.pages.texts import LoadingPage, OptionsPage, OutputPage, RefusedPage
from tracetui.ui.renderer import Renderer
from tracetui.ui.workers.feed import LiveFeed
from tracetui.ui.workspace import Workspace

NOT_OURS: Final = "no engine of ours writes this file"
NOT_BUNDLED: Final = "only the engine that comes with tracetui takes other options; R starts this one anew"
NO_PROMPT: Final = "what is being trained takes no prompt"
NO_MODE: Final = "on a processor every op is a row in every step: there is nothing to choose"
SHORTLY: Final = 1.5  # seconds that a sentence stays where what it speaks of comes next


class EngineControl:
    """Sends orders to the engine, and starts it anew."""

    def __init__(
        self,
        workspace: Workspace,
        renderer: Renderer,
        input_line: InputLine,
        run: RunAsync,
        show_page: Callable[[Page], None],
    ) -> None:
        self._workspace, self._renderer, self._input = workspace, renderer, input_line
        self._run, self._show_page = run, show_page
        self._before: Page = workspace.page  # what the options stand in place of

    def next_mode(self) -> None:
        """Have the engine capture in another way."""
        live = self._workspace.live
        if live is not None and isinstance(live.engine, Bundled) and self._sees_every_op():
            self._renderer.tell(NO_MODE)
            return
        mode = live.next_mode() if live else None
        self._renderer.tell(f"the engine is asked to capture {mode}" if mode else NOT_OURS)

    def _sees_every_op(self) -> bool:
        """Return whether the run in sight is timed by the clock of the processor alone."""
        lenses = self._workspace.session.info.lenses
        return bool(lenses) and "gpu" not in lenses

    def open_prompt(self) -> None:
        """Ask for the text that the model shall answer."""
        live = self._workspace.live
        if live is None or not live.listens:
            self._renderer.tell(NOT_OURS)
        elif "backward" in self._workspace.session.info.phases:
            self._renderer.tell(NO_PROMPT)
        else:
            draft = Draft.of("prompt", "what the model shall answer; Enter sends it", "")
            self._input.open(draft, Entry(self._send_prompt))

    def _send_prompt(self, text: str) -> None:
        live = self._workspace.live
        if live is not None and text.strip():
            taken = live.order({"do": "prompt", "text": text.strip()})
            self._renderer.tell(f"sent: {text.strip()}" if taken else NOT_OURS, SHORTLY)

    def toggle_output(self) -> None:
        """Show the end of what the engine prints, or what stood there before."""
        live, page = self._workspace.live, self._workspace.page
        if isinstance(page, OutputPage):
            self._show_page(page.before or ViewPage())
        elif live is None or live.engine is None:
            self._renderer.tell(NOT_OURS)
        else:
            before = page if isinstance(page, LoadingPage | RefusedPage) else None
            self._show_page(OutputPage(live.engine, before))
            self._renderer.show_output(from_start=True)

    # starting anew

    def restart(self) -> None:
        """Start the engine again, into the same file: the old run stays beside the new one."""
        live = self._workspace.live
        if live is None or live.engine is None:
            self._renderer.tell(NOT_OURS)
        else:
            self._replace(live)

    def open_arguments(self) -> None:
        """Ask for other arguments of the engine."""
        engine = self._workspace.live.engine if self._workspace.live else None
        if isinstance(engine, Bundled):
            self._edit(shlex.join(engine.arguments))
        else:
            self._renderer.tell(NOT_BUNDLED if engine else NOT_OURS)

    def _edit(self, text: str, refused: str = "") -> None:
        """Open the line, which has all of the width for the arguments: what Enter does stands on the page."""
        self._input.open(Draft.of("engine", "", text), Entry(self._take, lambda _: self._leave_options()))
        self._run(self._show_options(refused), "options")

    async def _show_options(self, refused: str) -> None:
        """Show in place of the view what may be asked, and why it was refused, while the line is open."""
        offered = await asyncio.to_thread(process.list_options)
        draft, page = self._input.draft, self._workspace.page
        if draft is not None and draft.purpose == "engine" and offered:
            self._before = page if not isinstance(page, OptionsPage) else self._before
            self._show_page(OptionsPage(tuple(offered), refused))

    def _leave_options(self) -> None:
        if isinstance(self._workspace.page, OptionsPage):
            self._show_page(self._before)

    def _take(self, text: str) -> None:
        """Ask the engine's own door first: the old engine goes on where the arguments are refused."""
        self._leave_options()
        live = self._workspace.live
        if live is not None and isinstance(live.engine, Bundled):
            self._renderer.tell("asking the engine …")
            self._run(self._switch(live, live.engine, text), "engine")

    async def _switch(self, live: LiveFeed, engine: Bundled, text: str) -> None:
        try:
            arguments = shlex.split(text)
            refused = await asyncio.to_thread(process.refusal_reason, arguments)
        except ValueError as e:
            refused = str(e).lower()
        if refused:
            self._edit(text, refused)
            self._renderer.tell(refused)
        else:
            engine.set_arguments(arguments)
            self._replace(live)

    def _replace(self, live: LiveFeed) -> None:
        self._renderer.tell("the engine is asked to end …" if live.listens else "starting anew")
        self._run(self._start_anew(live), "engine")

    async def _start_anew(self, live: LiveFeed) -> None:
        """Stop the engine, which may take seconds, and start the next one.

        It is started by this thread, since it ends with the thread that started it.
        """
        if live.engine is not None:
            await asyncio.to_thread(live.engine.stop)
        try:
            live.start_anew()
        except EngineError as e:
            self._renderer.tell(str(e))
            return
        self._renderer.tell("started anew")
        self._look_at_newest()
        if not self._workspace.session.runs:
            self._workspace.exit_code = 0
            self._show_page(LoadingPage(self._workspace.feed))

    def _look_at_newest(self) -> None:
        """Look at the last run, so that the one that begins comes into sight."""
        session = self._workspace.session
        last = len(session.runs) - 1
        if session.current < last:
            self._workspace.session = session.on_run(last)
            if self._workspace.shows_view:
                self._show_page(ViewPage())
