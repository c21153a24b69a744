"""Keep the displayed answer up to date: compute what the session asks in background threads, newest first."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl
from polars.exceptions import PanicException

from capture.errors import CaptureError
from capture.stderr_mute import mute_stderr
from capture.tasks import Cancelled, CancelToken, use_token
from tracetui.analysis.frames import name_filter
from tracetui.look import Look
from tracetui.ui.messages import Answered, describe_fault
from tracetui.ui.pages import ViewPage
from tracetui.ui.question import Picture, Question, build_refusal_picture, make_picture
from tracetui.ui.renderer import Renderer
from tracetui.ui.session import Session
from tracetui.ui.sheet import Sheet
from tracetui.ui.workers.feed import Post
from tracetui.ui.workspace import Workspace
from tracetui.views import list_heads
from tracetui.views.ink import DrawSize

THREADS: Final = 3
SLOW_ANSWER_S: Final = 1.5  # after which the status line says that an answer is still being computed
SLOW_MESSAGE: Final = "still computing …"
INTERNAL_ERROR_EXIT: Final = 70

Task = Callable[[], object]


class NewestTaskPool:
    """Runs the newest task at once in a daemon thread, so that quitting never waits for it.

    A new task cancels the one before. A cancelled task occupies its thread until its next `check_cancelled`;
    if all threads are occupied, only the newest task waits for a free one.
    """

    def __init__(self, name: str, threads: int = THREADS) -> None:
        self._name, self._most_threads = name, threads
        self._changed = threading.Condition()
        self._waiting: tuple[Task, CancelToken] | None = None
        self._token = CancelToken()  # of the newest task
        self.threads = self.idle = 0  # threads started, and those of them that wait for a task

    def start(self, task: Task) -> CancelToken:
        """Cancel the task before and run this one; return the token that cancels it."""
        with self._changed:
            self._token.cancel()
            self._token = CancelToken()
            self._waiting = task, self._token
            if not self.idle and self.threads < self._most_threads:
                self.threads += 1
                threading.Thread(target=self._run_tasks, name=self._name, daemon=True).start()
            self._changed.notify()
            return self._token

    def cancel(self) -> None:
        """Cancel the newest task."""
        with self._changed:
            self._token.cancel()
            self._waiting = None

    def _run_tasks(self) -> None:
        while True:
            task, token = self._wait_for_task()
            try:
                with use_token(token):
                    task()
            except Cancelled:
                pass
            except BaseException:
                with self._changed:
                    self.threads -= 1
                raise
            del task, token  # what they refer to may be large

    def _wait_for_task(self) -> tuple[Task, CancelToken]:
        with self._changed:
            self.idle += 1
            while self._waiting is None:
                self._changed.wait()
            self.idle -= 1
            task, self._waiting = self._waiting, None
            return task


@dataclass(frozen=True, eq=False)
class AnswerJob:
    """A picture to make; `previous` is a picture of the same question, whose answer is reused."""

    number: int
    question: Question
    look: Look
    size: DrawSize
    previous: Picture | None
    is_growth: bool  # only the runs have changed: the displayed picture answers the same question
    start_s: float = field(default_factory=time.monotonic)


def answer_job(job: AnswerJob) -> Answered:
    """Return the picture, or that of the reason why there is none. Raises nothing but Cancelled."""
    try:
        with mute_stderr():
            return Answered(job.number, make_picture(job.question, job.look, job.size, job.previous))
    except CaptureError as e:
        why, is_internal = str(e), False
    except (Exception, PanicException) as e:
        why, is_internal = describe_fault(f"the {job.question.view.name} view failed", e), True
    return Answered(
        job.number, build_refusal_picture(job.question, why, job.look, job.size), why, is_internal
    )


def prepare_filters(question: Question) -> None:
    """Compute what a filter of the rows will need while the user reads; a fault shows when it is used."""
    with suppress(Exception, PanicException):
        for run in list_heads(question.runs) if question.view.run_count == 1 else ():
            name_filter.prepare_names(run)


class AnswerUpdater:
    """Makes pictures in the background, and shows each only while its question is still the session's."""

    def __init__(self, workspace: Workspace, renderer: Renderer, pool: NewestTaskPool, post: Post) -> None:
        self._workspace, self._renderer, self._pool, self._post = workspace, renderer, pool, post
        self._number = 0
        self._pending: AnswerJob | None = None
        self._is_prepared = False  # whether a filter of the newest answer has what it needs

    @property
    def is_answered(self) -> bool:
        """Whether the displayed picture is up to date and none is being made."""
        return self._pending is None

    @property
    def is_stale(self) -> bool:
        """Whether the displayed picture answers another question: keys that act on it have to wait."""
        return self._pending is not None and not self._pending.is_growth

    def show_session(self, session: Session) -> None:
        """Replace the session, go to the page of its view, and update the picture."""
        self._workspace.places.leave(self._workspace.session, session)
        self.show_place(session)

    def show_place(self, session: Session) -> None:
        """Show a session without a new entry in the history of places."""
        other_view = session.view != self._workspace.session.view
        before = self._workspace.question if self._workspace.picture is not None else None
        self._workspace.session = session
        if other_view:
            self._renderer.message = ""  # is about the view that is left
        if before is not None and not before.is_same(self._workspace.question):
            self._renderer.main_screen.reset_scroll(other_view=other_view)
        if self._workspace.views:
            self._workspace.page = ViewPage()
            self.update()

    def update(self, *, grown: bool = False) -> None:
        """Show the picture at hand if it is current, else start to make one."""
        workspace = self._workspace
        if not workspace.views:
            return
        question, look, size = workspace.question, workspace.session.look, self._renderer.measure_pane()
        picture = workspace.picture
        if picture is not None and picture.question.is_same(question):
            if picture.is_current_for(look, size):
                self._cancel_job()
                self._show_picture(replace(picture, look=look), grown=grown)
            else:
                self._start_job(question, look, size, picture, grown=grown)
        elif self._pending is not None and self._pending.question.is_same(question):
            self._redraw_growing(look, size)
        else:
            self._start_job(question, look, size, grown=grown)

    def _redraw_growing(self, look: Look, size: DrawSize) -> None:
        """Apply another look to the displayed picture while a newer answer is being computed."""
        pending, picture = self._pending, self._workspace.displayed_picture
        if pending is None or not pending.is_growth or picture is None:
            return
        if picture.is_current_for(look, size):
            self._show_picture(replace(picture, look=look), grown=True)
        else:
            self._pending = replace(pending, is_growth=False)

    def _start_job(
        self, question: Question, look: Look, size: DrawSize, previous: Picture | None = None, *, grown: bool
    ) -> None:
        self._number += 1
        self._pending = job = AnswerJob(self._number, question, look, size, previous, grown)
        self._is_prepared = self._is_prepared and previous is not None
        self._pool.start(lambda: self._run_job(job))
        if not grown:
            self._renderer.show_bands()

    def _run_job(self, job: AnswerJob) -> None:
        """Post the picture; then prepare what the next keys may need, until another job cancels this one."""
        self._post(answer_job(job))
        if not job.is_growth and not self._is_prepared:
            prepare_filters(job.question)
            self._is_prepared = True

    def _cancel_job(self) -> None:
        """Forget the picture that is being made; its thread ends at its next check."""
        if self._pending is not None:
            self._pending = None
            self._pool.cancel()
            self._renderer.clear_message(SLOW_MESSAGE)

    def accept_answer(self, message: Answered) -> None:
        """Show a picture if it is the pending one; the status line says, too, why there is no answer."""
        job = self._pending
        if job is None or job.number != message.number:
            return
        self._pending = None
        self._renderer.clear_message(SLOW_MESSAGE)
        picture, before, size = message.picture, self._workspace.picture, self._renderer.measure_pane()
        self._workspace.session = _land(self._workspace.session, picture)
        look = self._workspace.session.look
        if not picture.is_current_for(look, size):  # the answer stays, only its drawing is made again
            self._start_job(job.question, look, size, picture, grown=job.is_growth)
        elif before is not None and _is_drawn_equal(before, picture):
            rows = look.cursor[0] - before.look.cursor[0]
            self._restore_cursor(picture, before.look.cursor)
            self._renderer.main_screen.drawing.scroll_lines(rows)
            if self._workspace.is_showing_view and self._renderer.is_covered:
                self._renderer.show_picture()
        else:
            self._show_picture(picture, grown=job.is_growth and not picture.is_refusal)
        if message.is_internal_error:
            self._workspace.exit_code = self._workspace.exit_code or INTERNAL_ERROR_EXIT
        if picture.is_refusal:
            self._renderer.show_message(message.why)

    def redraw_for_size(self) -> None:
        """Draw again after the pane was resized, which happens later than the resize of the screen."""
        picture = self._workspace.displayed_picture
        if picture is None or (picture.lines is None and not self._workspace.has_unread_doubts):
            return
        if picture.size != self._renderer.measure_pane():
            self.update()

    def notify_slow_answer(self) -> None:
        """Show a message if an answer has been pending for long."""
        slow = self._pending is not None and time.monotonic() > self._pending.start_s + SLOW_ANSWER_S
        if slow and self._renderer.message != SLOW_MESSAGE:
            self._renderer.show_message(SLOW_MESSAGE)

    def _show_picture(self, picture: Picture, *, grown: bool) -> None:
        workspace = self._workspace
        workspace.picture = picture
        parts, sheet = picture.answer.parts, picture.sheet
        text_columns = frozenset(c.name for c in sheet.columns if c.kind in ("name", "whole", "text"))
        workspace.session = replace(
            workspace.session,
            columns=sheet.sortable,
            text_columns=text_columns,
            default_order=sheet.default_order,
            timeline_window=parts["window"].row(0) if "window" in parts else None,
        )
        if workspace.is_showing_view:
            self._renderer.show_picture(grown=grown)
            workspace.session = replace(workspace.session, columns=self._list_visible_columns(sheet))
            if grown:
                self.save_cursor()

    def _list_visible_columns(self, sheet: Sheet) -> tuple[str, ...]:
        """Return the columns in sight by which rows can be sorted; all of them behind a drawing."""
        screen = self._renderer.main_screen
        if not screen.shows_table:
            return sheet.sortable
        return tuple(c.name for c in screen.table.columns if c.name in sheet.sortable)

    def save_cursor(self) -> None:
        """Store the row under the cursor in the look, so that coming back finds it."""
        workspace, screen = self._workspace, self._renderer.main_screen
        if workspace.is_showing_view and screen.shows_table and workspace.displayed_picture is not None:
            workspace.session = workspace.session.with_look(cursor=(screen.table.cursor, 0))

    def _restore_cursor(self, picture: Picture, cursor: tuple[int, int]) -> None:
        """Undo a move of the cursor that changed nothing: it had left the cells of the drawing."""
        workspace = self._workspace
        workspace.session = workspace.session.with_look(cursor=cursor)
        workspace.picture = replace(picture, look=replace(picture.look, cursor=cursor))


def _land(session: Session, picture: Picture) -> Session:
    """Return the session with the cursor on the row, or cell, that it was sent to, if the answer has it."""
    if not session.landing:
        return session
    view, answer = picture.question.view, picture.answer
    values = [(column, value) for column, value in session.landing if column in answer.rows.columns]
    session = replace(session, landing=())
    if view.find_cell is not None:
        cell = view.find_cell(answer, dict(values))
        return session.with_look(cursor=cell) if cell is not None else session
    same = [pl.col(column).cast(pl.String) == pl.lit(str(value)) for column, value in values]
    rows = answer.rows.select(pl.all_horizontal(same).arg_true()).to_series().to_list() if same else []
    return session.with_look(cursor=(rows[0], 0)) if rows else session


def _is_drawn_equal(old: Picture, new: Picture) -> bool:
    """Whether two drawings of the same answer are equal."""
    if new.lines is None or new.raw_answer is not old.raw_answer:
        return False
    return new.lines == old.lines and new.look.terms.forced == old.look.terms.forced
