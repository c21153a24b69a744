"""The messages that widgets and background threads post to the app."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from textual.message import Message

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.files.user_dirs import write_crash_report
from capture.load_runs import Input
from capture.run import Run
from tracetui.ui.question import Picture
from tracetui.ui.run_info import RunInfo
from tracetui.views import Source, View


class CursorMoved(Message):
    """The cursor of the table has moved to another row."""


class PaneResized(Message):
    """A pane has got another size."""


class RowClicked(Message):
    """The row under the cursor was clicked."""


@dataclass(eq=False)
class LineClicked(Message):
    """A cell of a pane of lines was clicked."""

    pane: str | None  # id of its widget
    column: int
    line: int  # of all lines, also those scrolled out


@dataclass(eq=False)
class HeadingClicked(Message):
    """A column heading was clicked."""

    column: str
    is_further: bool = False  # sort by it after the columns sorted by already


@dataclass(eq=False)
class RunsChanged(Message):
    """The runs of the feed were read, or have grown."""

    runs: Sequence[Source]
    infos: Sequence[RunInfo]
    views: Sequence[View] = ()  # at least the first view


@dataclass(eq=False)
class RunsOpened(Message):
    """The runs of another file were read; the last of them was requested."""

    path: Input
    runs: Sequence[tuple[Run, RunInfo]]
    compares: bool  # compare the current run with it


class ProgressChanged(Message):
    """The activity of an engine changed before its first step."""


@dataclass(eq=False)
class ViewsLoaded(Message):
    """All views are loaded, so that every tab can be shown."""

    views: Sequence[View]


@dataclass(eq=False)
class CloseRequested(Message):
    """A signal asks the program to exit with this code."""

    code: int


@dataclass(eq=False)
class LoadFailed(Message):
    """Nothing could be read."""

    error: CaptureError


@dataclass(eq=False)
class Answered(Message):
    """The picture of a question is ready: its answer, or the reason why there is none."""

    number: int  # of the job
    picture: Picture
    why: str = ""
    is_internal_error: bool = False  # not a fault of the question


@dataclass(eq=False)
class StatusMessage(Message):
    """A message for the status line."""

    text: str


def describe_fault(what: str, error: BaseException) -> str:
    """Return an internal error as a sentence that names the file with its traceback."""
    path = write_crash_report("".join(traceback.format_exception(error)))
    details = f"; details in {path}" if path else ""
    return f"{what}: {type(error).__name__}: {clean(str(error), 300)}{details}"
