"""The cursor of a timeline: from slice to slice, from row to row, from a kernel to its launch and back."""

from capture.run import Run
from tracetui.analysis import slices
from tracetui.analysis.slices import Parts, Place
from tracetui.ui.questions import Questions
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace


class Slices:
    """Moves the cursor among the slices of a timeline, which moves along where they lie outside."""

    def __init__(self, workspace: Workspace, renderer: Renderer, questions: Questions) -> None:
        self._workspace, self._renderer, self._questions = workspace, renderer, questions

    @property
    def in_sight(self) -> bool:
        """Whether a timeline is shown."""
        workspace = self._workspace
        return workspace.shows_view and workspace.view.over_time

    def move(self, rows: int) -> None:
        """Go to a row further down (or up), to the slice that is nearest in time."""
        parts = self._parts
        if parts is not None:
            place = slices.beside(parts, self._place, rows)
            self._questions.show(self._workspace.session.with_look(slice=place))

    def next(self, direction: int) -> None:
        """Go to the next or the previous slice of the row's lane that fits the filter."""
        parts, run = self._parts, self._run
        if parts is not None and run is not None:
            place = slices.next_slice(run, self._workspace.session.look, parts, direction)
            self._go(parts, place, "there is no further one")

    def point(self, column: int, line: int) -> None:
        """Go to what is drawn in a cell of the picture, if anything is."""
        picture, session = self._workspace.in_sight, self._workspace.session
        if not self.in_sight or picture is None or picture.question.view.pointed is None:
            return
        place = picture.question.view.pointed(picture.answer, picture.look, picture.size, column, line)
        if place is not None:
            self._questions.show(session.with_look(slice=place))

    def follow_launch(self) -> None:
        """Go from a kernel to the call that launched it, or from a call to what it launched first."""
        parts, run = self._parts, self._run
        if parts is not None and run is not None:
            self._go(parts, slices.linked(run, parts, self._place), "no launch is known here")

    @property
    def _place(self) -> Place | None:
        return self._workspace.session.look.slice

    @property
    def _run(self) -> Run | None:
        return self._workspace.session.run

    @property
    def _parts(self) -> Parts | None:
        """The parts of the timeline in sight; None where there is no slice."""
        picture = self._workspace.in_sight
        return (
            picture.answer.parts if self.in_sight and picture is not None and picture.answer.parts else None
        )

    def _go(self, parts: Parts, place: Place | None, otherwise: str) -> None:
        """Put the cursor on a slice, and move the window where it is not in sight."""
        if place is None:
            self._renderer.tell(otherwise)
            return
        low, high, start, end = parts["window"].row(0)
        window = slices.window_around((low, high), (start, end), place)
        moved = {} if window == (low, high) else {"zoom": window}
        self._questions.show(self._workspace.session.with_look(slice=place, **moved))
