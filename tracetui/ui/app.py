"""The Textual app: builds the workspace, the renderer and the controllers, and passes events on to them."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from textual import events, on
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import Command, CommandInput, CommandList, CommandPalette
from textual.markup import escape
from textual.screen import Screen
from textual.widgets import Input

from capture.errors import UsageError
from tracetui import process_tuning, units
from tracetui.ui import key_table, messages
from tracetui.ui.answer_updates import AnswerUpdater, NewestTaskPool
from tracetui.ui.controllers.base import ScreenParts
from tracetui.ui.controllers.input_line import InputLine
from tracetui.ui.keyboard import Controllers, Keyboard
from tracetui.ui.main_screen import MainScreen
from tracetui.ui.renderer import Renderer
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.terminal import theme, tty
from tracetui.ui.terminal.driver import CastRecorder, ScreenDriver
from tracetui.ui.terminal.paint import Painter
from tracetui.ui.tour import Tour
from tracetui.ui.workers.feed import Feed
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.ui.workers.read_files import FileReader
from tracetui.ui.workspace import ALWAYS_SHOWN_TABS, Workspace

__all__ = ["Explorer", "ScreenOptions", "run"]

PROGRESS_INTERVAL_S: Final = 0.25  # interval of redraws while files are read
PALETTE_LIST_KEYS: Final = ("enter", "down", "up", "pagedown", "pageup")
PALETTE_PATIENCE_S: Final = 3.0  # views take 1 s to load on a busy machine, and only then have entries
PALETTE_PAUSE_S: Final = 0.02  # between looks at a palette whose list is not complete
_NO_KEY: Final = "\N{NO-BREAK SPACE}"  # of an entry of the palette; sorts behind every key
_WEB_FONTS: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # with URLs that a viewer would load


def export_svg(app: App[Any]) -> str:
    """Return the screen as SVG that loads nothing; every viewer has a monospaced font."""
    return _WEB_FONTS.sub("", app.export_screenshot(title="tracetui"), count=2)


def build_palette_entry(keys: str, text: str, run: Callable[[], object]) -> SystemCommand:
    """Build one line of the palette; Textual reads titles as markup, and a column may have any name."""
    return SystemCommand(escape(f"{keys:9} {text}"), "", run)


class Palette(CommandPalette):
    """Textual's palette, without three faults: it closed twice, paged a list that had no layout yet, and lost
    or misread what was typed before its list was there: Enter chose from the list of fewer letters.
    """

    def __init__(self, can_offer_all: Callable[[], bool]) -> None:
        """`can_offer_all` says whether all commands are known: those of views, and of the answer in view."""
        super().__init__()
        self._can_offer_all, self._offers_all = can_offer_all, can_offer_all()
        self.typed: deque[events.Key] = deque()  # keys that wait, in order
        self._listed = ""  # the text whose commands are listed, or are being gathered

    @on(Input.Changed)
    def _note_change(self, event: Input.Changed) -> None:
        self._listed = event.value

    def takes(self, key: events.Key) -> bool:
        """Whether a key can be used now: by an input that is there, those of the list by a complete list.

        A key that waited for long takes the list as it is, unless nothing in it matches.
        """
        inputs = self.query(CommandInput)
        if not inputs or not inputs.first().is_mounted:
            return False
        if key.key not in PALETTE_LIST_KEYS:
            return True
        gathers = (w for w in self.workers if w.node is self and w.group == self._GATHER_COMMANDS_GROUP)
        is_listed = self._listed == inputs.first().value and all(w.is_finished for w in gathers)
        is_old = time.monotonic() > key.time + PALETTE_PATIENCE_S
        return is_listed and (self._offers_all or (is_old and self._find_highlighted() is not None))

    def list_all(self) -> None:
        """List the commands again once all are known."""
        if not self._offers_all and self._can_offer_all() and self.query(CommandInput):
            self._offers_all = True
            self._gather_commands(self.query_one(CommandInput).value.strip())

    def type_letter(self, character: str) -> None:
        """Insert a letter into the input, without a way through its queue."""
        self.query_one(CommandInput).insert_text_at_cursor(character)

    async def run_key_action(self, key: str) -> bool:
        """Run what a key does to the input, the list or the palette; False if it does nothing there."""
        for node in (self.query_one(CommandInput), self):
            for binding in node._bindings.key_to_bindings.get(key, ()):
                return await self.app.run_action(binding.action, default_namespace=node)
        return False

    def choose(self) -> Callable[[], object] | None:
        """Close the palette and return the command at the cursor of the list; None if it has none."""
        option = self._find_highlighted()
        if option is None:
            return None
        self._cancel_gather_commands()
        self.dismiss()
        return option.hit.command

    def _find_highlighted(self) -> Command | None:
        option = self.query_one(CommandList).highlighted_option if self._list_visible else None
        return option if isinstance(option, Command) else None

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close it if it is still open; a second click may follow the one that closed it."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        has_layout = self._list_visible and self.query_one(CommandList).scrollable_content_region.width
        if has_layout or not action.startswith("page_"):
            super()._action_command_list(action)


class PaletteControl:
    """Opens the palette and hands it keys in their order, also those typed before it is there."""

    def __init__(self, app: "Explorer") -> None:
        self._app = app
        self._palette: Palette | None = None  # that takes the keys

    @property
    def is_open(self) -> bool:
        return self._palette is not None

    @property
    def is_idle(self) -> bool:
        return self._palette is None or not self._palette.typed

    def open(self) -> None:
        """Show the palette unless another screen is in front; keys typed behind its own are its text."""
        if len(self._app.screen_stack) > 1:
            return
        self._palette = palette = Palette(self._can_offer_all)
        palette.typed.extend(events.Key(key.key, key.text) for key in self._app.keyboard.take_waiting())
        self._app.push_screen(palette, partial(self._note_closed, palette))
        self._app.set_timer(PALETTE_PAUSE_S, self.run_keys)

    async def press(self, key: events.Key) -> None:
        """Queue a key for the palette, and hand over those that can be used."""
        if self._palette is not None:
            self._palette.typed.append(key)
            await self.run_keys()

    async def run_keys(self) -> None:
        """Hand the palette the keys that it can take; the screen has those behind the one that closes it."""
        palette = self._palette
        while palette is not None and palette.typed and self._app.screen is palette:
            palette.list_all()
            if not palette.takes(palette.typed[0]):
                self._app.set_timer(PALETTE_PAUSE_S, self.run_keys)
                return
            await self._run_key(palette, palette.typed.popleft())
        if palette is not None and self._app.screen is not palette:
            self._leave(palette)

    async def _run_key(self, palette: Palette, key: events.Key) -> None:
        if key.key == "enter":
            if (command := palette.choose()) is not None:
                command()
        elif key.is_printable and key.character is not None:
            palette.type_letter(key.character)
        elif not await palette.run_key_action(key.key):
            await App.on_event(self._app, key)

    def list_all(self) -> None:
        """List the commands again if more are known."""
        if self._palette is not None:
            self._palette.list_all()

    def _leave(self, palette: Palette) -> None:
        """Give the keys that were typed behind a palette to the main screen."""
        if self._palette is not palette:
            return
        self._palette = None
        while palette.typed:
            key = palette.typed.popleft()
            self._app.keyboard.press(key.key, key.character)
            if self._app.screen is not self._app.main_screen:  # it has opened another
                break
        if isinstance(self._app.screen, Palette):
            self._app.screen.typed.extend(palette.typed)

    def _note_closed(self, palette: Palette, _result: None) -> None:
        self._app.call_later(self._leave, palette)

    def _can_offer_all(self) -> bool:
        return self._app.workspace.has_all_views and not self._app.answers.is_stale


class Explorer(App[None]):
    """Builds the parts and hands events to them; the parts decide."""

    TITLE = "tracetui"
    CSS_PATH = "app.tcss"
    ALLOW_SELECT = False

    def __init__(
        self, feed: Feed | None, options: ScreenOptions, driver: type[ScreenDriver] | None = None
    ) -> None:
        # Set at the start, or Textual would turn colours into greys instead of leaving them out.
        super().__init__(driver_class=driver, ansi_color=None if options.colours else True)
        self.animation_level = "none"
        for each_theme in theme.THEMES:
            self.register_theme(each_theme)
        self.theme = theme.choose_theme(options.theme, options.colours)
        self.workspace = Workspace(feed, options)
        self.main_screen = MainScreen(_build_painter(self.theme, options))
        self.renderer = Renderer(self.workspace, self.main_screen, lambda: self.size, self.set_timer)
        self.pool = NewestTaskPool("answers")
        self.answers = AnswerUpdater(self.workspace, self.renderer, self.pool, self.post_message)
        self.input_line = InputLine(self.workspace, self.renderer)
        parts = self._build_parts()
        self.controllers = Controllers(parts)
        self.palette = PaletteControl(self)
        commands = self.controllers.build_commands() | {
            "suspend": self.action_suspend_process,
            "redraw": self._redraw_screen,
            "palette": self.palette.open,
        }
        names = key_table.map_keys_to_commands(options.keys)
        self.keyboard = Keyboard(commands, names, parts, self.controllers.runs.open_prompt)
        self.tour = Tour(self.workspace, self.main_screen.show_tour) if options.tour else None
        self._advance_tour = self.tour.advance if self.tour else lambda: None
        self._has_answer = False

    def _build_parts(self) -> ScreenParts:
        return ScreenParts(
            self.workspace,
            self.renderer,
            self.answers,
            self.input_line,
            self.post_message,
            run_async=partial(self.run_worker, exclusive=True),
            set_timer=self.set_timer,
            call_after_refresh=self.call_after_refresh,
            export_svg=partial(export_svg, self),
            write_to_terminal=partial(_write_to_terminal, self),
            close=lambda code: self.exit(return_code=code),
        )

    # what the parts need from Textual

    def get_default_screen(self) -> MainScreen:
        return self.main_screen

    def watch_theme(self, name: str) -> None:
        if self.is_running:
            self.main_screen.paint_with(_build_painter(name, self.workspace.options))

    # keys

    async def on_event(self, event: events.Event) -> None:
        """Queue the keys of the main screen and of the palette in place of Textual's bindings.

        Textual looks a key up when it arrives. Here a key may have to wait for an answer, and what it means
        (a command, or text for a line that an earlier key opens) is only known when its turn comes.
        `on_key` of the screen would be too late: what is typed behind Ctrl+P belongs to the palette.
        """
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif self.palette.is_open:
            await self.palette.press(event)
        elif self.screen is self.main_screen:
            self.keyboard.press(event.key, event.character)
            self._advance_tour()
        else:
            await super().on_event(event)

    def on_paste(self, event: events.Paste) -> None:
        if self.screen is self.main_screen:
            self.keyboard.paste(event.text)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the commands of the palette, a line each: of keys, views, columns to sort by, and themes."""
        workspace, navigation = self.workspace, self.controllers.navigation
        for key in key_table.select_keys(workspace.options.keys, rows=True, live=workspace.options.follow):
            text = key.help if key.help.startswith(key.short) else f"{key.short}: {key.help}"
            run = partial(self.keyboard.run_command, key.command)
            yield build_palette_entry(key_table.format_keys(key), text, run)
        for number, view in enumerate(workspace.offered_views, 1):
            digit = str(number) if number <= ALWAYS_SHOWN_TABS else _NO_KEY
            yield build_palette_entry(digit, f"view: {view.title}", partial(navigation.open_view, view.name))
        picture = workspace.displayed_picture
        for column in picture.sheet.sortable if picture is not None else ():
            text = f"sort by {units.format_heading(column)}"
            yield build_palette_entry(_NO_KEY, text, partial(navigation.sort_by, column))
        for name in theme.PALETTES:
            yield build_palette_entry(_NO_KEY, f"theme {name}", partial(setattr, self, "theme", name))

    async def action_quit(self) -> None:
        """Quit by Textual's Ctrl+Q, which works in the palette, as by the key of the main screen."""
        self.controllers.navigation.quit()

    # time and size

    def on_mount(self) -> None:
        """Show in the first frame what is being loaded."""
        self.renderer.show_bands()
        self.renderer.show_progress()

    def on_ready(self) -> None:
        """Start to read, and to sample counters, after the first frame: threads that import modules at the
        same time slow each other.
        """
        if self.workspace.feed is not None:
            self.workspace.feed.start(self.post_message)
            self.set_interval(PROGRESS_INTERVAL_S, self._tick, name="progress")
        live = self.workspace.live
        if live is not None and live.engine is not None:
            live.engine.start_deferred_sampler()

    def _tick(self) -> None:
        self.renderer.show_progress()
        self.controllers.updates.load_views()
        self.answers.notify_slow_answer()
        self.keyboard.skip_stale_keys()

    def on_resize(self, event: events.Resize) -> None:
        self._redraw_screen()
        self.call_after_refresh(self.renderer.show_resized)

    def on_pane_resized(self, message: messages.PaneResized) -> None:
        self.answers.redraw_for_size()

    def _redraw_screen(self) -> None:
        """Draw the whole screen again; the terminal may show something else."""
        if isinstance(self._driver, ScreenDriver):
            self._driver.forget_screen()
        self.screen.refresh()

    # messages of widgets and threads

    def on_answered(self, message: messages.Answered) -> None:
        """Show the answer, run the keys that waited for it, then show runs that have grown since."""
        self.answers.accept_answer(message)
        self.keyboard.run_waiting_keys()
        self.controllers.updates.show_newest()
        self.palette.list_all()
        self._advance_tour()
        if not self._has_answer:
            self._has_answer = True
            # Load what may be needed next, once the first rows are on the screen.
            self.call_after_refresh(process_tuning.enable_gc)
            self.call_after_refresh(self.controllers.updates.load_views)

    def on_cursor_moved(self, message: messages.CursorMoved) -> None:
        if not self.answers.is_stale:  # else it moved in rows that are about to be replaced
            self.answers.save_cursor()
        self.renderer.show_status()

    def on_row_clicked(self, message: messages.RowClicked) -> None:
        self.keyboard.press("enter", None)

    def on_line_clicked(self, message: messages.LineClicked) -> None:
        if message.pane == "drawing":
            self.controllers.cursor.select_slice_at(message.column, message.line)
        elif message.pane == "tabs":
            self.controllers.navigation.open_tab_at(message.column)

    def on_heading_clicked(self, message: messages.HeadingClicked) -> None:
        self.controllers.navigation.sort_by(message.column, further=message.is_further)

    def on_runs_changed(self, message: messages.RunsChanged) -> None:
        self.controllers.updates.accept_runs(message)

    def on_runs_opened(self, message: messages.RunsOpened) -> None:
        self.controllers.runs.add_runs(message)

    def on_views_loaded(self, message: messages.ViewsLoaded) -> None:
        self.controllers.updates.accept_views(message)
        self.keyboard.run_waiting_keys()
        self.palette.list_all()

    def on_load_failed(self, message: messages.LoadFailed) -> None:
        self.controllers.updates.show_failure(message)
        self.keyboard.run_waiting_keys()

    def on_progress_changed(self, message: messages.ProgressChanged) -> None:
        self.renderer.show_progress()

    def on_close_requested(self, message: messages.CloseRequested) -> None:
        self.workspace.request_engine_stop()
        self.exit(return_code=message.code)

    def on_status_message(self, message: messages.StatusMessage) -> None:
        self.renderer.show_message(message.text)
        self.controllers.updates.show_newest()  # the run may have ended

    # the end

    def _fatal_error(self) -> None:
        """Print nothing: the command line reports the error once the terminal is restored."""
        self._close_messages_no_wait()

    @property
    def is_settled(self) -> bool:
        """Whether the last question is answered and no key waits; for tests and pictures."""
        return self.answers.is_answered and self.keyboard.is_idle and self.palette.is_idle

    @property
    def crash(self) -> Exception | None:
        return self._exception


