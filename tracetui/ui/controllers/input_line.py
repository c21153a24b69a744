"""The input line, which takes all keys while it is open, and hands over its text."""

from collections.abc import Callable

from msgspec import Struct

from tracetui.ui.pages.input_draft import InputDraft, edit_draft
from tracetui.ui.renderer import Renderer
from tracetui.ui.workspace import Workspace


def _ignore(text: str) -> None:
    pass


class InputActions(Struct, frozen=True):
    """What is called with the text of the input line, and when."""

    accept: Callable[[str], None]  # on Enter
    cancel: Callable[[str], None] = _ignore  # on Esc
    edit: Callable[[str], None] = _ignore  # after each change
    complete: Callable[[str], None] | None = None  # on Tab


class InputLine:
    """Opens the line, edits it key by key, and calls the actions it was opened with."""

    def __init__(self, workspace: Workspace, renderer: Renderer) -> None:
        self._workspace, self._renderer = workspace, renderer
        self._actions = InputActions(_ignore)

    @property
    def draft(self) -> InputDraft | None:
        return self._workspace.draft

    def open(self, draft: InputDraft, actions: InputActions) -> None:
        self._workspace.draft, self._actions = draft, actions
        self._renderer.show_bands()

    def press(self, key: str, character: str | None) -> None:
        """Edit the open line by a key."""
        draft = self.draft
        if draft is None:
            return
        if key == "enter":
            self._close(draft, self._actions.accept)
        elif key == "escape":
            self._close(draft, self._actions.cancel)
        elif key == "tab" and self._actions.complete is not None:
            self._actions.complete(draft.text)
        else:
            self._replace_draft(edit_draft(draft, key, character))

    def paste(self, text: str) -> None:
        """Insert text at the cursor."""
        if self.draft is not None:
            self._replace_draft(self.draft.insert(text))

    def replace_text(self, draft: InputDraft, text: str) -> bool:
        """Replace the text of a draft; return False if the user has edited it meanwhile."""
        if draft is not self.draft:
            return False
        self._replace_draft(draft.with_text(text))
        return True

    def _close(self, draft: InputDraft, action: Callable[[str], None]) -> None:
        self._workspace.draft = None
        action(draft.text)
        self._renderer.show_bands()

    def _replace_draft(self, draft: InputDraft) -> None:
        if draft != self.draft:
            self._workspace.draft = draft
            self._renderer.show_bands()
            self._actions.edit(draft.text)
