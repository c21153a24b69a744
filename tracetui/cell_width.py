"""Width of text in terminal cells: the one measure of views, printed tables and the screen.

CJK characters fill two cells, combining marks none, and an emoji of several code points (skin tone,
zero-width joiner) two in all. The tables of Unicode are those of `rich`, which Textual draws with.
"""

from typing import Final

from rich.cells import cell_len, split_graphemes

from capture.clean_text import shorten_middle

MOST_CHARS: Final = 4096  # longer texts are shortened before they are measured


def count_cells(text: str) -> int:
    """Return the number of cells that a text fills."""
    return len(text) if text.isascii() else cell_len(text)


def clip_cells(text: str, width: int) -> str:
    """Return the longest beginning of a text that fits into `width` cells."""
    if text.isascii():
        return text[: max(0, width)]
    for start, _, cells in split_graphemes(text)[0]:
        width -= cells
        if width < 0:
            return text[:start]
    return text


def _clip_cells_left(text: str, width: int) -> str:
    """Return the longest ending of a text that fits into `width` cells."""
    if text.isascii():
        return text[max(0, len(text) - width) :]
    for _, end, cells in reversed(split_graphemes(text)[0]):
        width -= cells
        if width < 0:
            return text[end:]
    return text


def fit_cells(text: str, width: int, right: bool = False, ascii: bool = False) -> str:
    """Return a text in exactly `width` cells: padded, or cut in its middle, where names differ least."""
    if width <= 0:
        return ""
    if len(text) > MOST_CHARS:
        text = shorten_middle(text, MOST_CHARS)
    if count_cells(text) > width:
        tail = (width - 1) // 2
        text = clip_cells(text, width - 1 - tail) + ("~" if ascii else "…") + _clip_cells_left(text, tail)
    padding = " " * (width - count_cells(text))
    return padding + text if right else text + padding
