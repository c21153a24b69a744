"""A question is answered, and its answer put in order and drawn, away from the screen."""

import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from polars.exceptions import PanicException

from capture.errors import CaptureError
from capture.places import crash_file
from capture.text import clean
from capture.unheard import unheard
from tracetui import cancel
from tracetui.analysis import matching
from tracetui.look import Look
from tracetui.ui.messages import Answered, Refused
from tracetui.ui.question import Picture, Question, order
from tracetui.ui.sheet import measure, names_shown
from tracetui.ui.workers.older import whole, with_whole_steps
from tracetui.views import Answer, ask, ordered
from tracetui.views.ink import Line, Size


@dataclass(frozen=True, eq=False)
class Job:
    """A picture to be made; with one of the same question at hand, that one's answer is used again."""

    number: int
    question: Question
    look: Look
    size: Size
    previous: Picture | None = None


def reply(job: Job) -> Answered | Refused:
    """Return the picture, or a sentence why there is none. Nothing is raised but Cancelled."""
    try:
        with unheard():
            return Answered(job.number, make_picture(job.question, job.look, job.size, job.previous))
    except CaptureError as e:
        return Refused(job.number, str(e))
    except (Exception, PanicException) as e:
        why = describe_fault(f"the {job.question.view.name} view failed", e)
        return Refused(job.number, why, fault=True)


def prepare(question: Question) -> None:
    """Find what a filter of the rows will ask for, while a person reads the answer; a fault in it shows
    where it is asked for.
    """
    with suppress(Exception, PanicException):
        for run in question.runs if question.view.runs == 1 else ():
            matching.prepare(run)


def make_picture(question: Question, look: Look, size: Size, previous: Picture | None = None) -> Picture:
    """Return the answer in order and drawn; what can be taken from a known picture is not made again."""
    view = question.view
    if previous is None:
        window = question.look.window
        runs = [whole(run) if view.runs > 1 else with_whole_steps(run, window) for run in question.runs]
        given = ask(view, runs, question.look)
        cancel.check()
    else:
        given = previous.given
    if previous is not None and order(previous.look) == order(look):
        answer, sheet = previous.answer, previous.sheet
    else:
        answer = ordered(given, look)
        columns, dress = answer.columns or view.columns, answer.dress or view.dress
        shown = names_shown(given.rows) if previous is None else previous.sheet.shown
        sheet = measure(answer.rows, answer.key, columns, dress, view.label, shown)
    cancel.check()
    return Picture(question, given, answer, sheet, _drawn(question, answer, look, size), look, size)


def _drawn(question: Question, answer: Answer, look: Look, size: Size) -> Sequence[Line] | None:
    if question.view.draw is None or answer.missing:
        return None
    return question.view.draw(answer, look, size)


def describe_fault(what: str, error: BaseException) -> str:
    """Return a fault of our own as one sentence that names the file with its traceback."""
    place = crash_file("".join(traceback.format_exception(error)))
    details = f"; the details are in {place}" if place else ""
    return f"{what}: {type(error).__name__}: {clean(str(error), 300)}{details}"
