"""Move the cursor: rows of tables, cells of drawings, slices of timelines, lines of texts."""

from typing import Final

from capture.run import Run
from tracetui.analysis import slices
from tracetui.analysis.slices import SlicePosition, TimelineFrames
from tracetui.ui.answer_updates import AnswerUpdater
from tracetui.ui.renderer import Renderer
from tracetui.ui.session_commands import move_in_time
from tracetui.ui.workspace import Workspace

FAR_ROWS: Final = 1 << 20


class TimelineCursor:
    """Moves the cursor among the slices of a timeline, and the displayed time with it."""

    def __init__(self, workspace: Workspace, renderer: Renderer, answers: AnswerUpdater) -> None:
        self._workspace, self._renderer, self._answers = workspace, renderer, answers

    @property
    def is_shown(self) -> bool:
        """Whether the current view is a timeline."""
        workspace = self._workspace
        return workspace.is_showing_view and workspace.view.has_time_axis

    def move_by_rows(self, rows: int) -> None:
        """Move down (or up) by rows, to the slice nearest in time."""
        parts = self._parts
        if parts is not None:
            target = slices.find_slice_below(parts, self._slice, rows)
            self._answers.show_session(self._workspace.session.with_look(slice=target))

    def move_to_next(self, direction: int) -> None:
        """Move to the next (1) or previous (-1) slice of the lane that matches the filter."""
        parts, run = self._parts, self._run
        if parts is not None and run is not None:
            target = slices.find_next_slice(run, self._workspace.session.look, parts, direction)
            self._show_slice(parts, target, "there is no other match")

    def select_at(self, column: int, line: int) -> None:
        """Move to the slice that is drawn in a cell, if any."""
        picture, session = self._workspace.displayed_picture, self._workspace.session
        if not self.is_shown or picture is None or picture.question.view.find_slice_in_cell is None:
            return
        find_slice = picture.question.view.find_slice_in_cell
        target = find_slice(picture.answer, picture.look, picture.size, column, line)
        if target is not None:
            self._answers.show_session(session.with_look(slice=target))

    def follow_launch(self) -> None:
        """Move from a kernel to the call that launched it, or from a call to its first kernel."""
        parts, run = self._parts, self._run
        if parts is not None and run is not None:
            target = slices.find_launch_counterpart(run, parts, self._slice)
            self._show_slice(parts, target, "no launch is known for this")

    @property
    def _slice(self) -> SlicePosition | None:
        return self._workspace.session.look.slice

    @property
    def _run(self) -> Run | None:
        return self._workspace.session.run

    @property
    def _parts(self) -> TimelineFrames | None:
        """The frames of the displayed timeline; None if it has no slices."""
        picture = self._workspace.displayed_picture
        return (
            picture.answer.parts if self.is_shown and picture is not None and picture.answer.parts else None
        )

    def _show_slice(self, parts: TimelineFrames, target: SlicePosition | None, missing: str) -> None:
        """Move the cursor to a slice, and the displayed time if it does not contain it."""
        if target is None:
            self._renderer.show_message(missing)
            return
        low, high, start, end = parts["window"].row(0)
        window = slices.move_window_to((low, high), (start, end), target)
        moved = {} if window == (low, high) else {"zoom": window}
        self._answers.show_session(self._workspace.session.with_look(slice=target, **moved))


class CursorController:
    """Moves the cursor of a table or drawing, the time of a timeline, or the lines of a text."""

    def __init__(
        self, workspace: Workspace, renderer: Renderer, answers: AnswerUpdater, slices: TimelineCursor
    ) -> None:
        self._workspace, self._renderer, self._answers = workspace, renderer, answers
        self._slices = slices

    def move_down(self) -> None:
        self._move(1, 0)

    def move_up(self) -> None:
        self._move(-1, 0)

    def move_right(self) -> None:
        self._move(0, 1)

    def move_left(self) -> None:
        self._move(0, -1)

    def move_page_down(self) -> None:
        self._move_by_pages(1)

    def move_page_up(self) -> None:
        self._move_by_pages(-1)

    def move_half_page_down(self) -> None:
        self._move_by_pages(0.5)

    def move_half_page_up(self) -> None:
        self._move_by_pages(-0.5)

    def move_to_first(self) -> None:
        self._move_far(-FAR_ROWS)

    def move_to_last(self) -> None:
        self._move_far(FAR_ROWS)

    def _move_far(self, by: int) -> None:
        """Move to the first or last row; on a timeline, to its start or end."""
        in_time = self._workspace.is_showing_view and self._workspace.view.has_time_axis
        self._move(0 if in_time else by, by if in_time else 0)

    def _move(self, rows: int, columns: int) -> None:
        screen, workspace = self._renderer.main_screen, self._workspace
        if screen.shows_table:
            if columns:
                screen.table.shift_columns(columns)
            else:
                screen.table.move(rows)
                self._answers.save_cursor()
        elif self._slices.is_shown and columns:
            self._answers.show_session(move_in_time(workspace.session, columns))
        elif self._slices.is_shown:
            self._slices.move_by_rows(rows)
        elif workspace.is_showing_view and screen.has_cursor:
            self._move_cell(rows, columns)
        else:
            screen.drawing.scroll_lines(rows)

    def _move_by_pages(self, pages: float) -> None:
        screen = self._renderer.main_screen
        if screen.shows_table:
            screen.table.move_by_pages(pages)
            self._answers.save_cursor()
        else:
            self._move(round(pages * screen.pane_size.height), 0)

    def _move_cell(self, rows: int, columns: int) -> None:
        """Move to another cell; outside of the drawing it comes out unchanged, and the cursor is restored."""
        session, picture = self._workspace.session, self._workspace.picture
        row, column = session.look.cursor
        last = max(0, picture.answer.rows.height - 1) if picture is not None else 0
        cursor = (max(0, min(last, row + rows)), max(0, column + columns))
        self._answers.show_session(session.with_look(cursor=cursor))
