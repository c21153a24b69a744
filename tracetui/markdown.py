"""Escape foreign text for Markdown: no markup, link, image or HTML of it takes effect."""

import re
from typing import Final

_ENTITIES: Final = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", ":": "&#58;", ".": "&#46;", "#": "&#35;",
}  # fmt: skip
# Markup of Markdown (not an underscore within a word), HTML, mentions, addresses and references.
_MARKUP: Final = re.compile(
    r"[\\|*`\[\]!~&<>@]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)|#(?=[0-9])", re.IGNORECASE
)
_LEADING: Final = re.compile(r"^(\s*\d*)([-+=#.)])")


def escape_text(text: str) -> str:
    """Escape text inside a line: a table cell, a part of a sentence."""
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)


def escape_line(text: str) -> str:
    """Escape text at the start of a line or list item: no heading, list or rule."""
    return _LEADING.sub(r"\1\\\2", escape_text(text))


def format_code(text: str) -> str:
    """Return text as inline code; backticks and table bars are replaced."""
    return f"`{text.replace('`', chr(39)).replace('|', chr(92) + '|')}`"
