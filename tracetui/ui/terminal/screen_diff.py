"""Send only the cells that changed: a cache of what the terminal shows, and the shortest output to it.

Textual redraws whole regions; on a slow line that is what the user waits for.
"""

import re
from functools import lru_cache
from typing import Final

from tracetui.glyphs import count_cells

# A style, a position, a switch (cursor shown, frame begun), the end of a line (a position follows), and text.
_TOKEN: Final = re.compile(
    "\x1b\\[(?P<style>[0-9;]*)m|(?P<position>\x1b\\[(?P<row>\\d+);(?P<column>\\d+)H)"
    "|(?P<switch>\x1b\\[\\?(?:25|2026)[hl])|(?P<end>\r?\n)|(?P<text>[^\x00-\x1f\x7f]+)"
)
_COLOUR: Final = re.compile("(?:^|;)([34]8;(?:2;\\d+;\\d+;\\d+|5;\\d+)|(?:3|4|9|10)\\d)(?=;|$)")
SKIP_LEAST_CELLS: Final = 5  # from so many unchanged cells on, moving the cursor is shorter than writing them

Style = tuple[str, str, str]  # attributes, foreground, background
PLAIN: Final[Style] = ("", "", "")

Cell = tuple[str, Style] | None  # None: unknown
Position = tuple[int, int]  # row and column, from 1


class ScreenCache:
    """The cells of a terminal, as far as they can be derived from the output so far."""

    def __init__(self) -> None:
        self._rows: dict[int, list[Cell]] = {}

    def forget(self) -> bool:
        """Forget all cells, after a resize or foreign output; return whether any were known."""
        had_rows, self._rows = bool(self._rows), {}
        return had_rows

    def reduce_output(self, data: str) -> str:
        """Return the output after which the terminal looks as after `data`.

        It begins and ends in the plain style, as all of Textual's output does. Data that contains unknown
        sequences is returned unchanged, and all cells are forgotten.
        """
        out, style, position, end = _OutputBuilder(), PLAIN, None, 0
        was_moved = False  # whether the last token moved the cursor
        for token in _TOKEN.finditer(data):
            kind = token.lastgroup
            if token.start() != end or (kind == "text" and position is None):
                break
            end, was_moved = token.end(), kind == "position"
            if kind == "style":
                style = apply_codes(style, token["style"])
            elif kind == "position":
                position = int(token["row"]), int(token["column"])
            elif kind == "switch":
                out.add(token["switch"])
            elif kind == "text" and position is not None:
                text = token["text"]
                width = count_cells(text)
                self._update_cells(out, position, text, width, style)
                position = position[0], position[1] + width
            else:
                position = None
        if end != len(data):
            self.forget()
            return data
        return out.finish(position if was_moved else None)

    def _update_cells(
        self, out: "_OutputBuilder", position: Position, text: str, width: int, style: Style
    ) -> None:
        """Add the cells of a text that change, and store them."""
        row, first = position
        cells = self._rows.setdefault(row, [])
        cells += [None] * (first - 1 + width - len(cells))
        if len(text) != width:  # terminals disagree about its width
            out.write(position, text, style)
            out.forget_position()
            self._rows[row] = cells[: max(0, first - 2)]  # it may have combined with the cell before
            return
        blank = reduce_to_blank_style(style)
        new: list[Cell] = [(c, blank if c == " " else style) for c in text]
        for start, end in _find_changed_spans(cells[first - 1 : first - 1 + len(new)], new):
            out.write((row, first + start), text[start:end], style)
        cells[first - 1 : first - 1 + len(new)] = new


def _find_changed_spans(old: list[Cell], new: list[Cell]) -> list[tuple[int, int]]:
    """Return spans of changed cells; short runs of equal cells between them are included."""
    if old == new:
        return []
    spans: list[tuple[int, int]] = []
    for i, (was, now) in enumerate(zip(old, new, strict=True)):
        if was == now:
            continue
        if spans and i - spans[-1][1] < SKIP_LEAST_CELLS:
            spans[-1] = spans[-1][0], i + 1
        else:
            spans.append((i, i + 1))
    return spans


class _OutputBuilder:
    """Output under construction, with the style and the cursor position after it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._style = PLAIN
        self._position: Position | None = None

    def add(self, sequence: str) -> None:
        self._parts.append(sequence)

    def forget_position(self) -> None:
        """Mark the position of the cursor as unknown."""
        self._position = None

    def write(self, position: Position, text: str, style: Style) -> None:
        """Add a text at a position in a style."""
        self._move_to(position)
        if not text.isspace() or reduce_to_blank_style(style) != reduce_to_blank_style(self._style):
            self._parts.append(build_transition(self._style, style))
            self._style = style
        self._parts.append(text)
        self._position = position[0], position[1] + len(text)

    def _move_to(self, position: Position) -> None:
        """Add the shortest move of the cursor to a position."""
        if self._position == position:
            return
        (old_row, old_column), (row, column) = self._position or (0, 0), position
        moves = [f"\x1b[{row};{column}H"]
        if old_row == row and old_column < column:
            moves = [f"\x1b[{column - old_column}C", *moves]
        self._parts.append(min(moves, key=len))

    def finish(self, position: Position | None) -> str:
        """Return the output, ending in the plain style and, if given, at a position."""
        self._parts.append(build_transition(self._style, PLAIN))
        if position is not None:
            self._move_to(position)
        return "".join(self._parts)


@lru_cache(maxsize=1 << 10)  # a theme has a few dozen styles, looked up for every line
def apply_codes(style: Style, codes: str) -> Style:
    """Return the style after the codes of a sequence."""
    if codes in ("", "0"):
        return PLAIN
    attributes, front, back = style
    rest = codes
    for colour in _COLOUR.findall(codes):
        if colour.startswith(("4", "10")):
            back = colour
        else:
            front = colour
        rest = rest.replace(colour, "", 1)
    added = ";".join(code for code in rest.split(";") if code)
    return (f"{attributes};{added}" if attributes and added else attributes or added, front, back)


def reduce_to_blank_style(style: Style) -> Style:
    """Return the visible style of a blank: its background only, unless attributes (underline …) are set."""
    return style if style[0] else ("", "", style[2])


@lru_cache(maxsize=1 << 10)
def build_transition(old: Style, new: Style) -> str:
    """Return the shortest sequence from one style to another; dropping anything needs a reset."""
    if old == new:
        return ""
    if new == PLAIN:
        return "\x1b[0m"
    needs_reset = old[0] != new[0] or any(was and not now for was, now in zip(old[1:], new[1:], strict=True))
    codes = [now for was, now in zip(old, new, strict=True) if was != now]
    if needs_reset and old != PLAIN:
        codes = ["0", *new]
    return f"\x1b[{';'.join(code for code in codes if code)}m"
