"""The widgets: panes of styled lines, and a table that costs only its visible rows, whatever their number."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final

import polars as pl
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from capture.errors import CaptureError
from tracetui.analysis.frames.name_filter import match_names
from tracetui.glyphs import count_cells, fit_cells, fit_sentence
from tracetui.look import Look
from tracetui.ui.messages import CursorMoved, HeadingClicked, LineClicked, PaneResized, RowClicked
from tracetui.ui.sheet import EMPTY, GAP_CELLS, Sheet, SheetColumn
from tracetui.ui.terminal.paint import Painter
from tracetui.views.ink import Line, Span, find_sort_sign

BLOCK_ROWS: Final = 64
MOST_NOTES: Final = 2  # below a table; a key shows all
CACHED_BLOCKS: Final = 16
GUTTER_CELLS: Final = 1
MARK_SIGN: Final = "•"
NOTE_SIGN: Final = '"'
_GAP: Final = Span(" " * GAP_CELLS)


class Pane(Widget):
    """Paints lines; until it has a layout, it has the size of the pane that it replaces."""

    ALLOW_SELECT = False

    def __init__(self, painter: Painter, **options: Any) -> None:
        super().__init__(**options)
        self._painter = painter
        self._before_layout = Size(0, 0)

    @property
    def effective_size(self) -> Size:
        return self.size or self._before_layout

    def inherit_size(self, size: Size) -> None:
        self._before_layout = size

    def paint_with(self, painter: Painter) -> None:
        self._painter = painter
        self.refresh()

    def _refresh_lines(self, *lines: int) -> None:
        if lines:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in lines))


class LinePane(Pane):
    """Styled lines, scrolled if there are more than fit."""

    def __init__(self, painter: Painter, base: str = "", **options: Any) -> None:
        super().__init__(painter, **options)
        self._base = base
        self._lines: Sequence[Line] = ()
        self.top_line = 0  # the first visible line

    @property
    def is_at_end(self) -> bool:
        """Whether the last line is visible."""
        return self.top_line + self.size.height >= len(self._lines)

    def show(self, lines: Sequence[Line], top: int = 0) -> None:
        """Show other lines; only those that differ are painted again."""
        before = [self._find_line(y) for y in range(self.size.height)]
        self._lines = lines
        self.top_line = max(0, min(top, len(lines) - self.effective_size.height))
        self._refresh_lines(*(y for y, line in enumerate(before) if line != self._find_line(y)))

    def scroll_lines(self, by: int) -> None:
        self.show(self._lines, self.top_line + by)

    def render_line(self, y: int) -> Strip:
        return self._painter.paint_strip(self._find_line(y), self.size.width, self._base)

    def _find_line(self, y: int) -> Line:
        """Return the line at position `y` of the pane, empty below the last one."""
        y += self.top_line
        return self._lines[y] if y < len(self._lines) else ()

    def on_resize(self) -> None:
        self.scroll_lines(0)  # it may have been scrolled too far while it had no size
        self.post_message(PaneResized())

    def on_click(self, event: events.Click) -> None:
        self.post_message(LineClicked(self.id, event.x, event.y + self.top_line))


class TablePane(Pane):
    """A fixed heading and the rows below it, with a cursor."""

    def __init__(self, painter: Painter, **options: Any) -> None:
        super().__init__(painter, **options)
        self.sheet, self._look = EMPTY, Look()
        self.cursor = 0  # its row
        self._notes: tuple[str, ...] = ()
        self._legend: Line = ()  # meaning of the colours
        self._noted_rows: Collection[tuple[Any, ...]] = ()  # keys of the rows that have a note
        self._top = 0
        self._wanted_top = 0  # as scrolled by the user; stays when an answer has fewer rows
        self._shift = 0  # columns scrolled out
        self._shifted: list[str] = []  # all columns of the answer in which they are
        self.columns: tuple[SheetColumn, ...] = ()
        self._blocks: dict[int, list[Line]] = {}
        self._painted_lines: dict[int, tuple[Line, str]] = {}  # by line of the screen

    @property
    def row(self) -> dict[str, Any]:
        """The values of the row under the cursor, empty if there is none."""
        rows = self.sheet.rows
        return rows.row(self.cursor, named=True) if self.cursor < rows.height else {}

    @property
    def page_rows(self) -> int:
        """Rows that fit."""
        return max(1, self.effective_size.height - 1)

    def paint_with(self, painter: Painter) -> None:
        self._blocks.clear()
        super().paint_with(painter)

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
        """Show another sheet with the cursor on a row.

        Without `cursor` it stays on its row, found by key; with `follow`, it stays on the last row.
        """
        self._notes, self._noted_rows = tuple(notes), noted
        if sheet is not self.sheet:
            legend = sheet.style.legend if sheet.style is not None and self._painter.colours else None
            self._legend = legend(sheet.rows) if legend is not None else ()
        if cursor is None and follow and self.cursor >= self.sheet.rows.height - 1:
            cursor = sheet.rows.height - 1
            self._wanted_top = cursor - self.page_rows + 1
        elif cursor is None:
            same_kind = sheet.key == self.sheet.key  # otherwise the rows are of something else
            before = self.sheet.read_key(self.cursor)
            cursor = sheet.find_row(before, self.cursor) if same_kind else look.cursor[0]
            self._wanted_top = self._top + cursor - self.cursor
        self.sheet, self._look, self.cursor = sheet, look, cursor
        self._lay_out()

    def _lay_out(self) -> None:
        """Fit columns and rows to the size, and paint the lines that differ."""
        self._blocks.clear()
        self.columns = self.sheet.arrange_columns(
            self.effective_size.width - GUTTER_CELLS, self._look, self._first_column
        )
        self.cursor = self._clamp_row(self.cursor)
        self._top = self._clamp_top(self._wanted_top)
        if not self._top <= self.cursor < self._top + self.page_rows:
            self._top = self._clamp_top(self.cursor - self.page_rows // 2)
        lines = range(self.size.height)
        self._refresh_lines(*(y for y in lines if self._painted_lines.get(y) != self._build_line(y)))

    def on_resize(self) -> None:
        self._painted_lines.clear()
        self._lay_out()

    # moving

    def move(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def move_to(self, row: int) -> None:
        """Move the cursor to a row; at an edge scroll by half a page, which saves repaints on slow lines."""
        row = self._clamp_row(row)
        old, self.cursor = self.cursor, row
        if row == old:
            return
        self._wanted_top = self._top
        if self._top <= row < self._top + self.page_rows:
            self._refresh_lines(old - self._top + 1, row - self._top + 1)
        else:
            near = abs(row - old) == 1
            margin = self.page_rows // 2 if near or row > old else self.page_rows - 1 - self.page_rows // 2
            self._scroll_to_row(row - margin)
            self.refresh()
        self.post_message(CursorMoved())

    def move_by_pages(self, pages: float) -> None:
        """Scroll by pages, or by a part of one, with the cursor."""
        by = round(pages * self.page_rows) or (1 if pages > 0 else -1)
        self._scroll_to_row(self._top + by)
        old, self.cursor = self.cursor, self._clamp_row(self.cursor + by)
        if old != self.cursor:
            self.refresh()
            self.post_message(CursorMoved())

    def shift_columns(self, columns: int) -> None:
        """Scroll by columns."""
        last = max(0, len(self.sheet.columns) - 2)
        first = max(0, min(self._first_column + columns, last))
        hidden = len(self.columns) < len(self.sheet.columns)
        if first != self._first_column and (hidden or first < self._first_column):
            self._shift, self._shifted = first, self.sheet.rows.columns
            self._lay_out()

    def move_to_match(self, pattern: str, direction: int) -> bool:
        """Move to the next row whose name matches, in a circle; return whether there is one."""
        if not pattern or not self.sheet.columns:
            return False
        names = self.sheet.rows[self.sheet.columns[0].name].cast(pl.String)
        short_names = names.replace(self.sheet.display_names)
        try:
            is_match = match_names(names, pattern) | match_names(short_names, pattern)
        except CaptureError:
            return False
        rows = is_match.fill_null(False).arg_true().to_list()
        ahead = [row for row in rows if (row - self.cursor) * direction > 0]
        if rows:
            self.move_to((ahead or rows)[0 if direction > 0 else -1])
        return bool(rows)

    # painting

    def render_line(self, y: int) -> Strip:
        line, base = self._painted_lines[y] = self._build_line(y)
        return self._painter.paint_strip(line, self.size.width, base)

    def _build_line(self, y: int) -> tuple[Line, str]:
        """Return the content of a line of the screen, and the style below it."""
        if y == 0:
            return self._build_heading(), "head"
        row = self._top + y - 1
        if row >= self.sheet.rows.height:
            return self._build_note(row - self.sheet.rows.height - 1), ""
        has_cursor = row == self.cursor
        return self._build_row(row, plain=has_cursor), "cursor" if has_cursor else ""

    def _build_heading(self) -> Line:
        spans = [Span(" " * GUTTER_CELLS)]
        orders = self._look.sort_orders or self.sheet.default_order
        for column in self.columns:
            mark = find_sort_sign(orders, column.name)
            text = fit_cells(column.heading, column.width - len(mark)).rstrip() + mark
            spans.append(Span(fit_cells(text, column.width, right=column.kind == "number") + " " * GAP_CELLS))
        return tuple(spans)

    def _build_row(self, row: int, plain: bool) -> Line:
        key = self.sheet.read_key(row) if self._noted_rows or self._look.chosen else ()
        sign = NOTE_SIGN if key in self._noted_rows else MARK_SIGN if key in self._look.chosen else ""
        first = Span(sign, "" if plain else "warn") if sign else Span(" " * GUTTER_CELLS)
        cells = self._build_cells(row)
        return (first, *(Span(text) for text, _ in cells)) if plain else (first, *cells)

    def _build_note(self, index: int) -> Line:
        """Return a line of the legend and the notes, which follow the last row if there is room."""
        if self._legend and index <= 0:
            return (Span(" "), *self._legend) if index == 0 else ()
        index -= bool(self._legend)
        lines = _fit_notes(self._notes, max(1, self.size.width - 4), self._painter.ascii)
        return (Span(f" {lines[index]}", "dim"),) if 0 <= index < len(lines) else ()

    def _build_cells(self, row: int) -> Line:
        number, inside = divmod(row, BLOCK_ROWS)
        if number not in self._blocks:
            if len(self._blocks) >= CACHED_BLOCKS:
                self._blocks.clear()
            self._blocks[number] = self._build_block(number * BLOCK_ROWS)
        return self._blocks[number][inside]

    def _build_block(self, start: int) -> list[Line]:
        texts = self.sheet.format_rows(start, BLOCK_ROWS, self.columns, self._painter.ascii)
        styles = self.sheet.list_styles(start, BLOCK_ROWS, self.columns)
        rows = (zip(*row, strict=True) for row in zip(texts, styles, strict=True))
        return [tuple(span for cell in row for span in (Span(*cell), _GAP)) for row in rows]

    def _scroll_to_row(self, top: int) -> None:
        self._top = self._wanted_top = self._clamp_top(top)

    @property
    def _first_column(self) -> int:
        """The first displayed column; the shift of another answer does not apply."""
        return self._shift if self._shifted == self.sheet.rows.columns else 0

    def _clamp_row(self, row: int) -> int:
        return max(0, min(row, self.sheet.rows.height - 1))

    def _clamp_top(self, top: int) -> int:
        return max(0, min(top, self.sheet.rows.height - self.page_rows))

    # mouse

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            column = _find_column_at(event.x, self.columns)
            if column is not None and column.name in self.sheet.sortable:
                self.post_message(HeadingClicked(column.name, event.shift))
            return
        row = self._top + event.y - 1
        if row == self.cursor:
            self.post_message(RowClicked())
        elif row < self.sheet.rows.height:
            self.move_to(row)

    def on_mouse_scroll_down(self) -> None:
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        self.move(-3)


def _find_column_at(x: int, columns: Sequence[SheetColumn]) -> SheetColumn | None:
    """Return the column at position `x` of the heading, or None to the right of all."""
    right = GUTTER_CELLS
    for column in columns:
        right += column.width + GAP_CELLS
        if x < right:
            return column
    return None


@lru_cache(maxsize=8)
def _fit_notes(notes: Sequence[str], width: int, ascii: bool) -> list[str]:
    """Return the first notes, a line each with a leading dot, and how to see all of them."""
    lines = [f"· {fit_sentence(note, width, ascii).rstrip()}" for note in notes[:MOST_NOTES]]
    is_cut = len(notes) > MOST_NOTES or any(count_cells(note) > width for note in notes)
    more = {1: "the whole note", 2: "both notes"}.get(len(notes), f"all {len(notes)} notes")
    return [*lines, f"  i: {more}"] if is_cut else lines
