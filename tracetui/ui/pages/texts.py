"""Pages of text: what is being read, why nothing can be shown, and what an engine can be asked."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from capture.text import middle
from tracetui import glyphs, units
from tracetui.process import Engine
from tracetui.ui.workers.feed import Feed, Progress
from tracetui.views.ink import Line, Size, Span

NARROWEST = 10
MOST_LINES = 500  # of what a program prints


class LoadingPage(Struct, frozen=True):
    """Nothing is there to be shown yet."""

    feed: Feed | None

    footer: ClassVar = "page"

    @property
    def can_cancel(self) -> bool:
        """Whether Esc leaves it: what is read here is as it was, an engine is not lost by a slip."""
        return self.feed is None or self.feed.live is None

    def lines(self, size: Size) -> list[Line]:
        """Return a bar for the bytes that were read, or what an engine is doing before its first step."""
        if self.feed is None:
            return []
        progress = self.feed.progress()
        return _waiting(progress, size) if progress.size is None else _reading(progress, size)


class RefusedPage(Struct, frozen=True):
    """Nothing could be read."""

    why: str
    exit_code: int
    keys: str  # the keys that lead out, and to what

    footer: ClassVar = "page"

    def lines(self, size: Size) -> list[Line]:
        wrapped = textwrap.wrap(self.why, max(NARROWEST, size.width - 4), break_on_hyphens=False)
        return [(), *((Span("  " + line, "warn"),) for line in wrapped), (), (Span(f"  {self.keys}", "dim"),)]


class OptionsPage(Struct, frozen=True):
    """What an engine may be asked, while its arguments are edited."""

    offered: tuple[str, ...]
    refused: str = ""  # why those that were asked for last are no options

    footer: ClassVar = "page"

    def lines(self, size: Size) -> list[Line]:
        text = "   ".join(o.replace(" ", "\N{NO-BREAK SPACE}") for o in self.offered)
        width = max(NARROWEST, size.width - 4)
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
        why = textwrap.wrap(self.refused, width, break_on_hyphens=False)
        return [
            *((Span("  " + line, "warn"),) for line in why),
            (),
            (Span("  The engine is started anew with these options; the old run stays beside it.", "title"),),
            (),
            *((Span("  " + line.replace("\N{NO-BREAK SPACE}", " ")),) for line in wrapped),
            (),
            (Span("  Enter starts it    Esc leaves it as it is", "dim"),),
        ]


class OutputPage(Struct, frozen=True):
    """The end of what a program prints, as it comes."""

    engine: Engine
    before: LoadingPage | RefusedPage | None  # what it stands in place of; None: a view

    footer: ClassVar = "page"

    def lines(self, size: Size) -> list[Line]:
        """Return the last lines, the newest at the end."""
        width = max(NARROWEST, size.width - 2)
        printed = self.engine.last_lines(MOST_LINES)
        wrapped = (line[i : i + width] for line in printed for i in range(0, len(line), width))
        body = [(Span(" " + part),) for part in wrapped] or [(Span(" nothing so far", "dim"),)]
        return [(Span(f" What {self.engine.who} prints", "title"), Span("   Esc leads back", "dim")), *body]


def _reading(progress: Progress, size: Size) -> list[Line]:
    names, read, total = progress.names, progress.read, progress.size or 0
    share = min(1.0, read / total) if total else 0.0
    bar = glyphs.bar(share, max(4, min(40, size.width - 20)), size.ascii)
    figures = f" {units.share(share)} of {units.size(total)}" if read else f" {units.size(total)}"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [
        (),
        (
            Span(f"  {progress.doing} "),
            Span(", ".join(middle(name, 80) for name in names[:3]) + more, "title"),
        ),
        (),
        (Span("  "), Span(bar, "accent"), Span(figures)),
        (Span(f"  {progress.seconds:.0f} s", "dim"), Span("    Esc cancels", "dim")),
    ]


def _waiting(progress: Progress, size: Size) -> list[Line]:
    alarm = textwrap.wrap(progress.alarm, max(NARROWEST, size.width - 4))
    return [
        (),
        (Span("  "), Span(progress.doing, "title")),
        *((Span("  " + line, "warn"),) for line in alarm),
        (),
        (Span(f"  {progress.seconds:.0f} s", "dim"), Span("    q leaves", "dim")),
    ]


def note_lines(notes: Sequence[str], width: int) -> list[Line]:
    """Return the reasons why a drawing has nothing to draw, to be shown in its place."""
    room = max(NARROWEST, width - 4)
    return [(), *((Span("  " + part),) for note in notes for part in textwrap.wrap(note, room))]


def doubt_lines(reasons: Sequence[str], width: int) -> list[Line]:
    """Return the reasons why two runs should not be compared, to be shown before the comparison."""
    room = max(NARROWEST, width - 6)
    lines: list[Line] = [(), (Span("  These two runs should not be compared:", "warn"),), ()]
    for reason in reasons:
        first, *rest = textwrap.wrap(reason, room)
        lines += [(Span("  · "), Span(first)), *((Span("    " + part),) for part in rest)]
    keys = "  Enter shows the tables all the same    d another run    Tab further views"
    return [*lines, (), (Span(keys, "dim"),)]
