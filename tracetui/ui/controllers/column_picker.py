"""Choose the columns of a table and their order on a list; the choice is saved for the next session."""

from capture.errors import CaptureError
from tracetui import saved_choices
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.pages.list_pages import ColumnList
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace


class ColumnPicker:
    """Opens the list of columns, and applies what is chosen on it."""

    def __init__(self, workspace: Workspace, renderer: Renderer, navigation: Navigation) -> None:
        self._workspace, self._renderer, self._navigation = workspace, renderer, navigation

    def toggle_list(self) -> None:
        """Show the list in place of the table, or close it."""
        workspace, table = self._workspace, self._renderer.table
        if isinstance(workspace.page, ColumnList):
            self._navigation.leave_page()
        elif (
            workspace.is_showing_view
            and self._renderer.main_screen.shows_table
            and workspace.picture is not None
        ):
            displayed = tuple(column.name for column in table.columns[1:])
            workspace.page = ColumnList(workspace.picture.sheet, displayed)
            self._renderer.show_page()

    def toggle_column(self, page: ColumnList) -> None:
        """Show or hide the column under the cursor."""
        chosen, row = self._workspace.session.look.columns, self._renderer.table.cursor
        self._set_columns(page, page.toggle_column(chosen, row), page.find_column(chosen, row))

    def move_column(self, by: int) -> None:
        """Move the column under the cursor to the right, or to the left if negative."""
        page, chosen = self._workspace.page, self._workspace.session.look.columns
        if isinstance(page, ColumnList):
            row = self._renderer.table.cursor
            self._set_columns(page, page.move_column(chosen, row, by), page.find_column(chosen, row))

    def _set_columns(self, page: ColumnList, columns: tuple[str, ...], name: str) -> None:
        """Set the columns of the view; the cursor of the list goes to column `name`."""
        workspace = self._workspace
        workspace.session = workspace.session.with_columns(columns)
        self._renderer.show_page(page.find_row(columns, name) if name else 0)
        if workspace.options.saves_choices:
            try:
                saved_choices.save_columns({**saved_choices.load_columns(), workspace.session.view: columns})
            except CaptureError as e:
                self._renderer.show_message(str(e))
