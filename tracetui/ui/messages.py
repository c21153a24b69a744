"""The messages that widgets and background threads post to the app."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.message import Message

from capture.errors import CaptureError
from capture.open import Input
from capture.run import Run
from tracetui.ui.question import Picture
from tracetui.ui.run_info import RunInfo
from tracetui.views import View


class CursorMoved(Message):
    """The cursor of the table is on another row."""


class PaneResized(Message):
    """A pane has been laid out in another size."""


class RowClicked(Message):
    """The row with the cursor was clicked."""


@dataclass(eq=False)
class DrawingClicked(Message):
    """A cell of lines was clicked."""

    column: int
    line: int  # of all, in sight or not


@dataclass(eq=False)
class TabsClicked(Message):
    """A cell of the line of tabs was clicked."""

    column: int


@dataclass(eq=False)
class HeadingClicked(Message):
    """The heading of a column was clicked."""

    column: str
    further: bool = False  # beside those that rows are sorted by already


@dataclass(eq=False)
class RunsChanged(Message):
    """The runs of the feed have been read, or have grown."""

    runs: Sequence[Run]
    infos: Sequence[RunInfo]
    views: Sequence[View] = ()  # at least the one to begin with


@dataclass(eq=False)
class RunsOpened(Message):
    """The runs of a further file have been read; its last run is the one that was asked for."""

    path: Input
    runs: Sequence[tuple[Run, RunInfo]]
    against: bool  # whether the run in sight is to be compared with it


class ProgressChanged(Message):
    """An engine that has not taken a step yet does something else than before."""


@dataclass(eq=False)
class ViewsLoaded(Message):
    """Every view is loaded, so that the tabs can be shown."""

    views: Sequence[View]


@dataclass(eq=False)
class CloseRequested(Message):
    """A signal asks the program to end with this exit code."""

    code: int


@dataclass(eq=False)
class LoadFailed(Message):
    """Nothing could be read."""

    error: CaptureError


@dataclass(eq=False)
class Answered(Message):
    """The picture of a question is ready."""

    number: int  # of the job that made it
    picture: Picture


@dataclass(eq=False)
class Refused(Message):
    """A question has no answer, and this is why."""

    number: int
    why: str
    fault: bool = False  # a fault of the program, not of the question


@dataclass(eq=False)
class Notice(Message):
    """A sentence for the status line."""

    text: str
