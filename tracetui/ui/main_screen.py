"""The one screen: a head, a pane, a foot."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from tracetui.look import Look
from tracetui.ui.messages import DrawingClicked, TabsClicked
from tracetui.ui.panes.lines import Drawing, Lines, Tabs
from tracetui.ui.panes.table import Table
from tracetui.ui.sheet import Sheet
from tracetui.ui.terminal.paint import Painter
from tracetui.views.ink import Line, Span, wide

LEAST: Final = (20, 5)
LOW: Final = 9  # below this height the tabs make room for rows


class MainScreen(Screen[None]):
    """Composition only; what happens is decided in the app."""

    AUTO_FOCUS = ""

    def __init__(self, painter: Painter) -> None:
        super().__init__()
        self.table = Table(painter, id="table")
        self._drawing = Drawing(painter, id="drawing")
        self._full = Lines(painter, id="full")
        self._head, self._tabs = Lines(painter, "bar", id="header"), Tabs(painter, "bar", id="tabs")
        self._status, self._foot = Lines(painter, "bar", id="status"), Lines(painter, "bar", id="footer")
        self._tour = Lines(painter, "bar", id="tour")
        self._small = Lines(painter, id="small")
        for hidden in (self._drawing, self._full, self._tour):
            _show(hidden, False)
        self._cursor: int | None = None  # the line of the drawing that has it
        self.shows_table = True
        # Whether something else was asked since the last drawing, and in another view.
        self._other_question = self._other_view = False
        self.point: Callable[[int, int], None] | None = None  # is told the column and line of a click in it
        self.tab: Callable[[int], None] | None = None  # is told the column of a click in the line of tabs

    def compose(self) -> ComposeResult:
        yield from (self._head, self._tabs, self.table, self._drawing, self._full)
        yield from (self._tour, self._status, self._foot, self._small)

    @property
    def has_cursor(self) -> bool:
        """Whether a drawing is shown that has a cursor in it."""
        return not self.shows_table and self._cursor is not None

    @property
    def pane(self) -> Size:
        """What a drawing may fill."""
        first, other = (self.table, self._drawing) if self.shows_table else (self._drawing, self.table)
        return first.size or other.size  # a pane that is only just shown has no size yet

    def paint_with(self, painter: Painter) -> None:
        for lines in self.query(Lines):
            lines.paint_with(painter)
        self.table.paint_with(painter)

    def show_table(
        self,
        sheet: Sheet,
        look: Look,
        row: int | None,
        notes: Sequence[str] = (),
        *,
        follow: bool = False,
        noted: Collection[tuple[Any, ...]] = (),
    ) -> None:
        self._swap(True)
        self.table.show(sheet, look, row, notes, follow=follow, noted=noted)

    def show_drawing(self, lines: Sequence[Line], keep_top: bool = False) -> None:
        """Show lines, scrolled so that the one with the cursor is in sight."""
        self._swap(False)
        self._cursor = cursor_line(lines)
        self._drawing.show(lines, self._top(keep_top))
        self._other_question = self._other_view = False

    def begin_at_top(self, *, other_view: bool) -> None:
        """Have the next drawing begin at its top, wherever the one before was scrolled to.

        In the same view one with a cursor stays where it is.
        """
        self._other_question = True
        self._other_view |= other_view

    def _swap(self, table: bool) -> None:
        """Show the table or the drawing by its own display: a class would style every widget again."""
        if self.shows_table != table:
            (self.table if table else self._drawing).take_place(self.pane)
            self.shows_table = table
            _show(self.table, table)
            _show(self._drawing, not table)

    @property
    def top(self) -> int:
        """The first line of the drawing that is in sight."""
        return self._drawing.top

    @property
    def at_end(self) -> bool:
        """Whether the last line of the drawing is in sight."""
        return self._drawing.at_end

    def scroll_drawing(self, by: int) -> None:
        self._drawing.scroll_lines(by)

    def on_drawing_clicked(self, message: DrawingClicked) -> None:
        if self.point is not None:
            self.point(message.column, message.line)

    def on_tabs_clicked(self, message: TabsClicked) -> None:
        if self.tab is not None:
            self.tab(message.column)

    def _top(self, keep: bool) -> int:
        top = 0 if self._other_view else self._drawing.top
        height = max(1, self.pane.height)
        if self._cursor is None:
            return top if keep and not self._other_question else 0
        return top if top <= self._cursor < top + height else max(0, self._cursor - height // 2)

    def show_bands(self, head: Line, tabs: Line, keys: Line) -> None:
        self._head.show([head])
        self._tabs.show([tabs])
        self._foot.show([keys])

    def show_whole(self, name: str) -> None:
        """Show a name that its cell cuts in lines of its own below the table; an empty one hides them."""
        room = max(1, self.size.width - 2)
        most = max(1, self.size.height * 2 // 5)
        cut = any(wide(name) > column.width for column in self.table.columns[:1])
        lines = [(Span(f" {part}", "name"),) for part in wrapped(name, room)] if cut else []
        if bool(lines) != bool(self._full.display) or len(lines) != self._full.size.height:
            self._full.styles.height = min(len(lines), most)
            _show(self._full, bool(lines))
        self._full.show(lines)

    def show_tour(self, lines: Callable[[int], list[Line]]) -> None:
        """Show what the tour says, in as many lines as the width asks for."""
        told = lines(self.size.width)
        if not self._tour.display or len(told) != self._tour.size.height:
            self._tour.styles.height = len(told)
            _show(self._tour, True)
        self._tour.show(told)

    def show_status(self, line: Line) -> None:
        self._status.show([line])

    def fit_to(self, size: Size) -> None:
        """Hide the tabs on a low screen; on one too small for anything show a word alone."""
        tiny = size.width < LEAST[0] or size.height < LEAST[1]
        if tiny != self.has_class("tiny"):
            self.set_class(tiny, "tiny")
        _show(self._tabs, size.height >= LOW)
        self._small.show(
            [(Span(f"terminal too small ({size.width}x{size.height})", "warn"),)] if tiny else []
        )


def _show(widget: Widget, shown: bool) -> None:
    """Hide a widget, or leave it to the style sheet, which hides all of them on a screen too small."""
    widget.styles.display = None if shown else "none"


def wrapped(text: str, width: int) -> list[str]:
    """Return a text cut into lines of so many cells."""
    lines = [""]
    for char in text:
        if wide(lines[-1]) + wide(char) > width:
            lines.append("")
        lines[-1] += char
    return lines


def cursor_line(lines: Sequence[Line]) -> int | None:
    """Return the place of the first line with a cursor in it; None where there is none."""
    return next((i for i, line in enumerate(lines) if any(s.style == "cursor" for s in line)), None)
