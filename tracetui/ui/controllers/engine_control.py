"""Control the engine that writes the followed file: mode, prompts, options, restart, output."""

import asyncio
import shlex
from typing import Final

from capture.errors import EngineError
from tracetui import process
from tracetui.process import BundledEngine
from tracetui.ui.controllers.base import Controller, ScreenParts
from tracetui.ui.controllers.input_line import InputActions
from tracetui.ui.pages import Page, ViewPage
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.ui.pages.text_pages import LoadingPage, OptionsPage, OutputPage, RefusedPage
from tracetui.ui.workers.follow_file import FileFollower

NOT_OURS: Final = "this file is not written by an engine of tracetui"
NOT_BUNDLED: Final = "only the bundled engine has options; R restarts this one"
NO_PROMPT: Final = "a training run accepts no prompt"
NO_MODE: Final = "on a CPU every op is recorded in every step: there is no other mode"
SHORT_MESSAGE_S: Final = 1.5  # of a message whose effect is visible at once


class EngineControl(Controller):
    """Sends orders to the engine, and restarts it."""

    def __init__(self, parts: ScreenParts) -> None:
        super().__init__(parts)
        self._page_before: Page = self._workspace.page  # shown again after the options

    def switch_mode(self) -> None:
        """Ask the engine for the next capture mode."""
        live, lenses = self._workspace.live, self._workspace.session.info.lenses
        if live is not None and isinstance(live.engine, BundledEngine) and lenses and "gpu" not in lenses:
            self._renderer.show_message(NO_MODE)
            return
        mode = live.request_next_mode() if live else None
        self._renderer.show_message(f"capture mode requested: {mode}" if mode else NOT_OURS)

    def open_prompt(self) -> None:
        """Ask for a prompt for the model."""
        live = self._workspace.live
        if live is None or not live.is_listening:
            self._renderer.show_message(NOT_OURS)
        elif "backward" in self._workspace.session.info.phases:
            self._renderer.show_message(NO_PROMPT)
        else:
            draft = InputDraft.from_text("prompt", "prompt for the model; Enter sends it", "")
            self._input.open(draft, InputActions(self._send_prompt))

    def _send_prompt(self, text: str) -> None:
        live, text = self._workspace.live, text.strip()
        if live is not None and text:
            is_sent = live.send_order({"do": "prompt", "text": text})
            self._renderer.show_message(f"sent: {text}" if is_sent else NOT_OURS, SHORT_MESSAGE_S)

    def toggle_output(self) -> None:
        """Show the last output of the engine, or go back to the page before."""
        live, page = self._workspace.live, self._workspace.page
        if isinstance(page, OutputPage):
            self.show_page(page.before or ViewPage())
        elif live is None or live.engine is None:
            self._renderer.show_message(NOT_OURS)
        else:
            before = page if isinstance(page, LoadingPage | RefusedPage) else None
            self.show_page(OutputPage(live.engine, before))
            self._renderer.show_output(from_start=True)

    # options

    def open_arguments(self) -> None:
        """Ask for other arguments for the engine."""
        engine = self._workspace.live.engine if self._workspace.live else None
        if isinstance(engine, BundledEngine):
            self._open_editor(shlex.join(engine.arguments))
        else:
            self._renderer.show_message(NOT_BUNDLED if engine else NOT_OURS)

    def _open_editor(self, text: str, refused: str = "") -> None:
        """Open the input line without a hint: the page explains Enter, and arguments need the width."""
        actions = InputActions(self._apply_arguments, lambda _: self._close_options())
        self._input.open(InputDraft.from_text("engine", "", text), actions)
        self._parts.run_async(self._show_options(refused), group="options")

    async def _show_options(self, refused: str) -> None:
        """Show the options of the engine, and why the last arguments were refused, while the line is open."""
        options = await asyncio.to_thread(process.list_options)
        draft, page = self._input.draft, self._workspace.page
        if draft is not None and draft.purpose == "engine" and options:
            self._page_before = page if not isinstance(page, OptionsPage) else self._page_before
            self.show_page(OptionsPage(tuple(options), refused))

    def _close_options(self) -> None:
        if isinstance(self._workspace.page, OptionsPage):
            self.show_page(self._page_before)

    def _apply_arguments(self, text: str) -> None:
        """Check the arguments with the engine first; if they are refused, the old engine continues."""
        self._close_options()
        live = self._workspace.live
        if live is not None and isinstance(live.engine, BundledEngine):
            self._renderer.show_message("checking the options …")
            self._parts.run_async(self._restart_with(live, live.engine, text), group="engine")

    async def _restart_with(self, live: FileFollower, engine: BundledEngine, text: str) -> None:
        try:
            arguments = shlex.split(text)
            refused = await asyncio.to_thread(process.explain_refusal, arguments)
        except ValueError as e:
            refused = str(e).lower()
        if refused:
            self._open_editor(text, refused)
            self._renderer.show_message(refused)
        else:
            engine.set_arguments(arguments)
            self._restart(live)

    # restart

    def restart(self) -> None:
        """Restart the engine; the new run is appended to the same file."""
        live = self._workspace.live
        if live is None or live.engine is None:
            self._renderer.show_message(NOT_OURS)
        else:
            self._restart(live)

    def _restart(self, live: FileFollower) -> None:
        self._renderer.show_message("stopping the engine …" if live.is_listening else "starting the engine")
        self._parts.run_async(self._run_restart(live), group="engine")

    async def _run_restart(self, live: FileFollower) -> None:
        """Stop the engine, which may take seconds, and start the next one.

        This thread must start it: the engine ends with the thread that started it.
        """
        if live.engine is not None:
            await asyncio.to_thread(live.engine.stop)
        try:
            live.restart()
        except EngineError as e:
            self._renderer.show_message(str(e))
            return
        self._renderer.show_message("engine restarted")
        self._show_newest_run()
        if not self._workspace.session.runs:
            self._workspace.exit_code = 0
            self.show_page(LoadingPage(self._workspace.feed))

    def _show_newest_run(self) -> None:
        """Switch to the last run, so that the new one will be displayed."""
        session = self._workspace.session
        last = len(session.runs) - 1
        if session.current < last:
            self._workspace.session = session.with_run(last)
            if self._workspace.is_showing_view:
                self.show_page(ViewPage())
