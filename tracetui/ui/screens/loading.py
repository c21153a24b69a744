"""What is seen while files are read, and when one cannot be."""

import textwrap
from collections.abc import Sequence

from capture.text import middle
from tracetui import units
from tracetui.ui.following import Following
from tracetui.ui.reading import Reading
from tracetui.views import ink
from tracetui.views.ink import Line, Span


def lines(reading: Reading | Following, width: int, ascii: bool) -> list[Line]:
    """A bar for the bytes that were read, or what an engine is doing before its first step."""
    if isinstance(reading, Following):
        return _waiting(reading)
    paths, read, size = reading.paths, reading.read(), reading.size
    share = min(1.0, read / size) if size else 0.0
    bar = ink.bar(share, max(4, min(40, width - 20)), ascii)
    told = f" {units.share(share)} of {units.size(size)}" if read else f" {units.size(size)}"
    names = ", ".join(middle(p, 80) for p in paths[:3]) + (
        f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    )
    return [
        (),
        (Span("  reading "), Span(names, "title")),
        (),
        (Span("  "), Span(bar, "accent"), Span(told)),
        (Span(f"  {reading.seconds:.0f} s", "dim"), Span("    Esc cancels", "dim")),
    ]


def _waiting(following: Following) -> list[Line]:
    return [
        (),
        (Span("  "), Span(following.words, "title")),
        (),
        (Span(f"  {following.seconds:.0f} s", "dim"), Span("    q leaves", "dim")),
    ]


def told(notes: Sequence[str], width: int) -> list[Line]:
    """In place of a drawing that has nothing to draw: why."""
    room = max(10, width - 4)
    return [(), *((Span("  " + part),) for note in notes for part in textwrap.wrap(note, room))]


def doubted(reasons: Sequence[str], width: int) -> list[Line]:
    """Why two runs should not be compared, before what comes of comparing them."""
    room = max(10, width - 6)
    lines: list[Line] = [(), (Span("  These two runs should not be compared:", "warn"),), ()]
    for reason in reasons:
        first, *rest = textwrap.wrap(reason, room)
        lines += [(Span("  · "), Span(first)), *((Span("    " + part),) for part in rest)]
    keys = "  Enter shows the tables all the same, d chooses another run, Tab leads to the findings"
    return [*lines, (), (Span(keys, "dim"),)]


def refused(sentence: str, width: int) -> list[Line]:
    """Why nothing is shown."""
    wrapped = textwrap.wrap(sentence, max(10, width - 4), break_on_hyphens=False)
    return [(), *((Span("  " + line, "warn"),) for line in wrapped), (), (Span("  q leaves", "dim"),)]
