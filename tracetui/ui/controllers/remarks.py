"""What a person remarks of rows: marks and notes, which are kept beside the recording."""

from dataclasses import replace
from typing import Final

from capture.errors import CaptureError
from tracetui.ui import kept_remarks
from tracetui.ui.controllers.input import Entry, InputLine
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.remarks import Row
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace

HINT: Final = "about this row; Enter keeps it, nothing takes it away"


class RowRemarks:
    """Marks the row under the cursor, or takes down what a person says of it."""

    def __init__(
        self, workspace: Workspace, renderer: Renderer, navigation: Navigation, input_line: InputLine
    ) -> None:
        self._workspace, self._renderer = workspace, renderer
        self._navigation, self._input = navigation, input_line

    def mark(self) -> None:
        """Mark the row, or mark it no longer."""
        if self._navigation.mark() and not self._workspace.session.trail:
            self._keep()

    def open_note(self) -> None:
        """Ask for a note about the row."""
        row = self._navigation.row()
        if not row or not self._renderer.main.shows_table:
            self._renderer.tell("a note is about a row of a table")
        elif self._workspace.session.trail:
            self._renderer.tell("a note is about a row of a whole view; Esc leads there")
        else:
            text = self._workspace.session.notes.get(row, "")
            self._input.open(Draft.of("note", HINT, text), Entry(lambda said: self._note(row, said)))

    def _note(self, row: Row, text: str) -> None:
        session = self._workspace.session
        text = text.strip()[: kept_remarks.LONGEST]
        remarks = session.remarks.noted(session.where(session.view), row, text)
        self._workspace.session = replace(session, remarks=remarks)
        self._renderer.show_picture(grown=True)
        self._keep()

    def _keep(self) -> None:
        session = self._workspace.session
        if self._workspace.options.keeps and session.run is not None:
            try:
                kept_remarks.keep(session.remarks, session.run.log.source)
            except CaptureError as e:
                self._renderer.tell(str(e))
