"""Choose the columns of a table and their order on a list; the choice is saved for the next session."""

from capture.errors import CaptureError
from tracetui import saved_choices
from tracetui.ui.controllers.base import Controller
from tracetui.ui.pages import ViewPage
from tracetui.ui.pages.list_pages import ColumnList


class ColumnPicker(Controller):
    """Opens the list of columns, and applies what is chosen on it."""

    def toggle_list(self) -> None:
        """Show the list in place of the table, or close it."""
        workspace, screen = self._workspace, self._renderer.main_screen
        if isinstance(workspace.page, ColumnList):
            self.show_page(ViewPage())
        elif workspace.is_showing_view and screen.shows_table and workspace.picture is not None:
            displayed = tuple(column.name for column in screen.table.columns[1:])
            self.show_page(ColumnList(workspace.picture.sheet, displayed))

    def toggle_column(self, page: ColumnList) -> None:
        """Show or hide the column under the cursor."""
        chosen, row = self._workspace.session.look.columns, self._renderer.table.cursor
        self._set_columns(page, page.toggle_column(chosen, row), page.find_column(chosen, row))

    def move_column(self, page: ColumnList, by: int) -> None:
        """Move the column under the cursor to the right, or to the left if negative."""
        chosen, row = self._workspace.session.look.columns, self._renderer.table.cursor
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
