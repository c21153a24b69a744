"""What the parts of the screen tell each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.message import Message

from capture.errors import CaptureError
from capture.run import Run
from tracetui.ui.run_info import Facts
from tracetui.ui.sheet import Sheet
from tracetui.views import Answer, View
from tracetui.views.ink import Line


class Moved(Message):
    """The cursor stands on another row."""


class Sized(Message):
    """A pane has another size, now that it is laid out."""


class Entered(Message):
    """A row was clicked that had the cursor already."""


@dataclass(eq=False)
class SortAsked(Message):
    """A heading was clicked."""

    column: str


@dataclass(eq=False)
class RunsChanged(Message):
    """Runs have been read, or have grown."""

    runs: Sequence[Run]
    facts: Sequence[Facts]
    views: Sequence[View] = ()  # at least the one to begin with


@dataclass(eq=False)
class RunsOpened(Message):
    """The runs of a file were read while others are looked at; the last of them is meant."""

    path: Path
    runs: Sequence[tuple[Run, Facts]]
    against: bool  # as what the run shown is compared with


class WordsChanged(Message):
    """An engine that is not at work yet does something else."""


@dataclass(eq=False)
class ViewsKnown(Message):
    """Every view is loaded: the tabs can be shown."""

    views: Sequence[View]


@dataclass(eq=False)
class LeaveAsked(Message):
    """A signal wants the screen closed."""

    code: int


@dataclass(eq=False)
class LoadFailed(Message):
    """Nothing could be read."""

    error: CaptureError


@dataclass(eq=False)
class Answered(Message):
    """A view has an answer: rows measured for a table, or a drawing."""

    ticket: int
    answer: Answer
    sheet: Sheet
    lines: Sequence[Line] | None


@dataclass(eq=False)
class Refused(Message):
    """A question has no answer, and this is why."""

    ticket: int
    why: str
    fault: bool = False  # ours, not the person's


@dataclass(eq=False)
class Told(Message):
    """A sentence for the status line."""

    text: str
