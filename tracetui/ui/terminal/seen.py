"""What a terminal shows, cell by cell: of what is drawn anew only what looks different is sent."""

import re
from typing import Final

from tracetui.ui.terminal.paint import width_of
from tracetui.ui.terminal.sgr import PLAIN, Style, after, change, of_blank

# A style, a place, a switch of the cursor or of the frame, the end of a line (a place follows), and text.
_TOKEN: Final = re.compile(
    "\x1b\\[(?P<style>[0-9;]*)m|\x1b\\[(?P<row>\\d+);(?P<column>\\d+)H"
    "|(?P<switch>\x1b\\[\\?(?:25|2026)[hl])|(?P<end>\r?\n)|(?P<text>[^\x00-\x1f\x7f]+)"
)
SPARED: Final = 5  # cells alike between two that differ, from which a move is shorter than they are

Cell = tuple[str, Style] | None  # None: not known
Place = tuple[int, int]  # row and column, from 1


class Seen:
    """The cells of a terminal as far as they are known, from what was sent to it."""

    def __init__(self) -> None:
        self._rows: dict[int, list[Cell]] = {}

    def forget(self) -> bool:
        """Know nothing any more: somebody else has drawn, or the size has changed; tell if anything was."""
        known, self._rows = bool(self._rows), {}
        return known

    def lessened(self, data: str) -> str:
        """Return what has to be sent so that the terminal looks as if all of the output had been.

        It begins and ends in the plain style, as every piece of Textual's output does. What is not understood
        is returned as it is, and nothing is known after it.
        """
        out, style, place, at = _Output(), PLAIN, None, 0
        asked = False  # whether the cursor was sent to where it now is
        for token in _TOKEN.finditer(data):
            what = token.lastgroup
            if token.start() != at or (what == "text" and place is None):
                break
            at, asked = token.end(), what == "column"
            if what == "style":
                style = after(style, token["style"])
            elif what == "column":
                place = int(token["row"]), int(token["column"])
            elif what == "switch":
                out.add(token["switch"])
            elif what == "text" and place is not None:
                text = token["text"]
                width = width_of(text)
                self._put(out, place, text, width, style)
                place = place[0], place[1] + width
            else:
                place = None
        if at != len(data):
            self.forget()
            return data
        return out.ended(place if asked else None)

    def _put(self, out: "_Output", place: Place, text: str, width: int, style: Style) -> None:
        """Send the cells of a text of some width that look different."""
        row, first = place
        cells = self._rows.setdefault(row, [])
        cells += [None] * (first - 1 + width - len(cells))
        if len(text) != width:  # of which terminals think differently
            out.write(place, text, style)
            out.lose()
            self._rows[row] = cells[: max(0, first - 2)]  # a mark may stand on the cell before it
            return
        blank = of_blank(style)
        new: list[Cell] = [(c, blank if c == " " else style) for c in text]
        for start, end in _differing(cells[first - 1 : first - 1 + len(new)], new):
            out.write((row, first + start), text[start:end], style)
        cells[first - 1 : first - 1 + len(new)] = new


def _differing(old: list[Cell], new: list[Cell]) -> list[tuple[int, int]]:
    """Return where cells differ, as stretches between which it is worth to move."""
    if old == new:
        return []
    found: list[tuple[int, int]] = []
    for i, (was, now) in enumerate(zip(old, new, strict=True)):
        if was == now:
            continue
        if found and i - found[-1][1] < SPARED:
            found[-1] = found[-1][0], i + 1
        else:
            found.append((i, i + 1))
    return found


class _Output:
    """What is sent, and where and in which style it leaves the terminal."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._style = PLAIN
        self._place: Place | None = None

    def add(self, sequence: str) -> None:
        self._parts.append(sequence)

    def lose(self) -> None:
        """Know no more where the terminal's cursor is."""
        self._place = None

    def write(self, place: Place, text: str, style: Style) -> None:
        """Add a text at a place in a style."""
        self._go(place)
        if not text.isspace() or of_blank(style) != of_blank(self._style):
            self._parts.append(change(self._style, style))
            self._style = style
        self._parts.append(text)
        self._place = place[0], place[1] + len(text)

    def _go(self, place: Place) -> None:
        """Add the way to a place."""
        if self._place == place:
            return
        absolute = f"\x1b[{place[0]};{place[1]}H"
        if self._place is not None and self._place[0] == place[0] and self._place[1] < place[1]:
            self._parts.append(min(f"\x1b[{place[1] - self._place[1]}C", absolute, key=len))
        else:
            self._parts.append(absolute)

    def ended(self, place: Place | None) -> str:
        """Return all of it, with the style plain again and the cursor at a place, where that is asked for."""
        self._parts.append(change(self._style, PLAIN))
        if place is not None:
            self._go(place)
        return "".join(self._parts)
