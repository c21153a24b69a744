"""The table: a million rows at the cost of those in sight."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from textwrap import wrap
from typing import Any, Final

import polars as pl
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from capture.errors import CaptureError
from tracetui.analysis.matching import fitting
from tracetui.look import Look
from tracetui.ui.messages import CursorMoved, HeadingClicked, RowClicked
from tracetui.ui.sheet import EMPTY, GAP, Column, Sheet
from tracetui.ui.terminal.paint import Painter, fit
from tracetui.views.ink import Line, Span

BLOCK: Final = 64
BLOCKS_KEPT: Final = 16
GUTTER: Final = 1
MARKED: Final = "•"
NOTED: Final = '"'
_BETWEEN: Final = Span(" " * GAP)


class Table(Widget):
    """A heading that stays and the rows below it; what moves is the cursor."""

    ALLOW_SELECT = False

    def __init__(self, painter: Painter, **options: Any) -> None:
        super().__init__(**options)
        self._painter = painter
        self._sheet, self._look = EMPTY, Look()
        self._before_layout = Size(0, 0)
        self._notes: tuple[str, ...] = ()
        self._legend: Line = ()  # what the colours of the rows mean
        self._noted: Collection[tuple[Any, ...]] = ()  # rows about which there is a note
        self._cursor = self._top = 0
        self._wanted_top = 0  # where a person has scrolled to; an answer with fewer rows does not change it
        self._shifted: tuple[int, tuple[str, ...]] = (0, ())  # by how many columns, and of which
        self.columns: tuple[Column, ...] = ()
        self._blocks: dict[int, list[Line]] = {}
        self._painted: dict[int, tuple[Line, str]] = {}  # what stands on each line of the screen

    @property
    def sheet(self) -> Sheet:
        return self._sheet

    @property
    def cursor(self) -> int:
        return self._cursor

    @property
    def page(self) -> int:
        """Rows in sight."""
        return max(1, self.extent.height - 1)

    @property
    def extent(self) -> Size:
        """The size; until a table that comes into sight is laid out, that of what it takes the place of."""
        return self.size or self._before_layout

    def take_place(self, size: Size) -> None:
        """Come into sight where something of this size is."""
        self._before_layout = size

    def paint_with(self, painter: Painter) -> None:
        self._painter = painter
        self._blocks.clear()
        self.refresh()

    def show(
        self,
        sheet: Sheet,
        look: Look,
        cursor: int | None = None,
        notes: Sequence[str] = (),
        *,
        follow: bool = False,
        noted: Collection[tuple[Any, ...]] = (),
    ) -> None:
        """Show another sheet with the cursor on a row; None: on the row that it is on, with `follow` on the
        last row where it is on the last.
        """
        self._notes, self._noted = tuple(notes), noted
        if sheet is not self._sheet:
            legend = sheet.dress.legend if sheet.dress is not None and self._painter.colours else None
            self._legend = legend(sheet.rows) if legend is not None else ()
        if cursor is None and follow and self._cursor >= self._sheet.rows.height - 1:
            cursor = sheet.rows.height - 1
            self._wanted_top = cursor - self.page + 1
        elif cursor is None:
            alike = sheet.key == self._sheet.key  # else the rows in sight are those of something else
            cursor = sheet.find(self._sheet.identity(self._cursor), self._cursor) if alike else look.cursor[0]
            self._wanted_top = self._top + cursor - self._cursor
        self._sheet, self._look, self._cursor = sheet, look, cursor
        self._arrange()

    def _arrange(self) -> None:
        """Fit columns and rows to the size, and paint the lines that look different."""
        self._blocks.clear()
        self.columns = self._sheet.arranged(self.extent.width - GUTTER, self._look, self._first)
        self._cursor = max(0, min(self._cursor, self._sheet.rows.height - 1))
        self._top = self._clamped(self._wanted_top)
        if not self._top <= self._cursor < self._top + self.page:
            self._top = self._clamped(self._cursor - self.page // 2)
        changed = [y for y in range(self.size.height) if self._painted.get(y) != self._content(y)]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def on_resize(self) -> None:
        self._painted.clear()
        self._arrange()

    # moving

    def move(self, by: int) -> None:
        self.go(self._cursor + by)

    def go(self, row: int) -> None:
        """Put the cursor on a row; past an edge turn by half a page, which spares the line most repaints."""
        row = max(0, min(row, self._sheet.rows.height - 1))
        old, self._cursor = self._cursor, row
        if row == old:
            return
        self._wanted_top = self._top
        if self._top <= row < self._top + self.page:
            self.refresh(self._line_of(old), self._line_of(row))
        else:
            near = abs(row - old) == 1
            margin = self.page // 2 if near or row > old else self.page - 1 - self.page // 2
            self._scroll(row - margin)
            self.refresh()
        self.post_message(CursorMoved())

    def turn(self, pages: float) -> None:
        """Move by a page, or a part of one, up or down."""
        by = round(pages * self.page) or (1 if pages > 0 else -1)
        self._scroll(self._top + by)
        old, self._cursor = self._cursor, max(0, min(self._cursor + by, self._sheet.rows.height - 1))
        if old != self._cursor:
            self.refresh()
            self.post_message(CursorMoved())

    def shift(self, columns: int) -> None:
        """Bring other columns into sight."""
        last = max(0, len(self._sheet.columns) - 2)
        first = max(0, min(self._first + columns, last))
        hidden = len(self.columns) < len(self._sheet.columns)
        if first != self._first and (hidden or first < self._first):
            self._shifted = first, tuple(self._sheet.rows.columns)
            self._arrange()

    def match(self, pattern: str, direction: int) -> bool:
        """Go to the next row whose name fits, round and round; return whether there is one."""
        if not pattern or not self._sheet.columns:
            return False
        names = self._sheet.rows[self._sheet.columns[0].name].cast(pl.String)
        try:
            shown = fitting(names.replace(self._sheet.shown), pattern) if self._sheet.shown else False
            matches = (fitting(names, pattern) | shown).fill_null(False).arg_true().to_list()
        except CaptureError:
            return False
        if not matches:
            return False
        ahead = [r for r in matches if (r - self._cursor) * direction > 0]
        self.go((ahead or matches)[0 if direction > 0 else -1])
        return True

    # what the cursor stands on

    @property
    def row(self) -> dict[str, Any]:
        rows = self._sheet.rows
        return rows.row(self._cursor, named=True) if self._cursor < rows.height else {}

    # painting

    def render_line(self, y: int) -> Strip:
        line, base = self._painted[y] = self._content(y)
        return self._painter.strip(line, self.size.width, base)

    def _content(self, y: int) -> tuple[Line, str]:
        """Return what belongs on a line of the screen, and the style under it."""
        if y == 0:
            return self._heading(), "head"
        row = self._top + y - 1
        if row >= self._sheet.rows.height:
            return self._note(row - self._sheet.rows.height - 1), ""
        here = row == self._cursor
        return self._line(row, plain=here), "cursor" if here else ""

    def _heading(self) -> Line:
        spans = [Span(" " * GUTTER)]
        for column in self.columns:
            mark = _mark(self._look, column.name)
            text = fit(column.heading, column.width - len(mark)).rstrip() + mark
            spans.append(Span(fit(text, column.width, right=column.kind == "number") + " " * GAP))
        return tuple(spans)

    def _line(self, row: int, plain: bool) -> Line:
        own = self._sheet.identity(row) if self._noted or self._look.chosen else ()
        sign = NOTED if own in self._noted else MARKED if own in self._look.chosen else ""
        first = Span(sign, "" if plain else "warn") if sign else Span(" " * GUTTER)
        cells = self._cells(row)
        return (first, *(Span(text) for text, _ in cells)) if plain else (first, *cells)

    def _note(self, place: int) -> Line:
        """Return a line of the legend and the notes, which stand below the last row where there is room."""
        if self._legend and place <= 0:
            return (Span(" "), *self._legend) if place == 0 else ()
        place -= bool(self._legend)
        lines = _wrapped(self._notes, max(1, self.size.width - 4))
        return (Span(f" {lines[place]}", "dim"),) if 0 <= place < len(lines) else ()

    def _cells(self, row: int) -> Line:
        number, inside = divmod(row, BLOCK)
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= BLOCKS_KEPT:
                self._blocks.clear()
            block = self._block(number * BLOCK)
            self._blocks[number] = block
        return block[inside]

    def _block(self, start: int) -> list[Line]:
        texts = self._sheet.cells(start, BLOCK, self.columns, self._painter.ascii)
        styles = self._sheet.tones(start, BLOCK, self.columns)
        rows = (zip(*row, strict=True) for row in zip(texts, styles, strict=True))
        return [tuple(span for cell in row for span in (Span(*cell), _BETWEEN)) for row in rows]

    def _line_of(self, row: int) -> Region:
        return Region(0, row - self._top + 1, self.size.width, 1)

    def _scroll(self, top: int) -> None:
        self._top = self._wanted_top = self._clamped(top)

    @property
    def _first(self) -> int:
        """By how many columns the table is shifted; those of another answer are not."""
        first, columns = self._shifted
        return first if columns == tuple(self._sheet.rows.columns) else 0

    def _clamped(self, top: int) -> int:
        return max(0, min(top, self._sheet.rows.height - self.page))

    # the mouse, where there is one

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            column = _column_at(event.x, self.columns)
            if column is not None and column.name in self._sheet.sortable:
                self.post_message(HeadingClicked(column.name, event.shift))
            return
        row = self._top + event.y - 1
        if row == self._cursor:
            self.post_message(RowClicked())
        elif row < self._sheet.rows.height:
            self.go(row)

    def on_mouse_scroll_down(self) -> None:
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        self.move(-3)


def _mark(look: Look, column: str) -> str:
    """Return the sign of a column that rows are sorted by, a hollow one where that is within another."""
    for place, (name, falls) in enumerate(look.orders):
        if name == column:
            return ("▽" if place else "▼") if falls else ("△" if place else "▲")
    return ""


def _column_at(x: int, columns: Sequence[Column]) -> Column | None:
    """Return the column at a place of the heading; None to the right of all."""
    right = GUTTER
    for column in columns:
        right += column.width + GAP
        if x < right:
            return column
    return None


@lru_cache(maxsize=8)
def _wrapped(notes: Sequence[str], width: int) -> list[str]:
    """Return each note with a dot in front, in lines of a width."""
    return [f"{' ' if i else '·'} {part}" for note in notes for i, part in enumerate(wrap(note, width))]
