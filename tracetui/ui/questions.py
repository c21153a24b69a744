"""Keeps in sight the answer to what the session asks."""

import time
from dataclasses import dataclass, replace
from typing import Final

from tracetui.look import Look
from tracetui.ui.messages import Answered, Refused
from tracetui.ui.pages.page import ViewPage
from tracetui.ui.question import Picture, without_rows
from tracetui.ui.renderer import Renderer
from tracetui.ui.session import Session
from tracetui.ui.workers import ask
from tracetui.ui.workers.ask import Job
from tracetui.ui.workers.feed import Post
from tracetui.ui.workers.pool import Pool
from tracetui.ui.workspace import Workspace
from tracetui.views.ink import Size

SLOW: Final = 1.5  # seconds after which a person is told that the answer is still to come
STILL: Final = "still at it …"
FAULT: Final = 70  # the exit code after a fault of ours


@dataclass(frozen=True, eq=False)
class Pending:
    """A picture that is being made."""

    job: Job
    since: float
    grown: bool  # whether only the runs have changed: what is in sight answers the same question


class Questions:
    """Asks, orders and draws in the background; a picture is shown only while its question is asked."""

    def __init__(self, workspace: Workspace, renderer: Renderer, pool: Pool, post: Post) -> None:
        self._workspace, self._renderer, self._pool, self._post = workspace, renderer, pool, post
        self._number = 0
        self._pending: Pending | None = None

    @property
    def answered(self) -> bool:
        """Whether the picture in sight is that of this moment, and none is being made."""
        return self._pending is None

    @property
    def unanswered(self) -> bool:
        """Whether what is in sight does not answer yet what is asked: keys that act on it have to wait."""
        return self._pending is not None and not self._pending.grown

    def show(self, session: Session) -> None:
        """Make this the session, on the page of its view, and bring its picture."""
        other_view = session.view != self._workspace.session.view
        before = self._workspace.question if self._workspace.picture is not None else None
        self._workspace.session = session
        if before is not None and not before.is_same(self._workspace.question):
            self._renderer.main.begin_at_top(other_view=other_view)
        if self._workspace.views:
            self._workspace.page = ViewPage()
            self.update()

    def update(self, *, grown: bool = False) -> None:
        """Bring the picture of this moment: show the one at hand where it fits, else have it made."""
        workspace = self._workspace
        if not workspace.views:
            return
        question, look, size = workspace.question, workspace.session.look, self._renderer.pane_size()
        shown = workspace.picture
        if shown is not None and shown.question.is_same(question):
            if shown.fits(look, size):
                self._stop()
                self._show(replace(shown, look=look), grown=grown)
            else:
                self._make(Job(self._next(), question, look, size, shown), grown=grown)
        elif self._pending is not None and self._pending.job.question.is_same(question):
            self._look_again(look, size)
        else:
            self._make(Job(self._next(), question, look, size), grown=grown)

    def _look_again(self, look: Look, size: Size) -> None:
        """Draw what is in sight for another look while its question is being answered anew."""
        pending, shown = self._pending, self._workspace.in_sight
        if pending is None or not pending.grown or shown is None:
            return
        if shown.fits(look, size):
            self._show(replace(shown, look=look), grown=True)
        else:
            self._pending = replace(pending, grown=False)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _make(self, job: Job, *, grown: bool) -> None:
        self._pending = Pending(job, time.monotonic(), grown)
        self._pool.start(lambda: self._answer(job, ahead=not grown))
        if not grown:
            self._renderer.show_bands()

    def _answer(self, job: Job, *, ahead: bool) -> None:
        """Post the picture; then find `ahead` what the next keys will ask for, until another is wanted."""
        self._post(ask.reply(job))
        if ahead:
            ask.prepare(job.question)

    def _stop(self) -> None:
        """Forget the picture that is being made; its thread ends at its next check."""
        if self._pending is not None:
            self._pending = None
            self._pool.cancel()
            self._renderer.forget(STILL)

    # what comes back

    def take(self, message: Answered) -> None:
        """Show a picture, where it is the one that is waited for."""
        pending = self._arrived(message.number)
        if pending is None:
            return
        picture, shown, size = message.picture, self._workspace.picture, self._renderer.pane_size()
        look = self._workspace.session.look
        if shown is not None and _looks_the_same(shown, picture):
            self._put_cursor_back(picture, shown.look.cursor)
            if self._workspace.shows_view and self._renderer.covered:
                self._renderer.show_picture()
        elif picture.fits(look, size):
            self._show(picture, grown=pending.grown)
        else:  # it was never in sight: only what is drawn of it now will be
            self._make(Job(self._next(), pending.job.question, look, size, picture), grown=pending.grown)

    def refuse(self, message: Refused) -> None:
        """Show why there is no answer: in the status line, and in place of the rows."""
        pending = self._arrived(message.number)
        if pending is None:
            return
        if message.fault:
            self._workspace.exit_code = self._workspace.exit_code or FAULT
        job = pending.job
        self._show(without_rows(job.question, message.why, job.look, job.size), grown=False)
        self._renderer.tell(message.why)

    def refit(self) -> None:
        """Draw again for another size of the pane, which comes after that of the screen."""
        picture = self._workspace.in_sight
        text = picture is not None and (picture.lines is not None or self._workspace.doubted)
        if text and picture is not None and picture.size != self._renderer.pane_size():
            self.update()

    def tell_slow(self) -> None:
        """Say that an answer is still to come, where it has been for long."""
        slow = self._pending is not None and time.monotonic() > self._pending.since + SLOW
        if slow and self._renderer.message != STILL:
            self._renderer.tell(STILL)

    def _arrived(self, number: int) -> Pending | None:
        """Return what was waited for, where this is its number; then nothing is waited for any more."""
        pending = self._pending
        if pending is None or pending.job.number != number:
            return None
        self._pending = None
        self._renderer.forget(STILL)
        return pending

    def _show(self, picture: Picture, *, grown: bool) -> None:
        workspace = self._workspace
        workspace.picture = picture
        moments = picture.answer.parts["window"].row(0) if "window" in picture.answer.parts else None
        sheet = picture.sheet
        of_text = frozenset(c.name for c in sheet.columns if c.kind in ("name", "whole", "text"))
        workspace.session = replace(
            workspace.session, columns=sheet.sortable, of_text=of_text, moments=moments
        )
        if workspace.shows_view:
            self._renderer.show_picture(grown=grown)
            if grown:
                self.remember_cursor()

    def remember_cursor(self) -> None:
        """Put the row of the table into the look, so that coming back finds it."""
        workspace, main = self._workspace, self._renderer.main
        if workspace.shows_view and main.shows_table and workspace.in_sight is not None:
            workspace.session = workspace.session.with_look(cursor=(main.table.cursor, 0))

    def _put_cursor_back(self, picture: Picture, cursor: tuple[int, int]) -> None:
        """Put the cursor back where it was: the drawing came out the same, so it had left its cells."""
        workspace = self._workspace
        workspace.session = workspace.session.with_look(cursor=cursor)
        workspace.picture = replace(picture, look=replace(picture.look, cursor=cursor))


def _looks_the_same(old: Picture, new: Picture) -> bool:
    """Return whether a drawing of the same answer has come out the same."""
    if new.lines is None or new.given is not old.given:
        return False
    return new.lines == old.lines and new.look.terms.forced == old.look.terms.forced
