"""Which columns of a table are shown, and in which order: chosen on a list, and kept for the next screen."""

from capture.errors import CaptureError
from tracetui import kept_columns
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.pages.columns import ColumnList
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace


class Columns:
    """The list of columns."""

    def __init__(self, workspace: Workspace, renderer: Renderer, navigation: Navigation) -> None:
        self._workspace, self._renderer, self._navigation = workspace, renderer, navigation

    def toggle_list(self) -> None:
        """Put the list in place of the table; the same key closes it."""
        workspace, table = self._workspace, self._renderer.table
        if isinstance(workspace.page, ColumnList):
            self._navigation.leave_page()
        elif workspace.shows_view and self._renderer.main.shows_table and workspace.picture is not None:
            in_sight = tuple(column.name for column in table.columns[1:])
            workspace.page = ColumnList(workspace.picture.sheet, in_sight)
            self._renderer.show_page()

    def choose(self, page: ColumnList) -> None:
        """Show the column under the cursor, or hide it."""
        chosen, row = self._workspace.session.look.columns, self._renderer.table.cursor
        self._take(page, page.toggled(chosen, row), page.name(chosen, row))

    def move(self, by: int) -> None:
        """Move the column under the cursor to the left or right."""
        page, chosen = self._workspace.page, self._workspace.session.look.columns
        if isinstance(page, ColumnList):
            row = self._renderer.table.cursor
            self._take(page, page.moved(chosen, row, by), page.name(chosen, row))

    def _take(self, page: ColumnList, columns: tuple[str, ...], name: str) -> None:
        """Show these from now on, with the cursor of the list on a column of them."""
        workspace = self._workspace
        workspace.session = workspace.session.with_columns(columns)
        self._renderer.show_page(page.row(columns, name) if name else 0)
        if workspace.options.keeps:
            try:
                kept_columns.keep({**kept_columns.kept(), workspace.session.view: columns})
            except CaptureError as e:
                self._renderer.tell(str(e))
