"""Between the pages and tabs, into a row and out of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tracetui.ui.commands import Command, sort_by, sort_further
from tracetui.ui.pages.columns import ColumnList
from tracetui.ui.pages.guides import GuideList, GuidePage
from tracetui.ui.pages.help import HelpPage
from tracetui.ui.pages.page import Page, ViewPage
from tracetui.ui.pages.runs import RunList
from tracetui.ui.pages.texts import LoadingPage, OutputPage, RefusedPage
from tracetui.ui.question import Picture
from tracetui.ui.questions import Questions
from tracetui.ui.remarks import Row
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace
from tracetui.views import Focus, ManyFiles, entered

LEAVES: Final = ("detail", "pair", "counters", "memory", "log", "import")  # views with nothing inside a row
CANCELLED: Final = 130  # the exit code where the reading was cancelled


class Navigation:
    """Changes what the session is on."""

    def __init__(
        self,
        workspace: Workspace,
        renderer: Renderer,
        questions: Questions,
        close: Callable[[int], object],
    ) -> None:
        self._workspace, self._renderer, self._questions = workspace, renderer, questions
        self._close = close

    # pages

    def quit(self) -> None:
        """Close the program."""
        loading = isinstance(self._workspace.page, LoadingPage)
        self._workspace.ask_engine_to_end()
        self._close(CANCELLED if loading else self._workspace.exit_code)

    def toggle_help(self) -> None:
        if isinstance(self._workspace.page, HelpPage | GuideList | GuidePage):
            self.show_page(ViewPage())
        elif self._workspace.views:
            self._open_help()

    def _open_help(self) -> None:
        self.show_page(HelpPage(tuple(self._workspace.views), self._workspace.options.keys))

    def open_guide(self, page: GuideList) -> None:
        """Show the guide under the cursor of the list."""
        self.show_page(GuidePage(page.topic(self._renderer.table.cursor)))

    def show_page(self, page: Page) -> None:
        """Fill the screen with a page."""
        self._workspace.page = page
        if isinstance(page, ViewPage):
            self._questions.update()
        else:
            self._renderer.show_page()

    def leave_page(self) -> bool:
        """Go back from the help or a list, one level; return false where the page is none of these."""
        page = self._workspace.page
        if isinstance(page, GuidePage):
            self.show_page(GuideList())
        elif isinstance(page, GuideList):
            self._open_help()
        elif isinstance(page, OutputPage):
            self.show_page(page.before or ViewPage())
        elif isinstance(page, HelpPage | RunList | ColumnList) and self._workspace.views:
            self.show_page(ViewPage())  # whose runs may have grown meanwhile
        elif isinstance(page, RefusedPage) or (isinstance(page, LoadingPage) and page.can_cancel):
            self.quit()
        else:
            return False
        return True

    def back(self, command: Command) -> None:
        """Leave the page, or clear the filter, or go one level out."""
        if not self.leave_page():
            self.change(command)

    # the session

    def change(self, command: Command) -> None:
        """Change how the view is looked at; on other pages nothing happens."""
        if self._workspace.shows_view:
            self._questions.show(command(self._workspace.session))

    def open_tab(self, number: int) -> None:
        """Show the view of a tab, counted from 1; nothing happens where there is none."""
        tabs = self._workspace.tabs
        if number <= len(tabs):
            self._questions.show(self._workspace.session.on_view(tabs[number - 1].name))

    def open_tab_at(self, column: int) -> None:
        """Show the view of the tab in a column of the screen; nothing happens where there is none."""
        tab = self._renderer.tab_at(column)
        if tab is not None:
            self.open_tab(tab)

    def next_view(self) -> None:
        self._open_beside(1)

    def previous_view(self) -> None:
        self._open_beside(-1)

    def _open_beside(self, direction: int) -> None:
        """Open the nearest tab in a direction that the run can feed, round and round."""
        fed = [i for i, (_, can) in enumerate(self._workspace.titles) if can]
        if fed:
            ahead = [i for i in fed if (i - self._workspace.tab) * direction > 0]
            self.open_tab((ahead or fed)[0 if direction > 0 else -1] + 1)

    def sort_by(self, column: str, *, further: bool = False) -> None:
        """Sort by a column; `further` keeps the order there is, and sorts what is equal in it."""
        self.change(lambda session: (sort_further if further else sort_by)(session, column))

    def mark(self) -> bool:
        """Add the row under the cursor to those that a chart shows, or take it away; tell if there is one."""
        row = self.row()
        if row:
            chosen = self._workspace.session.look.chosen
            chosen = tuple(c for c in chosen if c != row) if row in chosen else (*chosen, row)
            self._questions.show(self._workspace.session.with_look(chosen=chosen))
        return bool(row)

    def row(self) -> Row:
        """Return what names the row under the cursor; empty where it is on none."""
        picture = self._workspace.picture
        if not self._workspace.shows_view or picture is None:
            return ()
        table = self._renderer.table
        row = table.sheet.identity(table.cursor) if self._renderer.main.shows_table else ()
        return row or tuple(v for _, v in self._focus(picture))

    def enter(self) -> None:
        """Open what is inside the row under the cursor; where reasons against the rows stand, the rows."""
        workspace, look = self._workspace, self._workspace.session.look
        picture = workspace.picture
        if not workspace.shows_view or picture is None:
            return
        if workspace.doubted:
            self._questions.show(workspace.session.with_look(terms=replace(look.terms, forced=True)))
            return
        focus = self.focus()
        target = self._deeper(focus)
        if target is None:
            self._renderer.tell("there is nothing further in")
        else:
            self._questions.show(workspace.session.inside(target, focus))

    def focus(self) -> Focus:
        """Return what Enter at the cursor asks about; empty where it is on nothing."""
        picture, main = self._workspace.picture, self._renderer.main
        if picture is None or not (main.shows_table or main.has_cursor):
            return ()
        self._questions.remember_cursor()
        return self._focus(picture)

    def _focus(self, picture: Picture) -> Focus:
        """Return what Enter at the cursor asks about; empty where it is on nothing."""
        return entered(picture.question.view, picture.answer, self._workspace.session.look)

    def _deeper(self, focus: Focus) -> str | None:
        """Return the view that Enter opens: one table of many, a kernel, calls of a scope, else kernels."""
        inside, here = dict(focus), self._workspace.view.name
        if "table" in inside and not self._workspace.session.look.focus:
            return here
        if not inside or here in LEAVES or "table" in inside:
            return None
        if "scope" in inside:
            return "calls"
        if "name" in inside and isinstance(self._workspace.session.run, ManyFiles):
            return "ranks"  # in which of the files it takes longest
        return "pair" if here == "diff" else "detail" if "name" in inside else "kernels"
