"""The commands that the palette finds: the key table again, with the views, the columns and the themes."""

from collections.abc import Callable, Iterator
from functools import partial

from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette

from tracetui import units
from tracetui.ui import keys
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.keyboard import Keyboard
from tracetui.ui.terminal.theme import PALETTES
from tracetui.ui.workspace import Workspace


class Palette(CommandPalette):
    """Textual's palette, which closes once, and turns no page of a list that is not laid out yet."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close it, where it is still open: a second click may lie behind the one that closes it."""
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        laid_out = self._list_visible and self.query_one(CommandList).scrollable_content_region.width
        if laid_out or not action.startswith("page_"):
            super()._action_command_list(action)


def open_palette(app: App[None]) -> None:
    """Show the palette, where no other screen is in front."""
    if len(app.screen_stack) == 1:
        app.push_screen(Palette(id="--command-palette"))


def palette_commands(
    workspace: Workspace,
    keyboard: Keyboard,
    navigation: Navigation,
    set_theme: Callable[[str], object],
) -> Iterator[SystemCommand]:
    """Yield each command with its words, its key or kind, and what does it."""
    for key in keys.possible(workspace.options.keys, rows=True, live=workspace.options.follow):
        text = key.text if key.text.startswith(key.short) else f"{key.short}: {key.text}"
        yield SystemCommand(text, keys.written(key), partial(keyboard.run, key.do))
    for number, view in enumerate(workspace.tabs, 1):
        yield SystemCommand(view.title, "view", partial(navigation.open_tab, number))
    for column in workspace.session.columns:
        words = f"sort by {units.heading(column)}"
        yield SystemCommand(words, "order", partial(navigation.sort_by, column))
    for name in PALETTES:
        yield SystemCommand(f"theme {name}", "colours", partial(set_theme, name))
