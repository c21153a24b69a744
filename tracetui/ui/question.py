"""What a view is asked, and the picture that is made of its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui.look import Look
from tracetui.ui.session import Session
from tracetui.ui.sheet import EMPTY, Sheet
from tracetui.views import Answer, View
from tracetui.views.ink import Line, Size

_DEFAULT: Final = Look()


class Question(Struct, frozen=True, eq=False):
    """All that an answer depends on: the view, the runs, and the look without order and presentation."""

    view: View
    runs: tuple[Run, ...]
    indices: tuple[int, ...]  # of these runs among all that are open
    look: Look

    @classmethod
    def of(cls, session: Session, view: View) -> "Question":
        return cls(view, session.runs_for(view), session.indices_for(view), asked(session.look))

    def is_same(self, other: "Question") -> bool:
        """Return whether both have the same answer."""
        same_runs = len(self.runs) == len(other.runs) and all(map(_identical, self.runs, other.runs))
        return same_runs and self.is_same_but_for_growth(other)

    def is_same_but_for_growth(self, other: "Question") -> bool:
        """Return whether both ask the same of the same runs, of which one may have seen more."""
        return (self.view is other.view or self.view.name == other.view.name) and (
            (self.indices, self.look) == (other.indices, other.look)
        )


def _identical(one: Run, other: Run) -> bool:
    return one is other


def asked(look: Look) -> Look:
    """Return the look without the fields on which no answer depends: the order, and how rows are drawn."""
    return replace(
        look,
        sort=None,
        descending=_DEFAULT.descending,
        then=(),
        limit=None,
        cursor=_DEFAULT.cursor,
        slice=None,
        chosen=(),
        full_names=False,
        columns=(),
        one_table=False,
        terms=replace(look.terms, forced=False),
    )


@dataclass(frozen=True, eq=False)
class Picture:
    """An answer as it is shown: put in order, measured, and drawn for a look and a size."""

    question: Question
    given: Answer  # as the view gave it
    answer: Answer  # the same in order
    sheet: Sheet
    lines: Sequence[Line] | None  # None: the rows are a table
    look: Look
    size: Size
    refused: bool = False  # there is no answer, only a note that says why

    def fits(self, look: Look, size: Size) -> bool:
        """Return whether the picture is right for a look and a size; a table is laid out as it is painted."""
        if self.refused:
            return True
        if self.lines is None:
            return order(self.look) == order(look)
        return (self.look, self.size) == (look, size)


def order(look: Look) -> tuple[tuple[tuple[str, bool], ...], int | None]:
    """Return the fields of a look by which rows are put in order and cut."""
    return look.orders, look.limit


def without_rows(question: Question, why: str, look: Look, size: Size) -> Picture:
    """Return the picture of a question that has no answer: the reason alone."""
    empty = Answer(pl.DataFrame(), notes=(why,))
    return Picture(question, empty, empty, EMPTY, (), look, size, refused=True)
