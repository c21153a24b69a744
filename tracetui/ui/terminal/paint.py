"""Lines of ink as strips of the terminal: colours from the theme, ASCII where nothing else is known."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from capture.text import middle
from tracetui.views.ink import Line, Span

LONGEST: Final = 4096  # nothing wider is ever looked at

_LOOKALIKES: Final = str.maketrans(
    {
        "–": "-", "—": "-", "…": "~", "·": "|", "▲": "^", "▼": "v", "▸": ">", "◂": "<", "•": "*", "×": "x",
        "△": "^", "▽": "v", "›": ">", "‹": "<",
        "µ": "u", "│": "|", "─": "-", "→": ">", "←": "<", "↑": "^", "↓": "v", "█": "#", "░": ".", "Δ": "d",
        "≈": "~", "±": "+", "²": "2", "◆": "*", "●": "*", "○": "o", "└": "`", "├": "|", "┬": "+", "▁": "_",
    }
)  # fmt: skip


def as_ascii(text: str) -> str:
    """Return text of the same width in ASCII: lookalikes, and a question mark for the rest."""
    if text.isascii():
        return text
    text = text.translate(_LOOKALIKES)
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text)


def width_of(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fit(text: str, width: int, right: bool = False) -> str:
    """Return text in exactly so many cells, cut in its middle when it is too long."""
    if len(text) > LONGEST:
        text = middle(text, LONGEST)
    if width_of(text) > width:
        text = middle(text, width)
        while width_of(text) > width:
            text = middle(text, len(text) - 1)
    pad = " " * (width - width_of(text))
    return pad + text if right else text + pad


class Painter(Struct, frozen=True):
    """A theme at work."""

    styles: dict[str, Style]
    ascii: bool = False
    colours: bool = True  # or else nobody sees any

    def strip(self, line: Line, width: int, base: str = "") -> Strip:
        """Return one line, cut or filled up to the width, in as few pieces as it has styles."""
        ground = self._on(self.styles[""], base)
        segments, left = [], width
        for text, style in merged(line):
            text = as_ascii(text) if self.ascii else text
            if (cells := width_of(text)) > left:
                text, cells = set_cell_size(text, left), left
            segments.append(Segment(text, self._on(ground, style)))
            left -= cells
            if left <= 0:
                break
        if left > 0 and segments and segments[-1].style == ground:
            segments[-1] = Segment(segments[-1].text + " " * left, ground)
        elif left > 0:
            segments.append(Segment(" " * left, ground))
        return Strip(segments, width)

    def _on(self, ground: Style, name: str) -> Style:
        return ground + self.styles[name] if name and name in self.styles else ground


def merged(line: Iterable[Span]) -> list[Span]:
    """Return neighbours of one style as one piece: each piece costs forty bytes of output."""
    out: list[Span] = []
    for span in line:
        if out and out[-1].style == span.style:
            out[-1] = Span(out[-1].text + span.text, span.style)
        elif span.text:
            out.append(span)
    return out