def _write_to_terminal(app: Explorer, sequence: str) -> None:
    if app._driver is not None:
        app._driver.write(sequence)


def _build_painter(name: str, options: ScreenOptions) -> Painter:
    return Painter(theme.build_palette(name), options.ascii, options.colours)


def open_feed(paths: list[str], options: ScreenOptions) -> Feed:
    """Return a feed: of a growing file, of many files asked in place, or of files read once."""
    if options.follow and len(paths) == 1:
        comparison, fallback = options.comparison_runs, options.fallback_view
        return FileFollower(paths[0], options.engine, options.view, comparison, fallback)
    if options.executor is not None:
        from tracetui.ui.workers.file_set_feed import FileSetFeed  # it starts processes

        job_options = {"cache": options.cache, "capture": options.capture}
        return FileSetFeed(paths, options.view, options.executor, options.hosts, job_options)
    names = ("cache", "capture", "limits", "device", "roof", "config", "client_logs")
    read_options = {name: getattr(options, name) for name in names}
    return FileReader(paths, options.view, options.merge, read_options)


def _close_feed(feed: Feed) -> None:
    from tracetui.ui.workers.file_set_feed import FileSetFeed

    if isinstance(feed, FileSetFeed):
        feed.close()


def run(paths: Sequence[str | Path], options: ScreenOptions) -> int:
    """Show the screen until the user quits; return the exit code. Raise UsageError without a terminal."""
    reason = tty.explain_unusable()
    if reason is not None:
        raise UsageError("the screen cannot be shown", why=reason, todo="tracetui report prints any view")
    cast = CastRecorder(options.cast) if options.cast else None
    driver = type("CastingDriver", (ScreenDriver,), {"cast": cast}) if cast else ScreenDriver
    feed = open_feed([str(p) for p in paths], options)
    app = Explorer(feed, options, driver)
    with tty.TerminalGuard(lambda number: app.post_message(messages.CloseRequested(128 + number))) as guard:
        app.run()
    if cast is not None:
        cast.close()
    if options.executor is not None:
        _close_feed(feed)
    if guard.received_signal is not None:
        return 128 + guard.received_signal
    if app.crash is not None:
        raise app.crash
    return app.return_code or 0
