"""The line of input in place of the footer, as a pure editor: a draft and a key give the next draft."""

from dataclasses import dataclass, replace
from typing import Final

from capture.clean_text import clean
from tracetui.views.ink import Line, Span

MOST_CHARS: Final = 4096


@dataclass(frozen=True)
class InputDraft:
    """A text that is being typed, its cursor and its purpose."""

    purpose: str  # filter, export, prompt, engine, note or file
    hint: str
    text: str = ""
    cursor: int = 0

    @classmethod
    def from_text(cls, purpose: str, hint: str, text: str) -> "InputDraft":
        return cls(purpose, hint, text, len(text))

    def insert(self, text: str) -> "InputDraft":
        """Return the draft with text inserted at the cursor, cleaned and limited in length."""
        text = clean(text)[: MOST_CHARS - len(self.text)]
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        return replace(self, text=before + text + after, cursor=self.cursor + len(text))

    def with_text(self, text: str) -> "InputDraft":
        """Return the draft with another text."""
        return InputDraft.from_text(self.purpose, self.hint, text)

    def delete(self, start: int, end: int) -> "InputDraft":
        return replace(self, text=self.text[:start] + self.text[end:], cursor=start)

    def move_cursor(self, at: int) -> "InputDraft":
        return replace(self, cursor=max(0, min(len(self.text), at)))


def edit_draft(draft: InputDraft, key: str, character: str | None) -> InputDraft:
    """Return the draft after a key."""
    at, text = draft.cursor, draft.text
    match key:
        case "left" | "ctrl+b":
            return draft.move_cursor(at - 1)
        case "right" | "ctrl+f":
            return draft.move_cursor(at + 1)
        case "home" | "ctrl+a":
            return draft.move_cursor(0)
        case "end" | "ctrl+e":
            return draft.move_cursor(len(text))
        case "backspace" | "ctrl+h":
            return draft.delete(max(0, at - 1), at)
        case "delete" | "ctrl+d":
            return draft.delete(at, at + 1)
        case "ctrl+u":
            return draft.delete(0, at)
        case "ctrl+k":
            return draft.delete(at, len(text))
        case "ctrl+w":
            return draft.delete(text[:at].rstrip().rfind(" ") + 1, at)
    return draft.insert(character) if character is not None and character.isprintable() else draft


def draw_draft(draft: InputDraft, width: int) -> Line:
    """Return the line, scrolled so that the cursor is visible."""
    lead = f" {draft.purpose}: "
    room = max(1, width - len(lead) - 1)
    start = max(0, draft.cursor - room + 1)
    text = draft.text[start : start + room] + " "
    position = draft.cursor - start
    hint = ("  " if draft.text else "") + draft.hint
    return (
        Span(lead, "title"), Span(text[:position]), Span(text[position : position + 1] or " ", "cursor"),
        Span(text[position + 1 :]), Span(hint, "dim"),
    )  # fmt: skip
