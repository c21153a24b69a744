"""Moving inside what is in sight."""

from typing import Final

from tracetui.ui.commands import pan
from tracetui.ui.controllers.timeline import Slices
from tracetui.ui.questions import Questions
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace

FARTHEST: Final = 1 << 20


class Cursor:
    """Moves the cursor of a table or drawing, time on a timeline, or the lines of a text."""

    def __init__(
        self, workspace: Workspace, renderer: Renderer, questions: Questions, slices: Slices
    ) -> None:
        self._workspace, self._renderer, self._questions = workspace, renderer, questions
        self._slices = slices

    def down(self) -> None:
        self._move(1, 0)

    def up(self) -> None:
        self._move(-1, 0)

    def right(self) -> None:
        self._move(0, 1)

    def left(self) -> None:
        self._move(0, -1)

    def page_down(self) -> None:
        self._turn(1)

    def page_up(self) -> None:
        self._turn(-1)

    def half_down(self) -> None:
        self._turn(0.5)

    def half_up(self) -> None:
        self._turn(-0.5)

    def first(self) -> None:
        self._go_far(-FARTHEST)

    def last(self) -> None:
        self._go_far(FARTHEST)

    def _go_far(self, by: int) -> None:
        """Move to the first or last row; on a timeline to its begin or end."""
        over_time = self._workspace.shows_view and self._workspace.view.over_time
        self._move(0 if over_time else by, by if over_time else 0)

    def _move(self, rows: int, columns: int) -> None:
        main, workspace = self._renderer.main, self._workspace
        if main.shows_table:
            if columns:
                main.table.shift(columns)
            else:
                main.table.move(rows)
                self._questions.remember_cursor()
        elif self._slices.in_sight and columns:
            self._questions.show(pan(workspace.session, columns))
        elif self._slices.in_sight:
            self._slices.move(rows)
        elif workspace.shows_view and main.has_cursor:
            self._move_cell(rows, columns)
        else:
            main.scroll_drawing(rows)

    def _turn(self, pages: float) -> None:
        main = self._renderer.main
        if main.shows_table:
            main.table.turn(pages)
            self._questions.remember_cursor()
        else:
            self._move(round(pages * main.pane.height), 0)

    def _move_cell(self, rows: int, columns: int) -> None:
        """Go to another cell; where the drawing ends, it comes out the same and the cursor goes back."""
        session, picture = self._workspace.session, self._workspace.picture
        row, column = session.look.cursor
        last = max(0, picture.answer.rows.height - 1) if picture is not None else 0
        cursor = (max(0, min(last, row + rows)), max(0, column + columns))
        self._questions.show(session.with_look(cursor=cursor))
