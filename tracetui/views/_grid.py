"""Draw a grid of cells: layers or ranks down, ops or steps across, as much as fits around the cursor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from tracetui import glyphs
from tracetui.look import Look
from tracetui.views import Answer, Focus, ink
from tracetui.views._category import toned
from tracetui.views.ink import Line, Size, Span

HEAD: Final = 6  # cells of the number of a layer or rank
NARROWEST, WIDEST = 2, 10  # cells of a cell
NOTHING_LEFT: Final = 100  # per cent by which nothing falls
WRITTEN: Final = 6  # cells from which a change is written as a number

Cell = dict[str, Any]  # a row of the answer


@dataclass(frozen=True)
class Grid:
    """The rows of an answer by layer or rank and by column, and where the cursor stands."""

    row_name: str
    column: str
    downs: Sequence[Any]
    acrosses: Sequence[Any]
    cells: Mapping[tuple[Any, Any], Cell]
    row: int
    place: int

    @property
    def here(self) -> Cell | None:
        """Return the row under the cursor; None where the cell is empty."""
        return self.cells.get((self.downs[self.row], self.acrosses[self.place]))

    def wide(self, size: Size) -> int:
        """Return how many cells of the terminal a cell of the grid fills."""
        return max(NARROWEST, min(WIDEST, (size.width - HEAD) // len(self.acrosses)))

    def across(self, size: Size) -> Sequence[Any]:
        """Return the columns in sight."""
        fits = max(1, (size.width - HEAD) // self.wide(size))
        left = max(0, min(self.place - fits // 2, len(self.acrosses) - fits))
        return self.acrosses[left : left + fits]

    def down(self, room: int) -> Sequence[Any]:
        """Return the rows in sight, where so many have room."""
        top = max(0, min(self.row - room // 2, len(self.downs) - room))
        return self.downs[top : top + max(1, room)]


def place_of(cell: Cell, column: str) -> str:
    """Return in words where a cell stands: layer 3, op attn.out; an op that nobody knows has no name."""
    across = cell[column]
    return f"layer {cell['layer']}, {f'unknown {column}' if across is None else f'{column} {across}'}"


def grid(answer: Answer, look: Look, weight: str) -> Grid:
    """Return the grid of an answer: layers and numbers in order, ops by their falling sum of the weight."""
    row_name, column = answer.key
    downs = answer.rows[row_name].unique().sort().to_list()
    sums = answer.rows.group_by(column).agg(pl.col(weight).sum())
    if answer.rows.schema[column].is_numeric():
        sums = sums.sort(column)
    else:
        sums = sums.sort(weight, column, descending=[True, False], nulls_last=True)
    acrosses = sums[column].to_list()
    cells = {(r[row_name], r[column]): r for r in answer.rows.iter_rows(named=True)}
    row, place = (max(0, min(at, len(of) - 1)) for at, of in zip(look.cursor, (downs, acrosses), strict=True))
    return Grid(row_name, column, downs, acrosses, cells, row, place)


def drawn(
    shown: Grid,
    size: Size,
    paint: Callable[[Cell | None, Any, bool], Span],
    foot: Sequence[Line],
    categories: Mapping[Any, str | None] = MappingProxyType({}),
) -> list[Line]:
    """Return a heading, the cells as `paint` draws them, and the lines of the foot.

    `categories` has those of the columns, as far as they are of one.
    """
    across = shown.across(size)
    here = shown.downs[shown.row], shown.acrosses[shown.place]
    head = ink.line(
        (f"{shown.row_name:<{HEAD}}"[:HEAD], "title"), *_headings(across, shown.wide(size), size, categories)
    )
    body = [
        ink.line(
            (f"{down!s:>{HEAD - 1}} ", "dim"),
            *(paint(shown.cells.get((down, a)), a, (down, a) == here) for a in across),
        )
        for down in shown.down(size.height - 1 - len(foot))
    ]
    return ink.clip([head, *body, *foot], size)


def _headings(
    shown: Sequence[Any], wide: int, size: Size, categories: Mapping[Any, str | None]
) -> list[Span]:
    """Return a label over each cell, in the colour of its category; wide numbers stand over every second,
    third … one.
    """
    labels = _short(["–" if a is None else str(a) for a in shown], wide - 1)
    every = 1
    if all(isinstance(a, int) for a in shown):
        every = -(-(max(map(len, labels)) + 1) // wide)
    return [
        Span(ink.fit(label, every * wide - 1, ascii=size.ascii) + " ", toned(categories.get(a)) or "title")
        for a, label in list(zip(shown, labels, strict=True))[::every]
    ]


def _short(labels: Sequence[str], wide: int) -> Sequence[str]:
    """Return the labels without the family before the dot, where they do not fit and stay different."""
    if max(map(len, labels), default=0) <= wide:
        return labels
    last = [label.rpartition(".")[2] for label in labels]
    return [short if last.count(short) == 1 else label for label, short in zip(labels, last, strict=True)]


def changed(
    percent: float, wide: int, bounds: Sequence[float], least: float, *, ascii: bool, mark: str = " "
) -> Span:
    """Return a cell in the colour of its change: in it the change in per cent where that is `least` or more
    and has room, else its signs, which need no colour; `mark` stands at its end.
    """
    if wide < WRITTEN:
        text = glyphs.drift_mark(percent, ascii, bounds, wide - 1).ljust(wide - 1)
    else:
        level = glyphs.drift_mark(0, ascii)
        text = f"{f'{percent:+.0f}%' if abs(percent) >= least else level:>{wide - 1}}"
    return Span(text + mark, glyphs.drift(percent, bounds))


def legend(bounds: Sequence[float], same: str, wide: int, size: Size, over: str = "") -> Line:
    """Return the line that explains the colours and the signs of changes in cells so wide: what is the
    `same`, and where there is room, what others are `over`.
    """
    spans = [Span(" " * HEAD, "dim")]
    for low in (*(-b for b in reversed(bounds) if b < NOTHING_LEFT), 0, *bounds):
        word = f"{low:+.0f}%" if low else same
        mark = glyphs.drift_mark(low, size.ascii, bounds, wide - 1)
        spans += [Span(f" {mark} {word} ", glyphs.drift(low, bounds)), Span(" ")]
    room = size.width - sum(ink.wide(span.text) for span in spans)
    return (*spans, *([Span(over, "dim")] if over and len(over) <= room else []))


def entered(answer: Answer, look: Look, weight: str) -> Focus:
    """Return the row and the column under the cursor."""
    if answer.rows.is_empty():
        return ()
    shown = grid(answer, look, weight)
    return ((shown.row_name, shown.downs[shown.row]), (shown.column, shown.acrosses[shown.place]))
