"""Change page, tab and level: open pages and tabs, drill down into a row and go back, sort, mark."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tracetui.ui.answer_updates import AnswerUpdater
from tracetui.ui.pages import Page, ViewPage
from tracetui.ui.pages.help_page import GuideList, GuidePage, HelpPage
from tracetui.ui.pages.list_pages import ColumnList, RunList
from tracetui.ui.pages.text_pages import LoadingPage, OutputPage, RefusedPage
from tracetui.ui.question import Picture
from tracetui.ui.renderer import Renderer
from tracetui.ui.session import RowKey
from tracetui.ui.session_commands import Command, sort_further, sort_or_reverse
from tracetui.ui.workspace import Workspace
from tracetui.views import Focus, find_focus

LEAF_VIEWS: Final = (
    "detail",
    "pair",
    "counters",
    "memory",
    "log",
    "import",
)  # no drill-down
CANCELLED_EXIT: Final = 130  # the user quit while files were read


class Navigation:
    """Changes the page, and the view and level of the session."""

    def __init__(
        self,
        workspace: Workspace,
        renderer: Renderer,
        answers: AnswerUpdater,
        close: Callable[[int], object],
    ) -> None:
        self._workspace, self._renderer, self._answers = workspace, renderer, answers
        self._close = close

    # pages

    def quit(self) -> None:
        loading = isinstance(self._workspace.page, LoadingPage)
        self._workspace.request_engine_stop()
        self._close(CANCELLED_EXIT if loading else self._workspace.exit_code)

    def toggle_help(self) -> None:
        if isinstance(self._workspace.page, HelpPage | GuideList | GuidePage):
            self.show_page(ViewPage())
        elif self._workspace.views:
            self._open_help()

    def _open_help(self) -> None:
        self.show_page(HelpPage(tuple(self._workspace.views), self._workspace.options.keys))

    def open_guide(self, page: GuideList) -> None:
        """Show the guide under the cursor."""
        self.show_page(GuidePage(page.find_topic(self._renderer.table.cursor)))

    def show_page(self, page: Page) -> None:
        self._workspace.page = page
        if isinstance(page, ViewPage):
            self._answers.update()
        else:
            self._renderer.show_page()

    def leave_page(self) -> bool:
        """Leave the help, a list or another page; return False in a view."""
        page = self._workspace.page
        if isinstance(page, GuidePage):
            self.show_page(GuideList())
        elif isinstance(page, GuideList):
            self._open_help()
        elif isinstance(page, OutputPage):
            self.show_page(page.before or ViewPage())
        elif isinstance(page, HelpPage | RunList | ColumnList) and self._workspace.views:
            self.show_page(ViewPage())  # its runs may have grown meanwhile
        elif isinstance(page, RefusedPage) or (
            isinstance(page, LoadingPage) and self._workspace.live is None
        ):
            self.quit()  # an engine that is starting must not be lost by a slip
        else:
            return False
        return True

    def go_back(self, command: Command) -> None:
        """Leave the page; in a view, apply the command, which goes back."""
        if not self.leave_page():
            self.apply_command(command)

    # the session

    def apply_command(self, command: Command) -> None:
        """Apply a command to the session if a view is shown."""
        if self._workspace.is_showing_view:
            self._answers.show_session(command(self._workspace.session))

    def open_tab(self, number: int) -> None:
        """Show the view of a tab, counted from 1, if it exists."""
        tabs = self._workspace.tabs
        if number <= len(tabs):
            self._answers.show_session(self._workspace.session.with_view(tabs[number - 1].name))

    def open_tab_at(self, column: int) -> None:
        """Show the view of the tab at a column of the screen, if any."""
        tab = self._renderer.find_tab_at(column)
        if tab is not None:
            self.open_tab(tab)

    def open_next_view(self) -> None:
        self._open_neighbour(1)

    def open_previous_view(self) -> None:
        self._open_neighbour(-1)

    def _open_neighbour(self, direction: int) -> None:
        """Open the next tab in a direction, in a circle, that the run has data for."""
        possible = [i for i, (_, can) in enumerate(self._workspace.tab_titles) if can]
        if possible:
            ahead = [i for i in possible if (i - self._workspace.tab_index) * direction > 0]
            self.open_tab((ahead or possible)[0 if direction > 0 else -1] + 1)

    def sort_by(self, column: str, *, further: bool = False) -> None:
        """Sort by a column; `further` sorts equal rows of the present order."""
        self.apply_command(lambda session: (sort_further if further else sort_or_reverse)(session, column))

    def toggle_mark(self) -> bool:
        """Mark or unmark the row under the cursor; return whether there is one."""
        row = self.read_row_key()
        if row:
            chosen = self._workspace.session.look.chosen
            chosen = tuple(c for c in chosen if c != row) if row in chosen else (*chosen, row)
            self._answers.show_session(self._workspace.session.with_look(chosen=chosen))
        return bool(row)

    def read_row_key(self) -> RowKey:
        """Return the key of the row under the cursor, empty if it is on none."""
        picture = self._workspace.picture
        if not self._workspace.is_showing_view or picture is None:
            return ()
        table = self._renderer.table
        row = table.sheet.read_key(table.cursor) if self._renderer.main_screen.shows_table else ()
        return row or tuple(v for _, v in self._find_focus_in(picture))

    def drill_down(self) -> None:
        """Open the details of the row under the cursor; if doubts are displayed, the rows."""
        workspace, look = self._workspace, self._workspace.session.look
        picture = workspace.picture
        if not workspace.is_showing_view or picture is None:
            return
        if workspace.has_unread_doubts:
            self._answers.show_session(workspace.session.with_look(terms=replace(look.terms, forced=True)))
            return
        focus = self.find_focus()
        target = self._find_inner_view(focus)
        if target is None:
            self._renderer.show_message("this row has no details")
        else:
            self._answers.show_session(workspace.session.drill_down(target, focus))

    def find_focus(self) -> Focus:
        """Return the focus of the row under the cursor, empty if it is on none."""
        picture, screen = self._workspace.picture, self._renderer.main_screen
        if picture is None or not (screen.shows_table or screen.has_cursor):
            return ()
        self._answers.save_cursor()
        return self._find_focus_in(picture)

    def _find_focus_in(self, picture: Picture) -> Focus:
        return find_focus(picture.question.view, picture.answer, self._workspace.session.look)

    def _find_inner_view(self, focus: Focus) -> str | None:
        """Return the view that shows a focus: one table of many, a kernel, calls of a scope, else kernels."""
        columns, current = dict(focus), self._workspace.view.name
        if "table" in columns and not self._workspace.session.look.focus:
            return current
        if not columns or current in LEAF_VIEWS or "table" in columns:
            return None
        if "scope" in columns:
            return "calls"
        if "name" in columns and self._workspace.session.files is not None:
            return "ranks"  # shows which of the files takes longest
        return "pair" if current == "diff" else "detail" if "name" in columns else "kernels"
