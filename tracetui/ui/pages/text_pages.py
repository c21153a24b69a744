"""Pages of text: loading, refusal, engine options, engine output, and notes in place of a drawing."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from capture.clean_text import shorten_middle
from tracetui import glyphs, units
from tracetui.process import EngineProcess
from tracetui.ui.workers.feed import Feed, LoadProgress
from tracetui.views.ink import DrawSize, Line, Span

TEXT_LEAST_CELLS = 10
MOST_LINES = 500  # of output


class LoadingPage(Struct, frozen=True):
    """Files are being read, or an engine is starting."""

    feed: Feed | None

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        """Return a progress bar of the bytes read, or what the engine is doing."""
        if self.feed is None:
            return []
        progress = self.feed.describe_progress()
        draw = _draw_waiting if progress.total_bytes is None else _draw_reading
        return draw(progress, size)


class RefusedPage(Struct, frozen=True):
    """Nothing could be read, or the engine failed."""

    why: str
    keys: str  # what the user can do

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        why = _wrap(self.why, size.width, "warn", break_on_hyphens=False)
        return [(), *why, (), (Span(f"  {self.keys}", "dim"),)]


class OptionsPage(Struct, frozen=True):
    """The options of the engine, while its arguments are edited."""

    options: tuple[str, ...]
    refused: str = ""  # why the last arguments were refused

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        text = "   ".join(o.replace(" ", "\N{NO-BREAK SPACE}") for o in self.options)
        width = max(TEXT_LEAST_CELLS, size.width - 4)
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
        return [
            *_wrap(self.refused, size.width, "warn", break_on_hyphens=False),
            (),
            (Span("  The engine restarts with these options; the old run stays open.", "title"),),
            (),
            *((Span("  " + line.replace("\N{NO-BREAK SPACE}", " ")),) for line in wrapped),
            (),
            (Span("  Enter restarts it    Esc cancels", "dim"),),
        ]


class NotesPage(Struct, frozen=True):
    """All notes of an answer, in full."""

    title: str
    notes: tuple[str, ...]

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        head = (Span(f" Notes on {self.title}", "title"), Span("   Esc goes back", "dim"))
        return [head, *(line for note in self.notes for line in ((), *_wrap(note, size.width)))]


class OutputPage(Struct, frozen=True):
    """The last output of the engine, as it arrives."""

    engine: EngineProcess
    before: LoadingPage | RefusedPage | None  # shown again afterwards; None: a view

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        """Return the last lines, the newest last."""
        width = max(TEXT_LEAST_CELLS, size.width - 2)
        printed = self.engine.list_last_lines(MOST_LINES)
        wrapped = (line[i : i + width] for line in printed for i in range(0, len(line), width))
        body = [(Span(" " + part),) for part in wrapped] or [(Span(" no output yet", "dim"),)]
        return [(Span(f" Output of {self.engine.label}", "title"), Span("   Esc goes back", "dim")), *body]


def _draw_reading(progress: LoadProgress, size: DrawSize) -> list[Line]:
    names, read, total = progress.names, progress.read_bytes, progress.total_bytes or 0
    share = min(1.0, read / total) if total else 0.0
    bar = glyphs.draw_bar(share, max(4, min(40, size.width - 20)), size.ascii)
    figures = (f" {units.format_share(share)} of" if read else "") + f" {units.format_size(total)}"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    title = ", ".join(shorten_middle(name, 80) for name in names[:3]) + more
    return [
        (),
        (Span(f"  {progress.activity} "), Span(title, "title")),
        (),
        (Span("  "), Span(bar, "accent"), Span(figures)),
        (Span(f"  {progress.seconds:.0f} s", "dim"), Span("    Esc cancels", "dim")),
    ]


def _draw_waiting(progress: LoadProgress, size: DrawSize) -> list[Line]:
    return [
        (),
        (Span("  "), Span(progress.activity, "title")),
        *_wrap(progress.alarm, size.width, "warn"),
        (),
        (Span(f"  {progress.seconds:.0f} s", "dim"), Span("    q quits", "dim")),
    ]


def draw_notes(notes: Sequence[str], width: int) -> list[Line]:
    """Return the notes of an answer without a drawing, to be shown in its place."""
    return [(), *(line for note in notes for line in _wrap(note, width))]


def _wrap(text: str, width: int, style: str = "", *, break_on_hyphens: bool = True) -> list[Line]:
    """Return a text in lines for a width, indented by two cells."""
    parts = textwrap.wrap(text, max(TEXT_LEAST_CELLS, width - 4), break_on_hyphens=break_on_hyphens)
    return [(Span("  " + part, style),) for part in parts]


def draw_doubts(reasons: Sequence[str], width: int) -> list[Line]:
    """Return the reasons against a comparison, to be shown before it."""
    room = max(TEXT_LEAST_CELLS, width - 6)
    lines: list[Line] = [(), (Span("  These two runs should not be compared:", "warn"),), ()]
    for reason in reasons:
        first, *rest = textwrap.wrap(reason, room)
        lines += [(Span("  · "), Span(first)), *((Span("    " + part),) for part in rest)]
    keys = "  Enter shows the tables all the same    d another run    Tab further views"
    return [*lines, (), (Span(keys, "dim"),)]
