"""A pane that shows lines of ink and sends only those that changed."""

from collections.abc import Sequence
from typing import Any

from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from tracetui.ui.messages import DrawingClicked, PaneResized, TabsClicked
from tracetui.ui.terminal.paint import Painter
from tracetui.views.ink import Line


class Lines(Widget):
    """Lines from the top; what is longer than the pane is scrolled."""

    ALLOW_SELECT = False

    def __init__(self, painter: Painter, base: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._painter, self._base = painter, base
        self._lines: Sequence[Line] = ()
        self._top = 0
        self._before_layout = Size(0, 0)

    @property
    def top(self) -> int:
        return self._top

    @property
    def at_end(self) -> bool:
        """Whether the last line is in sight."""
        return self._top + self.size.height >= len(self._lines)

    def paint_with(self, painter: Painter) -> None:
        self._painter = painter
        self.refresh()

    def show(self, lines: Sequence[Line], top: int = 0) -> None:
        """Show other lines; only rows that look different are painted again."""
        old, old_top = self._lines, self._top
        self._lines, self._top = lines, self._bounded(top)
        changed = [y for y in range(self.size.height) if _at(old, old_top + y) != _at(lines, self._top + y)]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def scroll_lines(self, by: int) -> None:
        self.show(self._lines, self._top + by)

    def on_resize(self) -> None:
        self.scroll_lines(0)  # it may have been scrolled too far before it had a size
        self.post_message(PaneResized())

    def _bounded(self, top: int) -> int:
        return max(0, min(top, len(self._lines) - (self.size or self._before_layout).height))

    def take_place(self, size: Size) -> None:
        """Come into sight where something of this size is; that counts until the lines are laid out."""
        self._before_layout = size

    def render_line(self, y: int) -> Strip:
        return self._painter.strip(_at(self._lines, self._top + y) or (), self.size.width, self._base)


class Drawing(Lines):
    """The lines of a view or a page, which tell where they are clicked."""

    def on_click(self, event: events.Click) -> None:
        self.post_message(DrawingClicked(event.x, event.y + self.top))


class Tabs(Lines):
    """The line of tabs, which tells where it is clicked."""

    def on_click(self, event: events.Click) -> None:
        self.post_message(TabsClicked(event.x))


def _at(lines: Sequence[Line], y: int) -> Line | None:
    return lines[y] if 0 <= y < len(lines) else None
