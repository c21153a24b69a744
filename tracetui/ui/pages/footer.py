"""The foot of the screen as lines of ink: how it is looked at, what was told, the keys of the moment."""

from collections.abc import Sequence
from typing import Final

from capture.text import middle
from tracetui.look import Look
from tracetui.ui.keys import KEYS, Key, Moment
from tracetui.ui.keys import footer as keys_of_the_moment
from tracetui.ui.terminal.paint import width_of
from tracetui.views.ink import Line, Span

FOCUS_WIDEST: Final = 48


def status(look: Look, row: str, message: str, notes: Sequence[str], width: int) -> Line:
    """Return the status line: the cursor, what is in force, then what was told last or the first note."""
    state = [p for p in (row, *_in_force(look)) if p]
    spans = [Span(" " + " · ".join(state))]
    gap = "   " if state else ""
    rest = message or _first(notes, width - width_of(spans[0].text) - len(gap))
    if rest:
        spans.append(Span(gap + rest, "bar_warn" if message else "dim"))
    return tuple(spans)


def _first(notes: Sequence[str], room: int) -> str:
    """Return the first note, as far as there is room beside the number of the others."""
    if not notes:
        return ""
    more = f" (+{len(notes) - 1})" if len(notes) > 1 else ""
    kept = room - width_of(more)
    return (notes[0] if width_of(notes[0]) <= kept else f"{notes[0][: max(0, kept - 1)]}…") + more


def _in_force(look: Look) -> list[str]:
    """Return every choice that changes what the numbers mean, in words."""
    window = look.window
    span = (
        ""
        if window is None
        else f"step {window[0]}"
        if window[0] == window[1]
        else "steps {}–{}".format(*window)
    )
    return [
        *(middle(words, FOCUS_WIDEST) for words in look.focus_words),
        f"/{look.filter}/" if look.filter else "",
        f"by {look.group}" if look.group and look.group != "name" else "",
        f"{look.phase} only" if look.phase else "",
        "changed only" if look.terms.changed_only else "",
        f"per {look.per}" if look.per != "total" else "",
        span,
        "steady steps" if look.steady else "",
    ]


def footer(width: int, now: Moment, keys: Sequence[Key] = KEYS) -> Line:
    """Return the line of keys, as many as fit."""
    spans: list[Span] = [Span(" ")]
    room = width - 1
    for key, text in keys_of_the_moment(now, keys):
        need = width_of(key) + width_of(text) + 3
        if need > room:
            break
        room -= need
        spans += [Span(key, "title"), Span(f" {text}  ")]
    return tuple(spans)
