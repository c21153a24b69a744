"""The only Textual code: app, panes, screens, keys."""

from typing import Final

THEMES: Final = ("dark", "light", "ansi", "colour-blind")  # colours that a person can choose
