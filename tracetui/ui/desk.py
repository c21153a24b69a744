"""The desk under the keys: what is open, the question being asked, the answer in sight."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from capture.run import Run
from tracetui import kept_links
from tracetui.ui.first_session import opened
from tracetui.ui.messages import (
    Answered,
    LeaveAsked,
    LoadFailed,
    Refused,
    RunsChanged,
    Sized,
    ViewsKnown,
    WordsChanged,
)
from tracetui.ui.options import Options
from tracetui.ui.pages import loading
from tracetui.ui.panes.table import EMPTY
from tracetui.ui.run_info import Facts
from tracetui.ui.session import Session, same_question
from tracetui.ui.sheet import Sheet
from tracetui.ui.showing import Showing
from tracetui.ui.terminal.driver import Driver
from tracetui.ui.workers.ask import Question, reply
from tracetui.ui.workers.follow import Following
from tracetui.ui.workers.latest import Latest
from tracetui.ui.workers.read import Reading
from tracetui.views import Answer
from tracetui.views.ink import Line, Size

REFRESH: Final = 0.25  # seconds between two pictures of loading
SLOW: Final = 1.5
STILL: Final = "still at it …"


class Desk(Showing):
    """What is read and what is asked; no key is named here."""

    def __init__(
        self, reading: Reading | Following | None, options: Options, driver: type[Driver] | None = None
    ) -> None:
        kept = kept_links.kept()
        terms = replace(options.look.terms, links=(*options.look.terms.links, *kept))
        start = replace(options.look, full_names=False, terms=terms)
        super().__init__(Session(start=start), reading, options, driver)
        self.kept = kept
        self.opened: tuple[tuple[Run, Facts], ...] = ()  # saved runs, in front of those that are read
        self.failed = 0  # the exit code of what went wrong
        self._refusal = ""  # why nothing is shown
        self._before = "loading"  # the page that the options stand in place of
        self._latest = Latest("answers")
        self._ticket = 0
        self._asked_at = 0.0
        self._answer_of = 0  # the ticket of the answer in sight
        self._keep_row = False
        self._sheet = EMPTY
        self.shown_view = ""  # whose answer is in sight
        self._lines: Sequence[Line] | None = None
        self._drawn_for = Size(0, 0)
        self._cell = (0, 0)  # where the cursor of the drawing in sight is
        self._waiting: RunsChanged | None = None

    # reading

    def on_mount(self) -> None:
        self.call_after_refresh(self._show_first)
        if self._reading is not None:
            self._reading.start(self.post_message)
            self.set_interval(REFRESH, self._tick, name="progress")

    def _show_first(self) -> None:
        """The first frame says what is going on: nobody wonders at an empty one."""
        self.show_bands()
        self._progress()
        if self.following is not None and self.following.engine is not None:
            self.call_after_refresh(self.following.engine.sample)

    def _tick(self) -> None:
        self._progress()
        slow = not self.answered and time.monotonic() > self._asked_at + SLOW
        if slow and self._told != STILL:
            self.tell(STILL)

    def _progress(self) -> None:
        if self.page == "loading" and self._reading is not None:
            self.show_lines(loading.lines(self._reading, self.size.width, self.options.ascii))

    def on_words_changed(self, message: WordsChanged) -> None:
        self._progress()

    def on_leave_asked(self, message: LeaveAsked) -> None:
        self.exit(return_code=message.code)

    def on_load_failed(self, message: LoadFailed) -> None:
        self.page, self.failed = "refused", message.error.exit_code
        self._refusal = str(message.error)
        self._show_refusal()
        self.show_bands()

    def _show_refusal(self) -> None:
        ours = self.following is not None and self.following.engine is not None
        ways_out = "R starts it anew    E with other options    q leaves" if ours else "q leaves"
        self.show_lines(loading.refused(self._refusal, self.size.width, ways_out))

    def start_over(self) -> None:
        """Another engine is at work: where nothing was seen of the last one, what it is doing is shown."""
        self.tell("started anew")
        if not self.session.runs:
            self.page, self.failed = "loading", 0

    def show_options(self, offered: Sequence[str]) -> None:
        """What the engine may be asked, in place of what is seen while its arguments are edited."""
        self._before = self.page if self.page != "options" else self._before
        self.page = "options"
        self.show_lines(loading.options(offered, self.size.width))

    def leave_options(self) -> None:
        """Back to what was seen before."""
        if self.page != "options":
            return
        self.page = self._before
        if self.page == "refused":
            self._show_refusal()
        elif self.views:
            self.page = "view"
            self._show_answer()

    def on_runs_changed(self, message: RunsChanged) -> None:
        """The first runs open the first view; of newer ones the last counts."""
        if not self.session.runs:
            self._open(message)
            return
        self._waiting = message
        self.catch_up()

    def on_views_known(self, message: ViewsKnown) -> None:
        self.views = list(message.views)
        self.show_bands()

    def catch_up(self) -> None:
        """The newest snapshot comes into sight once the last is answered; cursor, order and looks stay."""
        if self._waiting is None or self.paused or not self.answered:
            return
        message, self._waiting = self._waiting, None
        opened, facts = [r for r, _ in self.opened], [f for _, f in self.opened]
        self.session = self.session.with_runs([*opened, *message.runs], [*facts, *message.facts])
        if self.page == "view":  # what stands in its place stays there
            self._keep_row = True
            self._start(None)  # head and rows change at once, when the answer comes

    def _open(self, message: RunsChanged) -> None:
        start = opened(self.session.with_runs(message.runs, message.facts), message.views, self.options)
        self.views = list(message.views)
        self.page = "view"
        self.session = start.session
        self.ask()
        if start.told:
            self.tell(start.told)

    # asking

    def become(self, session: Session) -> None:
        """Another moment of the session: asked anew, or only drawn anew."""
        old, self.session = self.session, session
        if not self.views:
            return
        if self.page != "view" or not same_question(old, session):
            self.page = "view"
            self.ask()
        elif old.look != session.look:
            self.show_again()

    def ask(self) -> None:
        """The question of this moment goes to the background; older ones no longer matter."""
        self._start(None)
        self.show_bands()

    def show_again(self) -> None:
        """The same answer, looked at differently."""
        if self._lines is None:
            self._show_answer()
        else:
            self._start((self._answer, self._sheet))

    def _start(self, known: tuple[Answer, Sheet] | None) -> None:
        self._ticket += 1
        self._asked_at = time.monotonic()
        self._drawn_for = self._pane()
        question = Question(
            self._ticket, self.view, self.session.asked(self.view), self.session.look, self._drawn_for, known
        )
        self._latest.start(lambda: self.post_message(reply(question)))

    def _pane(self) -> Size:
        size = self.main.pane
        return Size(max(1, size.width), max(1, size.height), self.options.ascii)

    @property
    def ticket(self) -> int:
        """The number of the last question."""
        return self._ticket

    @property
    def answered(self) -> bool:
        """Whether the answer in sight is that of the last question."""
        return self._answer_of == self._ticket

    @property
    def answer(self) -> Answer:
        return self._answer

    def on_answered(self, message: Answered) -> None:
        if message.ticket != self._ticket:
            return
        self._close(message.ticket)
        if message.answer is self._answer and message.lines == self._lines:
            self._cell_back()
            return
        self._answer, self._sheet, self._lines = message.answer, message.sheet, message.lines
        self.shown_view = self.session.view
        self._cell = self.session.look.cursor
        self.session = replace(self.session, columns=message.sheet.sortable)
        if self.page == "view":
            self._show_answer()

    def _close(self, ticket: int) -> None:
        """A question is answered: runs that have grown since put the next."""
        self._answer_of = ticket
        self.forget(STILL)
        self.call_later(self.catch_up)

    def _cell_back(self) -> None:
        """The drawing did not change: the cursor had left its cells."""
        self.session = self.session.looking(cursor=self._cell)

    @property
    def doubted(self) -> bool:
        """Whether the reasons against the answer have to be seen before it."""
        return bool(self._answer.doubts) and not self.session.look.terms.forced

    def _show_answer(self) -> None:
        if self.doubted:
            self.main.show_drawing(loading.doubted(self._answer.doubts, self.size.width))
        elif self._lines is None:
            row = None if self._keep_row else self.session.look.cursor[0]
            self.main.show_table(self._sheet, self.session.look, row, self._answer.notes)
        else:
            lines = self._lines or loading.told(self._answer.notes, self.size.width)
            self.main.show_drawing(lines, keep_top=self._keep_row)
        self._keep_row = False
        self.show_bands()

    def on_refused(self, message: Refused) -> None:
        if message.ticket == self._ticket:
            self._close(message.ticket)
            self.failed = self.failed or (70 if message.fault else 0)
            self.tell(message.why)

    def on_sized(self, message: Sized) -> None:
        """A drawing is made for the size that it has: a screen's own comes before that of its panes."""
        if self.page != "view" or self._drawn_for == self._pane():
            return
        if not self.answered:
            self._start(None)
        elif self._lines is not None:
            self._start((self._answer, self._sheet))
