"""The help: every key at a glance, what each does, the views, the guides and the words of the screen."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from tracetui.ui.keys import DIGITS, KEYS, Key, written
from tracetui.ui.terminal.paint import fit, width_of
from tracetui.views import VIEWS, View
from tracetui.views.ink import Line, Size, Span

NARROWEST: Final = 10
COLUMN: Final = 14
CELL: Final = 26  # of a key and the word for it
WRITTEN: Final = 10  # of these for the key
BADGES: Final = (
    "In the head, dropped and cut short tell of losses, profiled of numbers taken",
    "with profiling on, guess of what the import view explains.",
)


class HelpPage(Struct, frozen=True):
    """All keys, all views, the guides and the glossary."""

    views: tuple[View, ...]
    keys: tuple[Key, ...] = KEYS

    footer: ClassVar = "help"

    def lines(self, size: Size) -> list[Line]:
        """Return all keys on one screen, then each with what it does; then views, guides and words."""
        wide = max(4, min(COLUMN, size.width // 3))
        out: list[Line] = [
            (*_title("Keys"), Span("   in words below: ↓", "dim")),
            *_glance(self.keys, size.width),
            (),
        ]
        out += [_title("In words"), *(_row(written(k), k.text, wide) for k in self.keys), (), _title("Views")]
        own = dict(keys_of_views(self.keys))
        for number, view in enumerate(self.views, 1):
            tab = str(number) if number <= DIGITS else "Tab"
            out.append(_row(own.get(view.name) or tab, view.title, wide))
        out += [(), *(_row("", text, wide) for text in BADGES), ()]
        return [*out, *_guides(), (), *_glossary(size.width, wide)]


def keys_of_views(table: Sequence[Key]) -> tuple[tuple[str, str], ...]:
    """Return the views that a command is named after, and the first key of each."""
    return tuple((key.do, written(key).split(" ")[0]) for key in table if key.do in VIEWS)


def _glance(keys: Sequence[Key], width: int) -> list[Line]:
    """Return the keys in columns, to be read downwards."""
    count = max(1, (width - 1) // CELL)
    height = -(-len(keys) // count)
    columns = [keys[i : i + height] for i in range(0, len(keys), height)]
    return [tuple(span for column in columns if i < len(column) for span in _cell(column[i]))
            for i in range(height)]  # fmt: skip


def _cell(key: Key) -> Line:
    word = fit(f" {key.short}", CELL - WRITTEN - 1)
    return Span(" "), Span(fit(written(key), WRITTEN), "accent"), Span(word)


def _title(text: str) -> Line:
    return (Span(f" {text}", "title"),)


def _row(keys: str, text: str, wide: int) -> Line:
    return (Span(" "), Span(fit(keys, max(wide, width_of(keys))), "accent"), Span(" " + text))


def _guides() -> list[Line]:
    """Return the guides, a line each."""
    from tracetui.guides import TOPICS, title  # read only when somebody asks for help

    wide = max(map(len, TOPICS)) + 1
    heading = (*_title("Guides"), Span("   Enter chooses one", "dim"))
    return [heading, *(_row(fit(topic, wide), title(topic), wide) for topic in TOPICS)]


def _glossary(width: int, wide: int) -> list[Line]:
    """Return every word that the screen uses, with its meaning in lines of the width."""
    from tracetui.guides import glossary

    lines: list[Line] = [_title("Words")]
    for term, meaning in glossary():
        room = max(NARROWEST, width - max(wide, width_of(term)) - 3)
        first, *rest = textwrap.wrap(meaning, room) or [""]
        lines += [_row(term, first, wide), *(_row("", part, max(wide, width_of(term))) for part in rest)]
    return lines
