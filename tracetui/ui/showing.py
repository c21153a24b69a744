"""The screen around its pane: head, tabs, status and keys, and what they tell of."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from textual import events
from textual.app import App

from tracetui.process import Bundled
from tracetui.ui.keys import Moment
from tracetui.ui.main_screen import Main
from tracetui.ui.messages import Moved, Told
from tracetui.ui.options import Options
from tracetui.ui.pages import footer, header, prompt
from tracetui.ui.pages import help as help_page
from tracetui.ui.panes.table import EMPTY
from tracetui.ui.session import Session
from tracetui.ui.terminal import theme
from tracetui.ui.terminal.driver import Driver
from tracetui.ui.terminal.paint import Painter
from tracetui.ui.workers.follow import Following
from tracetui.ui.workers.read import Reading
from tracetui.views import Answer, View, missing, view
from tracetui.views.ink import Line

TOLD_FOR: Final = 6.0
NOTHING: Final = Answer(EMPTY.rows)


class Showing(App[None]):
    """What is on the screen at this moment; nothing is read or asked here."""

    TITLE = "tracetui"
    CSS_PATH = "app.tcss"
    ALLOW_SELECT = False

    def __init__(
        self, session: Session, reading: Reading | Following | None, options: Options,
        driver: type[Driver] | None = None,
    ) -> None:  # fmt: skip
        # Known from the start, or Textual would turn colours into greys instead of leaving them out.
        super().__init__(driver_class=driver, ansi_color=True if "NO_COLOR" in os.environ else None)
        self.options = options
        self.animation_level = "none"
        for each in theme.THEMES:
            self.register_theme(each)
        self.theme = theme.chosen(options.theme, self.no_color)
        self.session = session
        self.views: list[View] = []
        self.page = "loading"  # view · runs · against · columns · help · options · loading · refused
        self.draft: prompt.Draft | None = None  # the input line, while it is open
        self.paused = False
        self._reading = reading
        self._answer = NOTHING
        self._told = ""

    def get_default_screen(self) -> Main:
        self._main = Main(self._painter())
        return self._main

    @property
    def main(self) -> Main:
        return self._main

    @property
    def view(self) -> View:
        known = next((v for v in self.views if v.name == self.session.view), None)
        return known or view(self.session.view)  # the others still load while the first is looked at

    def _painter(self) -> Painter:
        return Painter(theme.palette(self.theme), self.options.ascii)

    def watch_theme(self, name: str) -> None:
        if self.is_running:
            self.main.paint_with(self._painter())

    def tell(self, text: str) -> None:
        """A sentence in the status line, for a while."""
        self._told = text
        self.show_bands()
        self.set_timer(TOLD_FOR, lambda: self.forget(text))

    def forget(self, text: str) -> None:
        if self._told == text:
            self._told = ""
            self.show_bands()

    def on_told(self, message: Told) -> None:
        self.tell(message.text)

    def on_moved(self, message: Moved) -> None:
        self._show_status()

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Lines that are no view's drawing: help, loading, a refusal."""
        self.main.show_drawing(lines, keep_top=self.page == "help")

    def show_help(self) -> None:
        self.page = "help"
        self.show_lines(help_page.lines(self.views, self.size.width))
        self.show_bands()

    def show_bands(self) -> None:
        """Head and foot for this moment."""
        width, session = self.size.width, self.session
        several = len(session.runs) > 1
        place = f"run {session.current + 1} of {len(session.runs)}" if several else ""
        places = session.places(self.view) if self.page == "view" and self.views else ()
        asked = [(session.runs[i], session.facts[i]) for i in places]
        head = header.header(
            session.run, session.fact, session.look.lens, width, place, self._writer(), asked
        )
        tabs = header.tabs(self.titles(), self._tab(), width)
        foot = footer.footer(width, self._moment()) if self.draft is None else prompt.line(self.draft, width)
        self.main.show_bands(head, tabs, foot)
        self._show_status()

    def _moment(self) -> Moment:
        """What is in sight, as far as it decides which keys matter."""
        away = self.page not in ("view", "loading", "refused")
        leaves = away or bool(self.session.trail or self.session.look.filter)
        rows = self.main.shows_table and not self.main.table.sheet.rows.is_empty()
        enters = rows or self.main.has_cursor
        return Moment(self._place(), self._attended(), enters, leaves)

    def _place(self) -> str:
        if self.page in ("runs", "against"):
            return "list"
        if self.page != "view":
            return "columns" if self.page == "columns" else "page"
        if self.view.over_time:
            return "time"
        if self.view.runs > 2:
            return "many"
        table, drawing = ("diff", "pair") if self.view.runs == 2 else ("table", "drawing")
        return table if self.main.shows_table else drawing

    def _attended(self) -> str:
        following = self.following
        if following is None or following.engine is None:
            return "none" if following is None else "followed"
        if not isinstance(following.engine, Bundled):
            return "foreign"
        return "bundled" if following.engine.running else "dead"

    def _writer(self) -> str:
        """What the head says about who writes the file."""
        following = self.following
        if following is None:
            return ""
        return f"{following.badge}, held" if self.paused else following.badge

    @property
    def following(self) -> Following | None:
        return self._reading if isinstance(self._reading, Following) else None

    def _show_status(self) -> None:
        table = self.main.table
        in_full = self.main.shows_table and self.page == "view" and self.session.look.full_names
        name = next(iter(table.row.values()), None) if in_full else None
        self.main.show_whole(name if isinstance(name, str) else "")
        notes = self._answer.notes if self.page == "view" else ()
        if self.following is not None and self.following.text:
            newest = self.following.text[-(self.size.width // 2) :]
            notes = (f"… {newest}", *notes)
        row = f"{table.cursor + 1:,}/{table.sheet.rows.height:,}" if self.main.shows_table else ""
        if self.main.shows_table and not table.sheet.rows.height:
            row = "no rows" if self.page == "view" else ""
        look = self.session.look if self.page == "view" else replace(self.session.start, filter="")
        told = self._told or (self.following.alarm if self.following is not None else "")
        self.main.show_status(footer.status(look, row, told, notes, self.size.width))

    def titles(self) -> list[tuple[str, bool]]:
        """The tabs, and whether the run can feed each."""
        return [(v.title, not missing(v, self.session.asked(v))) for v in self.tabs]

    @property
    def tabs(self) -> list[View]:
        """The views that have a tab: a drill has none, and what compares needs runs to compare."""
        several = len(self.session.runs) > 1
        return [v for v in self.views if v.name not in ("detail", "pair") and (several or v.runs < 2)]

    def _tab(self) -> int:
        shown = self.session.trail[0].view if self.session.trail else self.session.view
        return next((i for i, v in enumerate(self.tabs) if v.name == shown), 0) if self.page == "view" else -1

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        self.main.fit_to(self.size)
        if self.page == "help":
            self.show_lines(help_page.lines(self.views, self.size.width))
        self.show_bands()
