"""Lines of spans as strips of the terminal, with the colours of a theme, in ASCII if needed."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tracetui.glyphs import count_cells
from tracetui.views.ink import Line, Span

_LOOKALIKES: Final = str.maketrans(
    {
        "–": "-", "—": "-", "…": "~", "·": "|", "▲": "^", "▼": "v", "▸": ">", "◂": "<", "•": "*", "×": "x",
        "△": "^", "▽": "v", "›": ">", "‹": "<",
        "µ": "u", "│": "|", "─": "-", "→": ">", "←": "<", "↑": "^", "↓": "v", "█": "#", "░": ".", "Δ": "d",
        "≈": "~", "±": "+", "²": "2", "◆": "*", "●": "*", "○": "o", "└": "`", "├": "|", "┬": "+", "▁": "_",
    }
)  # fmt: skip


def convert_to_ascii(text: str) -> str:
    """Return ASCII text of the same width: lookalikes, and question marks for the rest."""
    if text.isascii():
        return text
    text = text.translate(_LOOKALIKES)
    return "".join(c if c.isascii() else "?" * count_cells(c) for c in text)


class Painter(Struct, frozen=True):
    """Paints lines in the styles of a theme."""

    styles: dict[str, Style]
    ascii: bool = False
    colours: bool = True  # whether the terminal shows any

    def paint_strip(self, line: Line, width: int, base: str = "") -> Strip:
        """Return one line, cut or padded to the width, with as few segments as it has styles."""
        ground = self._layer_style(self.styles[""], base)
        segments, left = [], width
        for text, style in merge_spans(line):
            text = convert_to_ascii(text) if self.ascii else text
            if (cells := count_cells(text)) > left:
                text, cells = set_cell_size(text, left), left
            segments.append(Segment(text, self._layer_style(ground, style)))
            left -= cells
            if left <= 0:
                break
        if left > 0 and segments and segments[-1].style == ground:
            segments[-1] = Segment(segments[-1].text + " " * left, ground)
        elif left > 0:
            segments.append(Segment(" " * left, ground))
        return Strip(segments, width)

    def _layer_style(self, ground: Style, name: str) -> Style:
        return ground + self.styles[name] if name and name in self.styles else ground


def merge_spans(line: Iterable[Span]) -> list[Span]:
    """Merge neighbours of the same style: each segment costs some forty bytes of output."""
    out: list[Span] = []
    for span in line:
        if out and out[-1].style == span.style:
            out[-1] = Span(out[-1].text + span.text, span.style)
        elif span.text:
            out.append(span)
    return out
