"""The input line: one line of text that takes all keys while it is open."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Struct

from tracetui.ui.pages.prompt import Draft, edited
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace


class RunAsync(Protocol):
    """Runs a coroutine beside the screen; the one before it in the same group is cancelled."""

    def __call__(self, coroutine: Coroutine[Any, Any, None], group: str) -> object: ...


def _nothing(text: str) -> None:
    """Do nothing."""


class Entry(Struct, frozen=True):
    """What becomes of the text of an input line."""

    taken: Callable[[str], None]  # on Enter
    dropped: Callable[[str], None] = _nothing  # on Esc
    edited: Callable[[str], None] = _nothing  # after each change
    completed: Callable[[str], None] | None = None  # on Tab


class InputLine:
    """Opens the line, edits it key by key, and hands over what was typed."""

    def __init__(self, workspace: Workspace, renderer: Renderer) -> None:
        self._workspace, self._renderer = workspace, renderer
        self._entry = Entry(_nothing)

    @property
    def is_open(self) -> bool:
        return self._workspace.draft is not None

    @property
    def draft(self) -> Draft | None:
        return self._workspace.draft

    def open(self, draft: Draft, entry: Entry) -> None:
        self._workspace.draft, self._entry = draft, entry
        self._renderer.show_bands()

    def press(self, key: str, character: str | None) -> None:
        """Take a key; nothing happens where no line is open."""
        draft = self.draft
        if draft is None:
            return
        if key == "enter":
            self._close(draft, self._entry.taken)
        elif key == "escape":
            self._close(draft, self._entry.dropped)
        elif key == "tab" and self._entry.completed is not None:
            self._entry.completed(draft.text)
        else:
            self._change(edited(draft, key, character))

    def paste(self, text: str) -> None:
        """Put text in at the cursor."""
        if self.draft is not None:
            self._change(self.draft.typed(text))

    def replace(self, draft: Draft, text: str) -> bool:
        """Put another text in place of a draft; return false where that is no longer what is typed."""
        if draft is not self.draft:
            return False
        self._change(draft.holding(text))
        return True

    def _close(self, draft: Draft, then: Callable[[str], None]) -> None:
        self._workspace.draft = None
        then(draft.text)
        self._renderer.show_bands()

    def _change(self, draft: Draft) -> None:
        if draft != self.draft:
            self._workspace.draft = draft
            self._renderer.show_bands()
            self._entry.edited(draft.text)
