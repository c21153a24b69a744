"""The commands that the palette finds: the key table again, with the views, the columns and the themes."""

from collections.abc import Callable, Iterator
from functools import partial

from textual.app import SystemCommand

from tracetui import units
from tracetui.ui import keys
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.keyboard import Keyboard
from tracetui.ui.terminal.theme import PALETTES
from tracetui.ui.workspace import Workspace


def palette_commands(
    workspace: Workspace,
    keyboard: Keyboard,
    navigation: Navigation,
    set_theme: Callable[[str], object],
) -> Iterator[SystemCommand]:
    """Yield each command with its words, its key or kind, and what does it."""
    for key in keys.possible(keys.KEYS, rows=True, live=workspace.options.follow):
        text = key.text if key.text.startswith(key.short) else f"{key.short}: {key.text}"
        yield SystemCommand(text, keys.written(key), partial(keyboard.run, key.do))
    for number, view in enumerate(workspace.tabs, 1):
        yield SystemCommand(view.title, "view", partial(navigation.open_tab, number))
    for column in workspace.session.columns:
        words = f"sort by {units.heading(column)}"
        yield SystemCommand(words, "order", partial(navigation.sort_by, column))
    for name in PALETTES:
        yield SystemCommand(f"theme {name}", "colours", partial(set_theme, name))
