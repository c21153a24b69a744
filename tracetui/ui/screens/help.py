"""The help: the key table and the views, as lines."""

from collections.abc import Sequence

from tracetui.ui.keys import DIGITS, KEYS, written
from tracetui.ui.paint import fit, width_of
from tracetui.views import View
from tracetui.views.ink import Line, Span

COLUMN = 14
BADGES = (
    "In the head, dropped and cut short tell of losses, profiled of numbers taken",
    "with profiling on, guess of what the import view explains.",
)


def lines(views: Sequence[View], width: int) -> list[Line]:
    """Every key with what it does, then every view with its key."""
    wide = max(4, min(COLUMN, width // 3))
    out: list[Line] = [_title("Keys"), *(_row(written(k), k.text, wide) for k in KEYS), (), _title("Views")]
    for number, view in enumerate(views, 1):
        out.append(_row(str(number) if number <= DIGITS else view.key or "Tab", view.title, wide))
    return [*out, (), *(_row("", text, wide) for text in BADGES)]


def _title(text: str) -> Line:
    return (Span(f" {text}", "title"),)


def _row(keys: str, text: str, wide: int) -> Line:
    return (Span(" "), Span(fit(keys, max(wide, width_of(keys))), "accent"), Span(" " + text))
