"""Move the cursor: rows of tables, cells of drawings, slices of timelines, lines of texts."""

from typing import Final

from capture.run import Run
from tracetui.analysis import slices
from tracetui.analysis.slices import SlicePosition, TimelineFrames
from tracetui.ui.controllers.base import Controller
from tracetui.ui.renderer import MARGIN
from tracetui.ui.session_commands import move_in_time

FAR_ROWS: Final = 1 << 20


class CursorController(Controller):
    """Moves the cursor of a table or drawing, the slice and time of a timeline, or the lines of a text."""

    def move(self, rows: int, columns: int = 0) -> None:
        """Move down by rows, or to the right by columns; up and to the left if negative."""
        screen, workspace = self._renderer.main_screen, self._workspace
        if screen.shows_table:
            if columns:
                screen.table.shift_columns(columns)
            else:
                screen.table.move(rows)
                self._answers.save_cursor()
        elif workspace.is_showing_timeline and columns:
            self._answers.show_session(move_in_time(workspace.session, columns))
        elif workspace.is_showing_timeline:
            self._move_slice(rows)
        elif workspace.is_showing_view and screen.has_cursor:
            self._move_cell(rows, columns)
        else:
            screen.drawing.scroll_lines(rows)

    def move_far(self, direction: int) -> None:
        """Move to the first (-1) or last (1) row; on a timeline, to its start or end."""
        by = direction * FAR_ROWS
        self.move(*((0, by) if self._workspace.is_showing_timeline else (by, 0)))

    def move_by_pages(self, pages: float) -> None:
        """Move down by pages, or by a part of one; up if negative."""
        screen = self._renderer.main_screen
        if screen.shows_table:
            screen.table.move_by_pages(pages)
            self._answers.save_cursor()
        else:
            self.move(round(pages * screen.pane_size.height))

    def _move_cell(self, rows: int, columns: int) -> None:
        """Move to another cell; at an edge of the drawing, scroll what does not fit.

        Behind the last cell the drawing comes out unchanged, and the cursor is restored.
        """
        picture = self._workspace.picture
        row, column = self._workspace.session.look.cursor
        last = max(0, picture.answer.rows.height - 1) if picture is not None else 0
        cursor = max(0, min(last, row + rows)), max(-1, column + columns)  # -1: the heading of a row
        if cursor == (row, column):
            self._renderer.main_screen.drawing.scroll_lines(rows)
        else:
            self._change_look(cursor=cursor)

    # slices of a timeline

    def move_to_next_slice(self, direction: int) -> None:
        """Move to the next (1) or previous (-1) slice of the lane that matches the filter."""
        if (timeline := self._find_timeline()) is not None:
            run, parts = timeline
            target = slices.find_next_slice(run, self._workspace.session.look, parts, direction)
            self._show_slice(parts, target, "there is no other match")

    def select_slice_at(self, column: int, line: int) -> None:
        """Move to the slice that is drawn in a cell, if any."""
        picture = self._workspace.displayed_picture
        if not self._workspace.is_showing_timeline or picture is None:
            return
        find_slice = picture.question.view.find_slice_in_cell
        target = find_slice and find_slice(picture.answer, picture.look, picture.size, column - MARGIN, line)
        if target is not None:
            self._change_look(slice=target)

    def follow_launch(self) -> None:
        """Move from a kernel to the call that launched it, or from a call to its first kernel."""
        if (timeline := self._find_timeline()) is not None:
            run, parts = timeline
            target = slices.find_launch_counterpart(run, parts, self._workspace.session.look.slice)
            self._show_slice(parts, target, "the recording has no launch for this")

    def _move_slice(self, rows: int) -> None:
        """Move down (or up) by rows, to the slice nearest in time."""
        if (timeline := self._find_timeline()) is not None:
            _, parts = timeline
            self._change_look(slice=slices.find_slice_below(parts, self._workspace.session.look.slice, rows))

    def _find_timeline(self) -> tuple[Run, TimelineFrames] | None:
        """Return the run and the frames of the displayed timeline; None if it has no slices."""
        workspace, picture = self._workspace, self._workspace.displayed_picture
        if not workspace.is_showing_timeline or picture is None or workspace.session.run is None:
            return None
        return (workspace.session.run, picture.answer.parts) if picture.answer.parts else None

    def _show_slice(self, parts: TimelineFrames, target: SlicePosition | None, missing: str) -> None:
        """Move the cursor to a slice, and the displayed time if it does not contain it."""
        if target is None:
            self._renderer.show_message(missing)
            return
        low, high, start, end = parts["window"].row(0)
        window = slices.move_window_to((low, high), (start, end), target)
        self._change_look(slice=target, **({} if window == (low, high) else {"zoom": window}))
