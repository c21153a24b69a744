"""One line of input in place of the footer."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class Prompt(Input):
    """A line for a filter or a file name; Enter takes it, Esc leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.close_prompt", "leave", show=False),
        Binding("ctrl+c", "app.quit", "quit", show=False),
    ]

    def __init__(self, value: str, hint: str) -> None:
        super().__init__(value=value, placeholder=hint, compact=True, select_on_focus=False)
