"""One line of input in place of the footer, as a pure editor: a line and a key give the next line."""

from dataclasses import dataclass, replace
from typing import Final

from capture.text import clean
from tracetui.views.ink import Line, Span

LONGEST: Final = 4096


@dataclass(frozen=True)
class Draft:
    """What is being typed, and what for."""

    purpose: str  # filter, export, prompt, engine or file
    hint: str
    text: str = ""
    at: int = 0

    @classmethod
    def of(cls, purpose: str, hint: str, text: str) -> "Draft":
        return cls(purpose, hint, text, len(text))

    def typed(self, text: str) -> "Draft":
        """Return the draft with text put in at the cursor; what no line can hold is cleaned away."""
        text = clean(text)[: LONGEST - len(self.text)]
        return replace(self, text=self.text[: self.at] + text + self.text[self.at :], at=self.at + len(text))

    def holding(self, text: str) -> "Draft":
        """Return the draft with another text in place of all that was typed."""
        return Draft.of(self.purpose, self.hint, text)

    def without(self, start: int, end: int) -> "Draft":
        return replace(self, text=self.text[:start] + self.text[end:], at=start)

    def moved(self, at: int) -> "Draft":
        return replace(self, at=max(0, min(len(self.text), at)))


def edited(draft: Draft, key: str, character: str | None) -> Draft:
    """Return the draft after a key."""
    at, text = draft.at, draft.text
    match key:
        case "left" | "ctrl+b":
            return draft.moved(at - 1)
        case "right" | "ctrl+f":
            return draft.moved(at + 1)
        case "home" | "ctrl+a":
            return draft.moved(0)
        case "end" | "ctrl+e":
            return draft.moved(len(text))
        case "backspace" | "ctrl+h":
            return draft.without(max(0, at - 1), at)
        case "delete" | "ctrl+d":
            return draft.without(at, at + 1)
        case "ctrl+u":
            return draft.without(0, at)
        case "ctrl+k":
            return draft.without(at, len(text))
        case "ctrl+w":
            return draft.without(text[:at].rstrip().rfind(" ") + 1, at)
    return draft.typed(character) if character is not None and character.isprintable() else draft


def line(draft: Draft, width: int) -> Line:
    """Return the line as it is shown, scrolled so that its cursor is in sight."""
    lead = f" {draft.purpose}: "
    room = max(1, width - len(lead) - 1)
    start = max(0, draft.at - room + 1)
    text = draft.text[start : start + room] + " "
    place = draft.at - start
    hint = ("  " if draft.text else "") + draft.hint
    return (
        Span(lead, "title"), Span(text[:place]), Span(text[place : place + 1] or " ", "cursor"),
        Span(text[place + 1 :]), Span(hint, "dim"),
    )  # fmt: skip
