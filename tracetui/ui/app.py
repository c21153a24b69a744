"""The explorer: a Textual app that holds the workspace and its controllers, and passes events on to them."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from textual import events
from textual.app import App, SystemCommand
from textual.screen import Screen

from capture.errors import UsageError
from tracetui import garbage
from tracetui.ui import messages
from tracetui.ui.controllers.arrivals import Arrivals
from tracetui.ui.controllers.columns import Columns
from tracetui.ui.controllers.cursor import Cursor
from tracetui.ui.controllers.engine import EngineControl
from tracetui.ui.controllers.export import Clipboard, Export
from tracetui.ui.controllers.filter import Filter
from tracetui.ui.controllers.input import InputLine
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.controllers.remarks import RowRemarks
from tracetui.ui.controllers.runs import FilePrompt, Links, Runs
from tracetui.ui.controllers.timeline import Slices
from tracetui.ui.key_commands import Controllers, has_to_wait, key_commands, paste_text
from tracetui.ui.keyboard import Keyboard
from tracetui.ui.keys import names_by_key
from tracetui.ui.main_screen import MainScreen
from tracetui.ui.options import Options
from tracetui.ui.palette import open_palette, palette_commands
from tracetui.ui.questions import Questions
from tracetui.ui.renderer import Renderer
from tracetui.ui.screenshot import svg_of
from tracetui.ui.terminal import theme, tty
from tracetui.ui.terminal.cast import Cast
from tracetui.ui.terminal.driver import Driver
from tracetui.ui.terminal.paint import Painter
from tracetui.ui.tour import Tour
from tracetui.ui.workers.feed import Feed
from tracetui.ui.workers.follow import FileFollower
from tracetui.ui.workers.pool import Pool
from tracetui.ui.workers.read import FileReader
from tracetui.ui.workspace import Workspace

__all__ = ["Explorer", "Options", "run"]

REFRESH: Final = 0.25  # seconds between two pictures of loading


class Explorer(App[None]):
    """Builds the parts and hands events to them; what they do is not decided here."""

    TITLE = "tracetui"
    CSS_PATH = "app.tcss"
    ALLOW_SELECT = False

    def __init__(self, feed: Feed | None, options: Options, driver: type[Driver] | None = None) -> None:
        # Known from the start, or Textual would turn colours into greys instead of leaving them out.
        super().__init__(driver_class=driver, ansi_color=None if options.colours else True)
        self.animation_level = "none"
        for each in theme.THEMES:
            self.register_theme(each)
        self.theme = theme.chosen(options.theme, options.colours)
        self.workspace = Workspace(feed, options)
        self.main = MainScreen(_painter(self.theme, options))
        self.renderer = Renderer(self.workspace, self.main, lambda: self.size, self.set_timer)
        self.pool = Pool("answers")
        self.questions = Questions(self.workspace, self.renderer, self.pool, self.post_message)
        self.input_line = InputLine(self.workspace, self.renderer)
        self.controllers = self._controllers()
        self.main.point = self.controllers.slices.point
        self.main.tab = self.controllers.navigation.open_tab_at
        own: dict[str, Callable[[], object]] = {
            "suspend": self.action_suspend_process,
            "redraw": partial(_redraw, self),
            "palette": partial(open_palette, self),
        }
        commands = key_commands(self.workspace, self.controllers, own)
        paste = partial(paste_text, self.workspace, self.input_line, self.controllers.files)
        waits = partial(has_to_wait, self.workspace, self.questions)
        self.keyboard = Keyboard(commands, names_by_key(options.keys), self.input_line, waits, paste)
        self.tour = Tour(self.workspace, self.main.show_tour) if options.tour else None
        self._go_on_tour = self.tour.look if self.tour else lambda: None

    def _controllers(self) -> Controllers:
        workspace, renderer, questions, line = self.workspace, self.renderer, self.questions, self.input_line
        navigation = Navigation(workspace, renderer, questions, lambda code: self.exit(return_code=code))
        runs = Runs(workspace, renderer, questions, navigation, self.post_message)
        slices = Slices(workspace, renderer, questions)
        return Controllers(
            navigation=navigation,
            cursor=Cursor(workspace, renderer, questions, slices),
            slices=slices,
            filter=Filter(workspace, renderer, questions, line, self.set_timer),
            export=Export(workspace, line, partial(svg_of, self), self.post_message, self.call_after_refresh),
            clipboard=Clipboard(workspace, renderer, self._write),
            runs=runs,
            files=FilePrompt(renderer, line, runs.open_file, self._run_async),
            columns=Columns(workspace, renderer, navigation),
            links=Links(workspace, renderer, questions),
            remarks=RowRemarks(workspace, renderer, navigation, line),
            engine=EngineControl(workspace, renderer, line, self._run_async, navigation.show_page),
            arrivals=Arrivals(workspace, renderer, questions, self.post_message),
        )

    # what the parts need of Textual

    def _write(self, sequence: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)

    def _run_async(self, coroutine: Coroutine[Any, Any, None], group: str) -> object:
        return self.run_worker(coroutine, group=group, exclusive=True)

    def get_default_screen(self) -> MainScreen:
        return self.main

    def watch_theme(self, name: str) -> None:
        if self.is_running:
            self.main.paint_with(_painter(name, self.workspace.options))

    # keys

    async def on_event(self, event: events.Event) -> None:
        """Take keys before Textual does; those of the palette are its own."""
        if isinstance(event, events.Key) and not event.is_forwarded and self.screen is self.main:
            self.keyboard.press(event.key, event.character)
            self._go_on_tour()
        else:
            await super().on_event(event)

    def on_paste(self, event: events.Paste) -> None:
        if self.screen is self.main:
            self.keyboard.paste(event.text)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        themes = partial(setattr, self, "theme")
        yield from palette_commands(self.workspace, self.keyboard, self.controllers.navigation, themes)

    # time and size

    def on_mount(self) -> None:
        """Have the first frame say what is going on."""
        self.renderer.show_bands()
        self.renderer.show_progress()

    def on_ready(self) -> None:
        """Begin to read, and to ask for an engine's counters, once the first frame stands: two threads that
        load modules at once take longer for either.
        """
        if self.workspace.feed is not None:
            self.workspace.feed.start(self.post_message)
            self.set_interval(REFRESH, self._tick, name="progress")
        live = self.workspace.live
        if live is not None and live.engine is not None:
            live.engine.sample()

    def _tick(self) -> None:
        self.renderer.show_progress()
        self.controllers.arrivals.load_views()
        self.questions.tell_slow()
        self.keyboard.lose_patience()

    def on_resize(self, event: events.Resize) -> None:
        _redraw(self)
        self.call_after_refresh(self.renderer.show_resized)

    def on_pane_resized(self, message: messages.PaneResized) -> None:
        self.questions.refit()

    # what widgets and threads say

    def on_answered(self, message: messages.Answered) -> None:
        self.questions.take(message)
        self._settle()

    def on_refused(self, message: messages.Refused) -> None:
        self.questions.refuse(message)
        self._settle()

    def _settle(self) -> None:
        """An answer is in sight: keys that waited for it go on, then runs that have grown since."""
        self.keyboard.drain()
        self.controllers.arrivals.catch_up()
        self._go_on_tour()
        self.call_after_refresh(_end_start, self.controllers)

    def on_cursor_moved(self, message: messages.CursorMoved) -> None:
        if not self.questions.unanswered:  # else it has moved in what stands there for the last time
            self.questions.remember_cursor()
        self.renderer.show_status()

    def on_row_clicked(self, message: messages.RowClicked) -> None:
        self.keyboard.press("enter", None)

    def on_heading_clicked(self, message: messages.HeadingClicked) -> None:
        self.controllers.navigation.sort_by(message.column, further=message.further)

    def on_runs_changed(self, message: messages.RunsChanged) -> None:
        self.controllers.arrivals.take(message)

    def on_runs_opened(self, message: messages.RunsOpened) -> None:
        self.controllers.runs.add(message)

    def on_views_loaded(self, message: messages.ViewsLoaded) -> None:
        self.controllers.arrivals.take_views(message)
        self.keyboard.drain()

    def on_load_failed(self, message: messages.LoadFailed) -> None:
        self.controllers.arrivals.refuse(message)
        self.keyboard.drain()

    def on_progress_changed(self, message: messages.ProgressChanged) -> None:
        self.renderer.show_progress()

    def on_close_requested(self, message: messages.CloseRequested) -> None:
        self.workspace.ask_engine_to_end()
        self.exit(return_code=message.code)

    def on_notice(self, message: messages.Notice) -> None:
        self.renderer.tell(message.text)
        self.controllers.arrivals.catch_up()  # the run may have ended

    # the end

    def _fatal_error(self) -> None:
        """Print nothing: the command line tells of it in one sentence, once the terminal is itself again."""
        self._close_messages_no_wait()

    @property
    def settled(self) -> bool:
        """Whether what was asked last is answered, and no key waits."""
        return self.questions.answered and self.keyboard.idle

    @property
    def crash(self) -> Exception | None:
        return self._exception


def _redraw(app: Explorer) -> None:
    """Draw all of the screen, of which the terminal may show something else."""
    if isinstance(app._driver, Driver):
        app._driver.forget_screen()
    app.screen.refresh()


def _end_start(controllers: Controllers) -> None:
    """The first rows stand: what may be asked for next is loaded now."""
    garbage.take_up()
    controllers.arrivals.load_views()


def _painter(name: str, options: Options) -> Painter:
    return Painter(theme.palette(name), options.ascii, options.colours)


def open_feed(paths: list[str], options: Options) -> Feed:
    """Return what follows a file that grows; with others beside it, what reads all of them once."""
    if options.follow and len(paths) == 1:
        return FileFollower(paths[0], options.engine, options.view, options.beside, instead=options.instead)
    if options.on is not None:
        from tracetui.ui.workers.fleet import ManyFilesFeed  # nobody else needs processes

        own = {"cache": options.cache, "capture": options.capture}
        return ManyFilesFeed(paths, options.view, options.on, options.hosts, own)
    ways = {"cache": options.cache, "capture": options.capture, "limits": options.limits}
    ways["device"] = options.device
    return FileReader(paths, options.view, options.merge, ways)


def _end_asking(feed: Feed) -> None:
    from tracetui.ui.workers.fleet import ManyFilesFeed

    if isinstance(feed, ManyFilesFeed):
        feed.close()


def run(paths: Sequence[str | Path], options: Options) -> int:
    """Show the screen until it is left; return the exit code. Raises UsageError without a terminal."""
    reason = tty.unusable()
    if reason is not None:
        raise UsageError("no screen can be shown", why=reason, todo="tracetui report prints any view")
    cast = Cast(options.cast) if options.cast else None
    driver = type("CastingDriver", (Driver,), {"cast": cast}) if cast else Driver
    feed = open_feed([str(p) for p in paths], options)
    app = Explorer(feed, options, driver)
    with tty.Guard(lambda number: app.post_message(messages.CloseRequested(128 + number))) as guard:
        app.run()
    if cast is not None:
        cast.close()
    if options.on is not None:
        _end_asking(feed)
    if guard.received is not None:
        return 128 + guard.received
    if app.crash is not None:
        raise app.crash
    return app.return_code or 0
