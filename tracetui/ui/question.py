"""A question to a view, and the picture of its answer: sorted, measured and drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.tasks import check_cancelled
from tracetui.compare.run_sides import Sides, map_runs
from tracetui.look import Look
from tracetui.ui.session import Session
from tracetui.ui.sheet import EMPTY, Sheet, measure_sheet
from tracetui.ui.workers.restore_steps import restore_all_steps, restore_range
from tracetui.views import Answer, Source, View, are_runs, ask, sort_answer
from tracetui.views.ink import DrawSize, Line

_DEFAULT: Final = Look()


class Question(Struct, frozen=True, eq=False):
    """All that an answer depends on: the view, the runs, and the look without sorting and presentation."""

    view: View
    runs: Sequence[Source]
    indices: tuple[int, ...]  # of these runs among all open runs
    look: Look

    @classmethod
    def from_session(cls, session: Session, view: View) -> "Question":
        runs, indices = session.list_sources_for(view), session.list_indices_for(view)
        look = strip_presentation(session.look)
        if look.filter == session.start.filter and view.filters != "events":
            look = replace(look, filter="")  # given for all views, when the screen was started
        return cls(view, runs, indices, look)

    def is_same(self, other: "Question") -> bool:
        """Whether both have the same answer."""
        return self.runs == other.runs and self.is_same_but_for_growth(other)

    def is_same_but_for_growth(self, other: "Question") -> bool:
        """Whether both ask the same of the same runs, of which one may be a newer snapshot."""
        return (self.view is other.view or self.view.name == other.view.name) and (
            (self.indices, self.look, self._noise) == (other.indices, other.look, other._noise)
        )

    @property
    def _noise(self) -> Sides:
        """Repeats and noise of the compared runs."""
        return replace(Sides.from_runs(self.runs), runs=()) if are_runs(self.runs) else Sides()


def strip_presentation(look: Look) -> Look:
    """Return the look without the fields that change no answer: sorting, and how rows are drawn."""
    terms = replace(look.terms, forced=False)
    return replace(look, sort=None, descending=_DEFAULT.descending, then=(), limit=None, slice=None,
                   cursor=_DEFAULT.cursor, chosen=(), full_names=False, columns=(), one_table=False,
                   terms=terms)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Picture:
    """An answer as the screen shows it: sorted, measured, and drawn for a look and a size."""

    question: Question
    raw_answer: Answer  # as the view gave it
    answer: Answer  # the same, sorted
    sheet: Sheet
    lines: Sequence[Line] | None  # None: the rows are shown as a table
    look: Look
    size: DrawSize
    is_refusal: bool = False  # there is no answer, only a note with the reason

    def is_current_for(self, look: Look, size: DrawSize) -> bool:
        """Whether it is right for a look and a size; the columns of a table are arranged when painted."""
        if self.is_refusal:
            return True
        if self.lines is None:
            return list_orders(self.look) == list_orders(look)
        return (self.look, self.size) == (look, size)


def list_orders(look: Look) -> tuple[tuple[tuple[str, bool], ...], int | None]:
    """Return the fields of a look by which rows are sorted and limited."""
    return look.sort_orders, look.limit


def build_refusal_picture(question: Question, why: str, look: Look, size: DrawSize) -> Picture:
    """Return the picture of a question without an answer: the reason alone."""
    empty = Answer(pl.DataFrame(), notes=(why,))
    return Picture(question, empty, empty, EMPTY, (), look, size, is_refusal=True)


def make_picture(question: Question, look: Look, size: DrawSize, previous: Picture | None = None) -> Picture:
    """Answer, sort, measure and draw; `previous`, of the same question, spares what did not change."""
    view = question.view
    raw_answer = previous.raw_answer if previous is not None else _answer(question)
    check_cancelled()
    if previous is not None and list_orders(previous.look) == list_orders(look):
        answer, sheet = previous.answer, previous.sheet
    else:
        answer = sort_answer(raw_answer, look)
        columns, style = answer.columns or view.columns, answer.table_style or view.table_style
        names = raw_answer.names
        sheet = measure_sheet(answer.rows, answer.key, columns, style, view.label_column, names, answer.order)
    check_cancelled()
    lines = None if view.draw is None or answer.missing else view.draw(answer, look, size)
    return Picture(question, raw_answer, answer, sheet, lines, look, size)


def _answer(question: Question) -> Answer:
    view, window = question.view, question.look.window
    if not are_runs(question.runs):
        return ask(view, question.runs, question.look)
    if view.run_count > 1:
        return ask(view, map_runs(restore_all_steps, question.runs), question.look)
    return ask(view, [restore_range(run, window) for run in question.runs], question.look)
