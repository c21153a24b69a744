"""The guides: as a list to choose from, and one of them as lines."""

import textwrap
from typing import ClassVar, Final

import polars as pl
from msgspec import Struct

from tracetui.ui.session import Session
from tracetui.views import Answer
from tracetui.views.ink import Line, Size, Span

COLUMNS: Final = ("guide",)
NARROWEST: Final = 10


class GuideList(Struct, frozen=True):
    """The page on which a guide is chosen."""

    footer: ClassVar = "guides"
    columns: ClassVar = COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each guide: its topic and what it is for."""
        from tracetui.guides import TOPICS, title  # read only when somebody asks for help

        wide = max(map(len, TOPICS)) + 2
        rows = [f"{topic:{wide}}{title(topic)}" for topic in TOPICS]
        return Answer(pl.DataFrame({"guide": rows}), ("Enter opens a guide, Esc goes back to the help",))

    def topic(self, row: int) -> str:
        """Return the topic in a row."""
        from tracetui.guides import TOPICS

        return TOPICS[row]


class GuidePage(Struct, frozen=True):
    """One guide."""

    topic: str

    footer: ClassVar = "page"

    def lines(self, size: Size) -> list[Line]:
        """Return the Markdown of the guide, in lines that are no wider than the screen."""
        from tracetui.guides import guide

        room = max(NARROWEST, size.width - 2)
        out: list[Line] = []
        for line in guide(self.topic).splitlines():
            style = "title" if line.startswith("#") else ""
            indent = " " * (len(line) - len(line.lstrip()))
            parts = textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False) or [""]
            out += [(Span(f" {part}", style),) for part in parts]
        return out
