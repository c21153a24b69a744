"""The one cleaner for text that came from outside: names, paths, labels, messages."""

import re
import unicodedata
from typing import Final

MAX_NAME: Final = 1 << 20

_VISIBLE_SPACE: Final = {0x09: " ", 0x0A: " ", 0x0B: " ", 0x0C: " ", 0x0D: " "}
_REPLACED: Final = {
    **dict.fromkeys((*range(32), *range(127, 160), *range(55296, 57344)), "�"),
    **_VISIBLE_SPACE,
}
_REMOVED: Final = dict.fromkeys(
    (
        0x00AD,
        0x034F,
        0x061C,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        0x180E,
        0x3164,
        0xFEFF,
        0xFFA0,
        *range(0x200B, 0x2010),  # zero width, LRM, RLM
        *range(0x2028, 0x202F),  # line separators, bidi embeddings
        *range(0x2060, 0x2070),  # invisible operators, bidi isolates
        *range(0xFFF0, 0xFFFC),  # interlinear annotation
        *range(0xE0000, 0xE1000),  # tags
    )
)
_TABLE: Final = {**_REPLACED, **_REMOVED}
# The characters of the table as ranges: one by one, compiling them would cost a tenth of a start.
_DIRTY: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_STACKED_MARKS: Final = 4


def clean(text: str, limit: int = MAX_NAME) -> str:
    """Return text that may be shown anywhere: without control, escape, invisible and bidi characters."""
    if len(text) > limit:
        text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    if _DIRTY.search(text):
        text = text.translate(_TABLE)
    return _thin_marks(text) if not text.isascii() else text


def _thin_marks(text: str) -> str:
    """Return text with at most four combining marks on a character: more smear over the lines around it."""
    run, out = 0, []
    for char in text:
        run = run + 1 if unicodedata.combining(char) else 0
        if run <= _STACKED_MARKS:
            out.append(char)
    return "".join(out)


def middle(text: str, width: int) -> str:
    """Return text cut in its middle to a width: both ends stay, to tell it from others."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    left = (width - 1) // 2
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"
