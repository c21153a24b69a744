"""Draws the workspace on the main screen: head, tabs, the page, status and keys."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from textual.geometry import Size as Cells

from tracetui.ui.keys import Moment
from tracetui.ui.main_screen import MainScreen
from tracetui.ui.pages import footer, header, prompt
from tracetui.ui.pages.guides import GuidePage
from tracetui.ui.pages.help import HelpPage, keys_of_views
from tracetui.ui.pages.page import ListPage, ViewPage
from tracetui.ui.pages.texts import LoadingPage, OutputPage, RefusedPage, doubt_lines, note_lines
from tracetui.ui.panes.table import Table
from tracetui.ui.remarks import Row
from tracetui.ui.sheet import measure
from tracetui.ui.workspace import Workspace
from tracetui.views.ink import Size

FARTHEST: Final = 1 << 20  # lines
MESSAGE_SECONDS: Final = 6.0  # seconds that a sentence stays in the status line


class Timer(Protocol):
    """Calls something once, after some seconds."""

    def __call__(self, delay: float, callback: Callable[[], None]) -> object: ...


class Renderer:
    """Draws; nothing is asked or decided here."""

    def __init__(
        self, workspace: Workspace, main: MainScreen, size: Callable[[], Cells], later: Timer
    ) -> None:
        self.main = main
        self._workspace, self._size, self._later = workspace, size, later
        self._message = ""
        self._printed = -1  # bytes of a program's output that are in sight
        self.covered = True  # whether a page stands where the last picture was

    @property
    def table(self) -> Table:
        return self.main.table

    def pane_size(self) -> Size:
        """Return the size that a drawing may fill, at least one cell."""
        pane = self.main.pane
        return self._surface(max(1, pane.width), max(1, pane.height))

    def _surface(self, width: int, height: int) -> Size:
        options = self._workspace.options
        return Size(width, height, options.ascii, options.colours, keys_of_views(options.keys))

    def tell(self, text: str, seconds: float = MESSAGE_SECONDS) -> None:
        """Show a sentence in the status line for a while."""
        self._message = text
        self.show_bands()
        self._later(seconds, lambda: self.forget(text))

    def forget(self, text: str) -> None:
        """Take a sentence out of the status line, where it still is the last one told."""
        if self._message == text:
            self._message = ""
            self.show_bands()

    @property
    def message(self) -> str:
        return self._message

    # the page

    def show_page(self, row: int = 0, *, keep_top: bool = False) -> None:
        """Draw what stands in place of a view; of a list with the cursor on a row."""
        page, session = self._workspace.page, self._workspace.session
        self.covered = not isinstance(page, ViewPage)
        if isinstance(page, ListPage):
            answer = page.answer(session)
            look = replace(session.look, sort=None, chosen=(), columns=(), one_table=True, full_names=False)
            self.main.show_table(
                measure(answer.rows, page.columns[:1], page.columns), look, row, answer.notes
            )
        elif not isinstance(page, ViewPage):
            self.main.show_drawing(page.lines(self._surface(*self._size())), keep_top=keep_top)
        self.show_bands()

    def show_progress(self) -> None:
        """Draw again what is being loaded, or printed, where that is what the screen shows."""
        if isinstance(self._workspace.page, LoadingPage):
            self.show_page()
        elif isinstance(self._workspace.page, OutputPage):
            self.show_output()

    def show_output(self, *, from_start: bool = False) -> None:
        """Draw what a program has printed since; the newest line stays in sight where the last one was."""
        page = self._workspace.page
        if not isinstance(page, OutputPage) or (page.engine.printed == self._printed and not from_start):
            return
        self._printed = page.engine.printed
        at_end = from_start or self.main.at_end
        self.show_page(keep_top=True)
        if at_end:
            self.main.scroll_drawing(FARTHEST)

    def show_picture(self, *, grown: bool = False) -> None:
        """Draw the answer of a view; of one that has only grown, the cursor stays on its row."""
        picture, look = self._workspace.picture, self._workspace.session.look
        if picture is None:
            return
        stays = grown or not (self.covered or self.main.shows_table)
        self.covered = False
        width = self._size().width
        if self._workspace.doubted:
            self.main.show_drawing(doubt_lines(picture.given.doubts, width))
        elif picture.lines is None:
            session, view = self._workspace.session, picture.question.view
            follow = self._workspace.live is not None and view.newest_last and look.sort is None
            opened = follow and view.name not in session.looks  # for the first time: on the newest row
            row = None if grown else FARTHEST if opened else look.cursor[0]
            own = picture.answer.notes
            self.main.show_table(picture.sheet, look, row, own, follow=follow, noted=self._noted())
        else:
            lines = picture.lines or note_lines(picture.answer.notes, width)
            self.main.show_drawing(lines, keep_top=stays)
        self.show_bands()

    def show_resized(self) -> None:
        """Fit the bands, and what does not depend on a view, to the size of the terminal."""
        self.main.fit_to(self._size())
        if isinstance(self._workspace.page, HelpPage | GuidePage):
            self.show_page(keep_top=True)
        self.show_bands()

    # the bands

    def show_bands(self) -> None:
        """Draw head, tabs, status and keys for this moment."""
        workspace, session, width = self._workspace, self._workspace.session, self._size().width
        several = len(session.runs) > 1
        place = f"run {session.current + 1} of {len(session.runs)}" if several else ""
        indices = self._indices()
        asked = [(session.runs[i], session.infos[i]) for i in indices]
        written = not session.runs or len(session.runs) - 1 in (indices or (session.current,))
        badge = self._badge() if written else ""
        head = header.header(session.run, session.info, session.look.lens, width, place, badge, asked)
        tabs = header.tabs(workspace.titles, workspace.tab, width)
        draft = workspace.draft
        foot = (
            footer.footer(width, self._moment(), workspace.options.keys)
            if draft is None
            else prompt.line(draft, width)
        )
        self.main.show_bands(head, tabs, foot)
        self.show_status()

    def tab_at(self, column: int) -> int | None:
        """Return the number of the tab that the line of tabs shows in a column; None where it shows none."""
        workspace = self._workspace
        return header.tab_at(workspace.titles, workspace.tab, self._size().width, column)

    def _badge(self) -> str:
        """Return what the head says of the writer of the file."""
        live = self._workspace.live
        if live is None:
            return ""
        return f"{live.badge}, held" if self._workspace.paused else live.badge

    def _in_sight_grows(self) -> bool:
        """Return whether what is in sight is of the run that is being written, and tells its steps."""
        workspace, session = self._workspace, self._workspace.session
        last = len(session.runs) - 1
        return workspace.grows and last in self._indices() and bool(session.infos[last].steps)

    def _indices(self) -> tuple[int, ...]:
        """Return the positions of the runs in sight."""
        workspace = self._workspace
        shown = workspace.shows_view and workspace.views
        return workspace.session.indices_for(workspace.view) if shown else ()

    def _moment(self) -> Moment:
        """Return what is in sight, as far as it decides which keys matter."""
        workspace = self._workspace
        away = not isinstance(workspace.page, ViewPage | LoadingPage | RefusedPage)
        leaves = away or bool(workspace.session.trail or workspace.session.look.filter)
        rows = self.main.shows_table and not self.table.sheet.rows.is_empty()
        enters = rows or self.main.has_cursor or isinstance(workspace.page, HelpPage)
        return Moment(self._place(), workspace.engine_state, enters, leaves)

    def _place(self) -> str:
        """Return the key of `keys.FOOTERS` for what is in sight."""
        page = self._workspace.page
        if not isinstance(page, ViewPage):
            return str(page.footer)
        view = self._workspace.view
        if view.over_time:
            return "time"
        if view.runs > 2:
            return "many"
        table, drawing = ("diff", "pair") if view.runs == 2 else ("table", "drawing")
        return table if self.main.shows_table else drawing

    def show_status(self) -> None:
        """Draw the status line, and the name under the cursor in full where that is wanted."""
        workspace, table, width = self._workspace, self.table, self._size().width
        shows_view = workspace.shows_view
        in_full = self.main.shows_table and shows_view and workspace.session.look.full_names
        name = next(iter(table.row.values()), None) if in_full else None
        self.main.show_whole(name if isinstance(name, str) else "")
        look = workspace.session.look if shows_view else replace(workspace.session.start, filter="")
        if not shows_view or workspace.view.runs < 2:  # only a comparison has rows that did not change
            look = replace(look, terms=replace(look.terms, changed_only=False))
        alarm = workspace.live.alarm if workspace.live is not None else ""
        told = self._message or alarm or self._note()
        line = footer.status(look, self._row(), told, self._notes(width), width)
        self.main.show_status(line)

    def _noted(self) -> Mapping[Row, str]:
        """Return the notes about rows, which are about those of the whole view."""
        session = self._workspace.session
        return session.notes if not session.trail else {}

    def _note(self) -> str:
        """Return the note about the row under the cursor."""
        if not self._workspace.shows_view or not self.main.shows_table:
            return ""
        return self._noted().get(self.table.sheet.identity(self.table.cursor), "")

    def _row(self) -> str:
        """Return where the cursor is, of how many rows."""
        if not self.main.shows_table:
            return ""
        count = self.table.sheet.rows.height
        if not count:
            return "no rows" if self._workspace.shows_view else ""
        return f"{self.table.cursor + 1:,}/{count:,}"

    def _notes(self, width: int) -> Sequence[str]:
        picture, live = self._workspace.picture, self._workspace.live
        notes = picture.answer.notes if picture is not None and self._workspace.shows_view else ()
        session = self._workspace.session
        run = session.run
        if self._workspace.shows_view and self._in_sight_grows() and self._workspace.view.runs > 1:
            last = session.infos[-1].steps[-1]
            return (f"until step {last:,} of {session.runs[-1].name}, which goes on", *notes)
        means = run is not None and not str(run.meta.get("weights") or "").startswith("random")
        own = session.current == len(session.runs) - 1  # the run that is written, not one beside it
        if live is not None and live.text and means and own:
            return (f"… {live.text[-(width // 2) :]}", *notes)
        return notes
