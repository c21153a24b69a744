"""The help: every key at a glance, what each does, and the views, as lines."""

from dataclasses import dataclass
from typing import ClassVar

from tracetui.ui.keys import DIGITS, KEYS, Key, written
from tracetui.ui.terminal.paint import fit, width_of
from tracetui.views import View
from tracetui.views.ink import Line, Size, Span

COLUMN = 14
CELL = 26  # of a key and the word for it
WRITTEN = 10  # of these for the key
BADGES = (
    "In the head, dropped and cut short tell of losses, profiled of numbers taken",
    "with profiling on, guess of what the import view explains.",
)


@dataclass(frozen=True)
class HelpPage:
    """All keys and all views."""

    views: tuple[View, ...]

    footer: ClassVar = "page"

    def lines(self, size: Size) -> list[Line]:
        """Return all keys on one screen, then each with what it does, then every view with its key."""
        wide = max(4, min(COLUMN, size.width // 3))
        out: list[Line] = [(*_title("Keys"), Span("   in words below: ↓", "dim")), *_glance(size.width), ()]
        out += [_title("In words"), *(_row(written(k), k.text, wide) for k in KEYS), (), _title("Views")]
        for number, view in enumerate(self.views, 1):
            out.append(_row(str(number) if number <= DIGITS else view.key or "Tab", view.title, wide))
        return [*out, (), *(_row("", text, wide) for text in BADGES)]


def _glance(width: int) -> list[Line]:
    """Return the keys in columns, to be read downwards."""
    count = max(1, (width - 1) // CELL)
    height = -(-len(KEYS) // count)
    columns = [KEYS[i : i + height] for i in range(0, len(KEYS), height)]
    return [tuple(span for column in columns if i < len(column) for span in _cell(column[i]))
            for i in range(height)]  # fmt: skip


def _cell(key: Key) -> Line:
    word = fit(f" {key.short}", CELL - WRITTEN - 1)
    return Span(" "), Span(fit(written(key), WRITTEN), "accent"), Span(word)


def _title(text: str) -> Line:
    return (Span(f" {text}", "title"),)


def _row(keys: str, text: str, wide: int) -> Line:
    return (Span(" "), Span(fit(keys, max(wide, width_of(keys))), "accent"), Span(" " + text))
