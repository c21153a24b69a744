"""The filter: rows whose names fit a regular expression, live while it is typed."""

from typing import Final

import polars as pl

from capture.errors import CaptureError
from tracetui import filters
from tracetui.analysis.matching import fitting
from tracetui.ui.controllers.input import Entry, InputLine
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.questions import Questions
from tracetui.ui.renderer import Renderer, Timer
from tracetui.ui.workspace import Workspace

TRIED: Final = 16  # letters from the end without which a text may be an expression
TYPING: Final = 0.12  # seconds after the last letter
HINT: Final = "names, op:attn, layer:3, share:>5; Enter keeps it, Esc clears it"


class Filter:
    """Filters the view, and finds the next row that fits."""

    def __init__(
        self,
        workspace: Workspace,
        renderer: Renderer,
        questions: Questions,
        input_line: InputLine,
        later: Timer,
    ) -> None:
        self._workspace, self._renderer, self._questions = workspace, renderer, questions
        self._input, self._later = input_line, later
        self._pattern = ""  # the last one that was kept or cleared, for the next and the previous match
        self._refusal = ""  # why the text is no expression, as it was told
        self._edits = 0  # in the input line since it was opened

    def open(self) -> None:
        """Ask for the pattern."""
        self._edits = 0
        self._renderer.forget(self._renderer.message)
        draft = Draft.of("filter", HINT, self._workspace.session.look.filter)
        self._input.open(draft, Entry(self._keep, self._clear, self._edited))

    def match(self, direction: int) -> None:
        """Go to the next (1) or the previous (-1) row that fits the last expression."""
        if self._renderer.main.shows_table and self._renderer.table.match(self._pattern, direction):
            self._questions.remember_cursor()
        else:
            self._renderer.tell("nothing fits" if self._pattern else "/ takes an expression first")

    def _edited(self, text: str) -> None:
        """Filter once the fingers rest."""
        self._edits += 1
        edits = self._edits
        self._later(TYPING, lambda: self._rested(edits))

    def _rested(self, edits: int) -> None:
        draft = self._input.draft
        if draft is not None and draft.purpose == "filter" and edits == self._edits:
            self._apply(draft.text)

    def _keep(self, text: str) -> None:
        self._pattern = text or self._pattern
        self._apply(text)

    def _clear(self, text: str) -> None:
        self._pattern = text or self._pattern
        self._apply("")

    def _apply(self, text: str) -> None:
        """Filter by what was typed, or by the beginning of it that is an expression; then say why."""
        pattern, why = longest_expression(text)
        self._renderer.forget(self._refusal)
        self._refusal = why
        if self._edits or pattern != self._workspace.session.look.filter:
            self._questions.show(self._workspace.session.with_look(filter=pattern, cursor=(0, 0)))
        if why:
            self._renderer.tell(why)


def longest_expression(text: str) -> tuple[str, str]:
    """Return the longest beginning of a text that is a regular expression, and why the text is none."""
    why = _refusal(text)
    shorter = (text[:end] for end in range(len(text) - 1, max(0, len(text) - TRIED), -1))
    return text if not why else next((t for t in shorter if not _refusal(t)), ""), why


def _refusal(pattern: str) -> str:
    """Return why a text is no filter; empty where it is one."""
    try:
        parts = filters.parse(pattern)
        for each in (parts.names, *(term.value for term in parts.events if term.how == "~")):
            fitting(pl.Series([""], dtype=pl.String), each)
    except CaptureError as e:
        return str(e)
    return ""
