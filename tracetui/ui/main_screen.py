"""The one screen: header and tabs, a table or a drawing, status and keys."""

from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import Final

from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from tracetui.glyphs import count_cells
from tracetui.ui.terminal.paint import Painter
from tracetui.ui.widgets import LinePane, Pane, TablePane
from tracetui.views.ink import Line, Span

RowText = tuple[str, str]  # heading and text of what stands below the table about a row
LEAST_SIZE: Final = (20, 5)  # a smaller screen shows a message only
LEAD_LEAST_PART: Final = 5  # the answer in words takes at most a fifth of the screen
TABS_LEAST_HEIGHT: Final = 9  # lower screens have no tabs


class MainScreen(Screen[None]):
    """Composes the widgets and shows what it is given."""

    AUTO_FOCUS = ""

    def __init__(self, painter: Painter) -> None:
        super().__init__()
        self.table = TablePane(painter, id="table")
        self.drawing, self._lead, self._name_lines, self._too_small = (
            LinePane(painter, id=name) for name in ("drawing", "lead", "full", "small")
        )
        self._head, self._tabs, self._tour, self._status, self._foot = (
            LinePane(painter, "bar", id=name) for name in ("header", "tabs", "tour", "status", "footer")
        )
        for hidden in (self.drawing, self._lead, self._name_lines, self._tour):
            _set_display(hidden, False)
        self._cursor_line: int | None = None  # line of the drawing
        self._full_sheet, self._full_height = (
            self.table.sheet,
            0,
        )  # whose row is shown in full, in how many lines
        self.shows_table = True
        # Whether the question, and the view, changed since the last drawing.
        self._is_other_question = self._is_other_view = False

    def compose(self) -> ComposeResult:
        yield from (self._head, self._tabs, self._lead, self.table, self.drawing, self._name_lines)
        yield from (self._tour, self._status, self._foot, self._too_small)

    @property
    def has_cursor(self) -> bool:
        """Whether a drawing with a cursor is shown."""
        return not self.shows_table and self._cursor_line is not None

    @property
    def pane_size(self) -> Size:
        """The cells that a table or drawing may fill."""
        first, other = (self.table, self.drawing) if self.shows_table else (self.drawing, self.table)
        return first.size or other.size  # a pane that was just shown has no size yet

    def paint_with(self, painter: Painter) -> None:
        for pane in self.query(Pane):
            pane.paint_with(painter)

    def show_drawing(self, lines: Sequence[Line], keep_top: bool = False) -> None:
        """Show lines, scrolled so that the one with the cursor is visible."""
        self.show_lead(())
        self.show_pane(table=False)
        self._cursor_line = find_cursor_line(lines)
        self.drawing.show(lines, self._compute_top(keep_top))
        self._is_other_question = self._is_other_view = False

    def reset_scroll(self, *, other_view: bool) -> None:
        """Show the next drawing from its top; in the same view, one with a cursor keeps its position."""
        self._is_other_question = True
        self._is_other_view |= other_view

    def show_pane(self, *, table: bool) -> None:
        """Show the table or the drawing by `display`: a CSS class would restyle every widget."""
        if self.shows_table != table:
            (self.table if table else self.drawing).inherit_size(self.pane_size)
            self.shows_table = table
            _set_display(self.table, table)
            _set_display(self.drawing, not table)

    def _compute_top(self, keep: bool) -> int:
        top = 0 if self._is_other_view else self.drawing.top_line
        height = max(1, self.pane_size.height)
        if self._cursor_line is None:
            return top if keep and not self._is_other_question else 0
        return top if top <= self._cursor_line < top + height else max(0, self._cursor_line - height // 2)

    def show_bands(self, head: Line, tabs: Line, keys: Line) -> None:
        self._head.show([head])
        self._tabs.show([tabs])
        self._foot.show([keys])

    def show_lead(self, notes: Sequence[str]) -> None:
        """Show above the table the notes that are the answer itself; indented ones are details."""
        lines = fit_notes(notes, max(1, self.size.width - 2), max(1, self.size.height // LEAD_LEAST_PART))
        self._show_in_height(self._lead, lines, len(lines))

    def show_row_in_full(
        self, name: str, texts: Sequence[RowText] = (), texts_of_all: Iterable[Sequence[RowText]] = ()
    ) -> None:
        """Show below the table what it cuts of a row: its name, and sentences, each with its heading.

        The table keeps its height from row to row: that below which the texts of all rows fit, if these are
        given, else what the rows shown so far needed.
        """
        room = max(1, self.size.width - 2)
        limit = max(1, self.size.height * 2 // 5)
        is_cut = any(count_cells(name) > column.width for column in self.table.columns[:1])
        names: list[Line] = [(Span(f" {part}", "name"),) for part in wrap_cells(name, room)] if is_cut else []
        lines = names + _draw_texts(texts, room)
        heights = [len(lines), *(len(names) + len(_draw_texts(others, room)) for others in texts_of_all)]
        if len(heights) == 1 and lines and self._full_sheet is self.table.sheet:
            heights.append(self._name_lines.size.height)
        self._full_sheet = self.table.sheet
        self._show_in_height(self._name_lines, lines, min(limit, max(heights)))

    def show_tour(self, draw: Callable[[int], list[Line]]) -> None:
        """Show the text of the tour, drawn for the width."""
        lines = draw(self.size.width)
        self._show_in_height(self._tour, lines, len(lines))

    def _show_in_height(self, pane: LinePane, lines: Sequence[Line], height: int) -> None:
        """Show a pane with some lines in a height, or hide it if there are none."""
        if bool(lines) != bool(pane.display) or len(lines) != pane.size.height:
            pane.styles.height = height
            _set_display(pane, bool(lines))
        pane.show(lines)

    def show_status(self, line: Line) -> None:
        self._status.show([line])

    def fit_to_size(self, size: Size) -> None:
        """Hide the tabs on a low screen; on one that is too small show only a message."""
        tiny = size.width < LEAST_SIZE[0] or size.height < LEAST_SIZE[1]
        if tiny != self.has_class("tiny"):
            self.set_class(tiny, "tiny")
        _set_display(self._tabs, size.height >= TABS_LEAST_HEIGHT)
        message = (Span(f"terminal too small ({size.width}x{size.height})", "warn"),)
        self._too_small.show([message] if tiny else [])


def _set_display(widget: Widget, visible: bool) -> None:
    """Hide a widget, or leave it to the style sheet, which hides all on a screen that is too small."""
    widget.styles.display = None if visible else "none"


def fit_notes(notes: Sequence[str], width: int, most: int) -> list[Line]:
    """Wrap notes into at most so many lines; too long ones are cut to one line each, the first last.

    A reason below the first notes is worth more than the ends of these.
    """
    wrapped = [wrap(note.strip(), max(1, width - _count_indent(note) - 2)) or [""] for note in notes]
    for at in range(len(wrapped) - 1, -1, -1):
        limit = 1 if at or len(notes) > most else max(1, most // 2)
        if sum(map(len, wrapped)) > most and len(wrapped[at]) > limit:
            wrapped[at] = [*wrapped[at][: limit - 1], f"{wrapped[at][limit - 1]} …"]
    lines: list[Line] = []
    for note, parts in zip(notes, wrapped, strict=True):
        indent, style = " " * _count_indent(note), "dim" if note[:1] == " " else "bold"
        lines += [(Span(f" {indent}{'  ' if i else ''}{part}", style),) for i, part in enumerate(parts)]
    return lines[:most]


def _count_indent(note: str) -> int:
    return len(note) - len(note.lstrip())


def wrap_cells(text: str, width: int) -> list[str]:
    """Return a text cut into lines of at most so many cells."""
    lines = [""]
    for char in text:
        if count_cells(lines[-1]) + count_cells(char) > width:
            lines.append("")
        lines[-1] += char
    return lines


def find_cursor_line(lines: Sequence[Line]) -> int | None:
    """Return the index of the first line with a cursor in it, or None."""
    return next((i for i, line in enumerate(lines) if any(s.style == "cursor" for s in line)), None)


def _draw_texts(texts: Sequence[RowText], room: int) -> list[Line]:
    """Return the lines of texts, each after its heading."""
    lines: list[Line] = []
    for heading, text in texts:
        first, *others = wrap(f"{heading}: {text}", room)
        label = heading[: len(first)] + ":" * (len(first) > len(heading))
        lines.append((Span(f" {label}", "dim"), Span(first[len(label) :])))
        lines += [(Span(f" {part}"),) for part in others]
    return lines
