"""The tour: a text for each step, which ends when the user has done what it says."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from tracetui.ui.pages.help_page import HelpPage
from tracetui.ui.workspace import Workspace
from tracetui.views.ink import Line, Span

TOUR_FILES: Final = ("sample:decode", "sample:slowed")  # opened by the tour


class TourStep(Struct, frozen=True):
    """A text, and the condition under which the tour continues."""

    text: str
    done: Callable[[Workspace], bool]


def _match_view(view: str) -> Callable[[Workspace], bool]:
    return lambda workspace: workspace.is_showing_view and workspace.session.view == view


def _is_filtered(workspace: Workspace) -> bool:
    return bool(workspace.session.look.filter) and workspace.draft is None


TOUR_STEPS: Final[Sequence[TourStep]] = (
    TourStep(
        "A small model decoded 48 tokens here. This page shows what it is, how fast, where the time went. "
        "Type 2 for its kernels.",
        _match_view("kernels"),
    ),
    TourStep(
        "A row is a kernel, the longest first. s sorts by another column, S reverses, Z undoes it.",
        lambda w: w.session.look.sort is not None,
    ),
    TourStep("Only some of them: type / then norm, then Enter.", _is_filtered),
    TourStep("Esc shows all rows again.", lambda w: not w.session.look.filter),
    TourStep(
        "Enter opens the row under the cursor: how its launches spread, and its trend over the steps.",
        lambda w: bool(w.session.trail),
    ),
    TourStep("Esc goes back to the table.", lambda w: not w.session.trail),
    TourStep(
        "o groups the rows by something else: op, layer, phase … Type it once or more.",
        lambda w: w.session.look.group not in (None, "name"),
    ),
    TourStep("How does each op grow with the context? Type 3.", _match_view("growth")),
    TourStep("Does a layer differ from the others? Type 4.", _match_view("layers")),
    TourStep("What could be recovered in a step, the most first? Type F.", _match_view("fix")),
    TourStep(
        "A second recording is open, with one op made slower on purpose. Which one? d shows what changed.",
        _match_view("diff"),
    ),
    TourStep(
        "The first line is the decision, the rows have the evidence. ? lists every key, q quits.",
        lambda w: isinstance(w.page, HelpPage),
    ),
    TourStep("That is all: q quits. Your own: tracetui FILE, tracetui live, tracetui help.", lambda w: False),
)


class Tour:
    """The position in the tour."""

    def __init__(self, workspace: Workspace, show: Callable[[Callable[[int], list[Line]]], None]) -> None:
        self._workspace, self._show, self.step_index = workspace, show, 0

    def advance(self) -> None:
        """Move past the steps that are done, and show the current one."""
        if not self._workspace.session.runs:
            return
        while TOUR_STEPS[self.step_index].done(self._workspace):
            self.step_index += 1
        self._show(self.draw)

    def draw(self, width: int) -> list[Line]:
        """Return the text of the current step, wrapped to a width."""
        text = f"tour {self.step_index + 1}/{len(TOUR_STEPS)}: {TOUR_STEPS[self.step_index].text}"
        return [(Span(f" {part}", "bar_warn"),) for part in textwrap.wrap(text, max(10, width - 2))]
