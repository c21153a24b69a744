"""Change page and tab: open and leave pages, open tabs, sort, go back."""

from typing import Final

from tracetui.ui.controllers.base import Controller
from tracetui.ui.pages import ViewPage
from tracetui.ui.pages.help_page import GuideList, GuidePage, HelpPage
from tracetui.ui.pages.list_pages import ColumnList, RowHistory, RunList
from tracetui.ui.pages.text_pages import LoadingPage, NotesPage, OutputPage, RefusedPage
from tracetui.ui.session_commands import Command, go_back, sort_further, sort_or_reverse

CANCELLED_EXIT: Final = 130  # the user quit while files were read


class Navigation(Controller):
    """Changes the page, and the view that the session shows."""

    # pages

    def quit(self) -> None:
        is_loading = isinstance(self._workspace.page, LoadingPage)
        self._workspace.request_engine_stop()
        self._parts.close(CANCELLED_EXIT if is_loading else self._workspace.exit_code)

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

    def go_back(self) -> None:
        """Leave the help, a list or another page; in a view, clear the filter or go one level up."""
        page = self._workspace.page
        if isinstance(page, GuidePage):
            self.show_page(GuideList())
        elif isinstance(page, GuideList):
            self._open_help()
        elif isinstance(page, OutputPage):
            self.show_page(page.before or ViewPage())
        elif isinstance(page, HelpPage | NotesPage | RunList | RowHistory | ColumnList):
            self.show_page(ViewPage())  # its runs may have grown meanwhile
        elif isinstance(page, RefusedPage) or (
            isinstance(page, LoadingPage) and self._workspace.live is None
        ):
            self.quit()  # but not while an engine starts: a slip must not lose it
        else:
            self.apply_command(go_back)

    # the session

    def open_now(self) -> None:
        """Open the last seconds of a growing run; a saved one has none."""
        if self._workspace.options.follow:
            self.apply_command(lambda session: session.with_view("now"))
        else:
            self._renderer.show_message("Now needs a run that is being recorded; this one is saved")

    def apply_command(self, command: Command) -> None:
        """Apply a command to the session if a view is shown."""
        if self._workspace.is_showing_view:
            self._answers.show_session(command(self._workspace.session))

    def open_tab(self, number: int) -> None:
        """Show the view of a tab, counted from 1, if it exists."""
        tabs = self._workspace.tabs
        if number <= len(tabs):
            self._answers.show_session(self._workspace.session.with_view(tabs[number - 1].name))

    def open_view(self, name: str) -> None:
        """Show a view, which need not have a tab."""
        self._answers.show_session(self._workspace.session.with_view(name))

    def open_tab_at(self, column: int) -> None:
        """Show the view of the tab at a column of the screen, if any."""
        tab = self._renderer.find_tab_at(column)
        if tab is not None:
            self.open_tab(tab)

    def open_neighbour(self, direction: int) -> None:
        """Open the next tab in a direction, in a circle, that the run has data for."""
        possible = [i for i, (_, can) in enumerate(self._workspace.tab_titles) if can]
        if possible:
            ahead = [i for i in possible if (i - self._workspace.tab_index) * direction > 0]
            self.open_tab((ahead or possible)[0 if direction > 0 else -1] + 1)

    def go_to_place(self, direction: int) -> None:
        """Go back (-1) to the previous place, with its filter and cursor, or forward again (1)."""
        places, session = self._workspace.places, self._workspace.session
        moved = places.go_back(session) if direction < 0 else places.go_forward(session)
        if moved is None:
            self._renderer.show_message(f"no place {'before' if direction < 0 else 'after'} this one")
        else:
            self._answers.show_place(moved)

    def toggle_notes(self) -> None:
        """Show all notes of the view, or the view again."""
        picture = self._workspace.displayed_picture
        if isinstance(self._workspace.page, NotesPage):
            self.show_page(ViewPage())
        elif self._workspace.is_showing_view and picture is not None:
            self.show_page(NotesPage(picture.question.view.title, picture.answer.notes))

    def sort_by(self, column: str, *, further: bool = False) -> None:
        """Sort by a column; `further` sorts equal rows of the present order."""
        self.apply_command(lambda session: (sort_further if further else sort_or_reverse)(session, column))
