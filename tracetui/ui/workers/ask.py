"""A question to a view, answered away from the screen."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from capture.errors import CaptureError
from capture.places import crash_file
from capture.run import Run
from capture.text import clean
from tracetui.look import Look
from tracetui.ui.messages import Answered, Refused
from tracetui.ui.sheet import Sheet, measure
from tracetui.views import Answer, View, ask, ordered
from tracetui.views.ink import Size


@dataclass(frozen=True, eq=False)
class Question:
    """A snapshot of all that an answer depends on."""

    ticket: int
    view: View
    runs: Sequence[Run]
    look: Look
    size: Size
    known: tuple[Answer, Sheet] | None = None  # the answer in sight, when only its drawing is asked for


def reply(question: Question) -> Answered | Refused:
    """The answer with its drawing, or a sentence; nothing else leaves here."""
    try:
        return _reply(question)
    except CaptureError as e:
        return Refused(question.ticket, str(e))
    except Exception as e:
        return Refused(question.ticket, fault(f"the {question.view.name} view failed", e), fault=True)


def _reply(question: Question) -> Answered:
    view, look = question.view, question.look
    if question.known is None:
        answer = ordered(ask(view, question.runs, look), look)
        columns, dress = answer.columns or view.columns, answer.dress or view.dress
        sheet = measure(answer.rows, answer.key, columns, dress, view.label)
    else:
        answer, sheet = question.known
    draws = view.draw is not None and not answer.missing
    lines = view.draw(answer, look, question.size) if draws and view.draw else None
    return Answered(question.ticket, answer, sheet, lines)


def fault(what: str, error: Exception) -> str:
    """A fault of our own in one sentence; the traceback goes to a file."""
    place = crash_file("".join(traceback.format_exception(error)))
    told = f"; the details are in {place}" if place else ""
    return f"{what}: {type(error).__name__}: {clean(str(error), 300)}{told}"
