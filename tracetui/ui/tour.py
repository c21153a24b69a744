"""The tour: what to look at and which key to type next, until the reader has typed it."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from tracetui.ui.pages.help import HelpPage
from tracetui.ui.workspace import Workspace
from tracetui.views.ink import Line, Span

FILES: Final = ("sample:decode", "sample:slowed")  # that the tour goes through


class Stop(Struct, frozen=True):
    """One thing to see; the tour goes on once it has been done."""

    text: str
    done: Callable[[Workspace], bool]


def _on(view: str) -> Callable[[Workspace], bool]:
    return lambda workspace: workspace.shows_view and workspace.session.view == view


def _filtered(workspace: Workspace) -> bool:
    return bool(workspace.session.look.filter) and workspace.draft is None


STOPS: Final[Sequence[Stop]] = (
    Stop(
        "A small model decoded 48 tokens here. This page says what it is, how fast, where the time went. "
        "Type 2 for its kernels.",
        _on("kernels"),
    ),
    Stop(
        "A row is a kernel, the longest first. s sorts by another column, S turns the order round.",
        lambda w: w.session.look.sort is not None,
    ),
    Stop("Only some of them: type / then norm, then Enter.", _filtered),
    Stop("Esc shows all rows again.", lambda w: not w.session.look.filter),
    Stop(
        "Enter opens the row under the cursor: how its launches spread, its course over the steps.",
        lambda w: bool(w.session.trail),
    ),
    Stop("Esc goes back to the table.", lambda w: not w.session.trail),
    Stop(
        "o groups the rows by something else: op, layer, phase … Type it once or more.",
        lambda w: w.session.look.group not in (None, "name"),
    ),
    Stop("How does each op grow with the context? Type 3.", _on("growth")),
    Stop("Is a layer unlike the others? Type 4.", _on("layers")),
    Stop("What could be recovered in a step, the most first? Type F.", _on("fix")),
    Stop(
        "A second recording is open, with one op made slower on purpose. Which one? d shows what changed.",
        _on("diff"),
    ),
    Stop(
        "The first line is the decision, the rows have the evidence. ? lists every key, q leaves.",
        lambda w: isinstance(w.page, HelpPage),
    ),
    Stop("That is all: q leaves. Your own: tracetui FILE, tracetui live, tracetui help.", lambda w: False),
)


class Tour:
    """Where the reader is on the tour."""

    def __init__(self, workspace: Workspace, show: Callable[[Callable[[int], list[Line]]], None]) -> None:
        self._workspace, self._show, self.at = workspace, show, 0

    def look(self) -> None:
        """Go on where the reader has done what was asked, and show what to do."""
        if not self._workspace.session.runs:
            return
        while STOPS[self.at].done(self._workspace):
            self.at += 1
        self._show(self.lines)

    def lines(self, width: int) -> list[Line]:
        """Return the words of the stop for a width of the screen."""
        text = f"tour {self.at + 1}/{len(STOPS)}: {STOPS[self.at].text}"
        return [(Span(f" {part}", "bar_warn"),) for part in textwrap.wrap(text, max(10, width - 2))]
