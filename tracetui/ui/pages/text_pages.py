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
        return (
            _draw_waiting(progress, size) if progress.total_bytes is None else _draw_reading(progress, size)
        )


class RefusedPage(Struct, frozen=True):
    """Nothing could be read, or the engine failed."""

    why: str
    keys: str  # what the user can do

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        wrapped = textwrap.wrap(self.why, max(TEXT_LEAST_CELLS, size.width - 4), break_on_hyphens=False)
        return [(), *((Span("  " + line, "warn"),) for line in wrapped), (), (Span(f"  {self.keys}", "dim"),)]


class OptionsPage(Struct, frozen=True):
    """The options of the engine, while its arguments are edited."""

    options: tuple[str, ...]
    refused: str = ""  # why the last arguments were refused

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        text = "   ".join(o.replace(" ", "\N{NO-BREAK SPACE}") for o in self.options)
        width = max(TEXT_LEAST_CELLS, size.width - 4)
        wrapped = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
        why = textwrap.wrap(self.refused, width, break_on_hyphens=False)
        return [
            *((Span("  " + line, "warn"),) for line in why),
            (),
            (Span("  The engine restarts with these options; the old run stays open.", "title"),),
            (),
            *((Span("  " + line.replace("\N{NO-BREAK SPACE}", " ")),) for line in wrapped),
            (),
            (Span("  Enter restarts it    Esc cancels", "dim"),),
        ]


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
    figures = (
        f" {units.format_share(share)} of {units.format_size(total)}"
        if read
        else f" {units.format_size(total)}"
    )
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [
        (),
        (
            Span(f"  {progress.activity} "),
            Span(", ".join(shorten_middle(name, 80) for name in names[:3]) + more, "title"),
        ),
        (),
        (Span("  "), Span(bar, "accent"), Span(figures)),
        (Span(f"  {progress.seconds:.0f} s", "dim"), Span("    Esc cancels", "dim")),
    ]


def _draw_waiting(progress: LoadProgress, size: DrawSize) -> list[Line]:
    alarm = textwrap.wrap(progress.alarm, max(TEXT_LEAST_CELLS, size.width - 4))
    return [
        (),
        (Span("  "), Span(progress.activity, "title")),
        *((Span("  " + line, "warn"),) for line in alarm),
        (),
        (Span(f"  {progress.seconds:.0f} s", "dim"), Span("    q quits", "dim")),
    ]


def draw_notes(notes: Sequence[str], width: int) -> list[Line]:
    """Return the notes of an answer without a drawing, to be shown in its place."""
    room = max(TEXT_LEAST_CELLS, width - 4)
    return [(), *((Span("  " + part),) for note in notes for part in textwrap.wrap(note, room))]


def draw_doubts(reasons: Sequence[str], width: int) -> list[Line]:
    """Return the reasons against a comparison, to be shown before it."""
    room = max(TEXT_LEAST_CELLS, width - 6)
    lines: list[Line] = [(), (Span("  These two runs should not be compared:", "warn"),), ()]
    for reason in reasons:
        first, *rest = textwrap.wrap(reason, room)
        lines += [(Span("  · "), Span(first)), *((Span("    " + part),) for part in rest)]
    keys = "  Enter shows the tables all the same    d another run    Tab further views"
    return [*lines, (), (Span(keys, "dim"),)]
