"""Sanitise text from outside: names, paths, labels, messages."""

import re
import unicodedata
from typing import Final

MAX_NAME_CHARS: Final = 1 << 20

_REMOVED: Final = (
    0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFEFF, 0xFFA0,
    *range(0x200B, 0x2010),  # zero width, LRM, RLM
    *range(0x2028, 0x202F),  # line separators, bidi embeddings
    *range(0x2060, 0x2070),  # invisible operators, bidi isolates
    *range(0xFFF0, 0xFFFC),  # interlinear annotation
    *range(0xE0000, 0xE1000),  # tags
)  # fmt: skip
_TABLE: Final = {
    **dict.fromkeys((*range(32), *range(127, 160), *range(55296, 57344)), "�"),
    **dict.fromkeys(range(0x09, 0x0E), " "),
    **dict.fromkeys(_REMOVED),
}
# The characters of the table as ranges: listed singly, compiling them took a tenth of the start-up time.
_NEEDS_CLEANING: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_MAX_COMBINING_MARKS: Final = 4


def clean(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """Return text that is safe to print: no control, escape, invisible or bidi characters."""
    if len(text) > limit:
        text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    if _NEEDS_CLEANING.search(text):
        text = text.translate(_TABLE)
    return _limit_combining_marks(text) if not text.isascii() else text


def _limit_combining_marks(text: str) -> str:
    """Return text with at most four combining marks per character; more smear over neighbouring lines."""
    run, out = 0, []
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run <= _MAX_COMBINING_MARKS:
            out.append(char)
    return "".join(out)


def shorten_middle(text: str, width: int) -> str:
    """Return text cut in its middle to `width` characters; both ends stay to tell it from others."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    left = (width - 1) // 2
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"
