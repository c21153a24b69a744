"""Text from outside in Markdown: all of it is text, nothing is markup, a link, an image or HTML."""

import re
from typing import Final

_ENTITIES: Final = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", ":": "&#58;", ".": "&#46;", "#": "&#35;",
}  # fmt: skip
# Marks of Markdown (an underscore within a word is none), HTML, mentions, addresses and references.
_ALIVE: Final = re.compile(
    r"[\\|*`\[\]!~&<>@]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)|#(?=[0-9])", re.IGNORECASE
)
_LEADING: Final = re.compile(r"^(\s*\d*)([-+=#.)])")


def plain(text: str) -> str:
    """Return text as it stands within a line of Markdown: a cell, a part of a sentence."""
    return _ALIVE.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), text)


def item(text: str) -> str:
    """Return text as it stands at the beginning of a line or of an item: no heading, no list, no rule."""
    return _LEADING.sub(r"\1\\\2", plain(text))


def code(text: str) -> str:
    """Return text as code, in which only a backtick and the bar of a table would mean anything."""
    return f"`{text.replace('`', chr(39)).replace('|', chr(92) + '|')}`"
