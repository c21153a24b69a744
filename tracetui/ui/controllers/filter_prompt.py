"""Filter rows while the user types, and move between rows that match."""

from typing import Final

import polars as pl

from capture.errors import CaptureError
from tracetui import filter_syntax
from tracetui.analysis.frames.name_filter import match_names
from tracetui.ui.controllers.base import Controller, ScreenParts
from tracetui.ui.controllers.input_line import InputActions
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.views import View, check_filter

MOST_DROPPED_CHARS: Final = 16  # at the end of a text, to find a valid beginning
TYPING_PAUSE_S: Final = 0.12  # after the last key, before rows are filtered
HINT: Final = "names, op:attn, layer:3, share:>5; Enter applies it, Esc clears it"


class FilterController(Controller):
    """Filters the view, and moves to the next matching row."""

    def __init__(self, parts: ScreenParts) -> None:
        super().__init__(parts)
        self._pattern = ""  # the last filter applied or cleared, for `move_to_match`
        self._refusal = ""  # the message about an invalid text
        self._edit_count = 0  # since the line was opened

    def open_prompt(self) -> None:
        """Ask for the filter."""
        self._edit_count = 0
        self._renderer.clear_message(self._renderer.message)
        draft = InputDraft.from_text("filter", HINT, self._workspace.session.look.filter)
        self._input.open(draft, InputActions(self._apply_pattern, self._clear, self._schedule_filter))

    def move_to_match(self, direction: int) -> None:
        """Move to the next (1) or previous (-1) row that matches the last filter."""
        screen = self._renderer.main_screen
        if screen.shows_table and screen.table.move_to_match(self._pattern, direction):
            self._answers.save_cursor()
        else:
            self._renderer.show_message("no match" if self._pattern else "enter a filter with / first")

    def _schedule_filter(self, text: str) -> None:
        """Filter after a pause in typing."""
        self._edit_count += 1
        edits = self._edit_count
        self._parts.set_timer(TYPING_PAUSE_S, lambda: self._filter_after_pause(edits))

    def _filter_after_pause(self, edits: int) -> None:
        draft = self._input.draft
        if draft is not None and draft.purpose == "filter" and edits == self._edit_count:
            self._apply(draft.text)

    def _apply_pattern(self, text: str) -> None:
        self._pattern = text or self._pattern
        self._apply(text)

    def _clear(self, text: str) -> None:
        self._pattern = text or self._pattern
        self._apply("")

    def _apply(self, text: str) -> None:
        """Filter by the text, or by its longest valid beginning with a message."""
        pattern, why = find_longest_filter(text, self._workspace.view)
        self._renderer.clear_message(self._refusal)
        self._refusal = why
        if self._edit_count or pattern != self._workspace.session.look.filter:
            self._change_look(filter=pattern, cursor=(0, 0))
        if why:
            self._renderer.show_message(why)


def find_longest_filter(text: str, view: View) -> tuple[str, str]:
    """Return the longest valid beginning of a text, and why the whole text is invalid."""
    why = _explain_refusal(text, view)
    shorter = (text[:end] for end in range(len(text) - 1, max(0, len(text) - MOST_DROPPED_CHARS), -1))
    return text if not why else next((t for t in shorter if not _explain_refusal(t, view)), ""), why


def _explain_refusal(pattern: str, view: View) -> str:
    """Return why a text is not a valid filter of a view, or an empty text."""
    try:
        check_filter(view, pattern)
        parts = filter_syntax.parse_filter(pattern)
        for expression in (parts.names, *(term.value for term in parts.events if term.how == "~")):
            match_names(pl.Series([""], dtype=pl.String), expression)
    except CaptureError as e:
        return str(e)
    return ""
