"""What is seen while files are read, and when one cannot be."""

import textwrap
from collections.abc import Sequence

from capture.text import middle
from tracetui import glyphs, units
from tracetui.ui.workers.follow import Following
from tracetui.ui.workers.read import Reading
from tracetui.views.ink import Line, Span


def lines(reading: Reading | Following, width: int, ascii: bool) -> list[Line]:
    """A bar for the bytes that were read, or what an engine is doing before its first step."""
    if isinstance(reading, Following):
        return _waiting(reading, width)
    paths, read, size = reading.paths, reading.read(), reading.size
    share = min(1.0, read / size) if size else 0.0
    bar = glyphs.bar(share, max(4, min(40, width - 20)), ascii)
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


def _waiting(following: Following, width: int) -> list[Line]:
    alarm = textwrap.wrap(following.alarm, max(10, width - 4))
    return [
        (),
        (Span("  "), Span(following.words, "title")),
        *((Span("  " + line, "warn"),) for line in alarm),
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
    keys = "  Enter shows the tables all the same    d another run    Tab further views"
    return [*lines, (), (Span(keys, "dim"),)]


def refused(sentence: str, width: int, ways_out: str = "q leaves") -> list[Line]:
    """Why nothing is shown."""
    wrapped = textwrap.wrap(sentence, max(10, width - 4), break_on_hyphens=False)
    return [(), *((Span("  " + line, "warn"),) for line in wrapped), (), (Span(f"  {ways_out}", "dim"),)]


def options(offered: Sequence[str], width: int) -> list[Line]:
    """What an engine may be asked, while its arguments are edited."""
    lines = textwrap.wrap("   ".join(o.replace(" ", "\N{NO-BREAK SPACE}") for o in offered),
                          max(10, width - 4), break_on_hyphens=False, break_long_words=False)  # fmt: skip
    told = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    return [
        (),
        (Span("  The engine is started anew with these options; the old run stays beside it.", "title"),),
        (),
        *((Span("  " + line),) for line in told),
        (),
        (Span("  Enter starts it    Esc leaves it as it is", "dim"),),
    ]
