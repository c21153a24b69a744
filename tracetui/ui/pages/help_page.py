"""The help (keys, views, guides, glossary), the list of guides, and one guide."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar, Final

import polars as pl
from msgspec import Struct

from tracetui.glyphs import count_cells, fit_cells
from tracetui.ui.key_table import DIGITS, KEYS, KeyBinding, format_keys
from tracetui.ui.session import Session
from tracetui.views import VIEWS, Answer, View
from tracetui.views.ink import DrawSize, Line, Span

TEXT_LEAST_CELLS: Final = 10
TERM_CELLS: Final = 14
BADGES: Final = (
    "Badges in the header: dropped and cut short are losses, profiled numbers include",
    "the cost of a profiler, guess is explained in the import view.",
)


class HelpPage(Struct, frozen=True):
    """All keys, all views, the guides and the glossary.

    Textual's `HelpPanel` lists keys only, beside a narrower screen, which is drawn again for it.
    """

    views: tuple[View, ...]
    keys: tuple[KeyBinding, ...] = KEYS

    footer: ClassVar = "help"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        """Return all keys at a glance, then each with its sentence, views, badges, guides and glossary."""
        wide = max(4, min(TERM_CELLS, size.width // 3))
        tabs = {view.name: str(number) for number, view in enumerate(self.views[:DIGITS], 1)}
        tabs |= dict(list_view_keys(self.keys))
        return [
            *_draw_key_columns(self.keys, size.width),
            (),
            _draw_title("Keys in words"),
            *(_draw_row(format_keys(k), k.help, wide) for k in self.keys),
            (),
            _draw_title("Views"),
            *(_draw_row(tabs.get(v.name, "Tab"), v.title, wide) for v in self.views),
            (),
            *(_draw_row("", text, wide) for text in BADGES),
            (),
            *_draw_guides(),
            (),
            *_draw_glossary(size.width, wide),
        ]


def list_view_keys(table: Sequence[KeyBinding]) -> tuple[tuple[str, str], ...]:
    """Return the views that have a key of their own, with that key."""
    return tuple((key.command, format_keys(key).split(" ")[0]) for key in table if key.command in VIEWS)


def _draw_key_columns(keys: Sequence[KeyBinding], width: int) -> list[Line]:
    """Return the keys in as many columns as fit, to be read downwards."""
    for height in range(1, len(keys) + 1):
        columns = [_draw_key_column(keys[i : i + height]) for i in range(0, len(keys), height)]
        if sum(count_cells("".join(span.text for span in column[0])) for column in columns) <= width:
            break
    return [tuple(span for column in columns if i < len(column) for span in column[i]) for i in range(height)]


def _draw_key_column(keys: Sequence[KeyBinding]) -> list[Line]:
    """Return a line per key, all of the width of the widest."""
    names, words = [format_keys(key) for key in keys], [key.short for key in keys]
    name_cells, word_cells = max(map(count_cells, names)), max(map(count_cells, words))
    return [
        (Span(" "), Span(fit_cells(name, name_cells), "accent"), Span(f" {fit_cells(word, word_cells)}"))
        for name, word in zip(names, words, strict=True)
    ]


def _draw_title(text: str) -> Line:
    return (Span(f" {text}", "title"),)


def _draw_row(keys: str, text: str, wide: int) -> Line:
    return (Span(" "), Span(fit_cells(keys, max(wide, count_cells(keys))), "accent"), Span(" " + text))


def _draw_guides() -> list[Line]:
    """Return the guides, a line each."""
    from tracetui.guides import TOPICS, read_title  # read only when somebody asks for help

    wide = max(map(len, TOPICS)) + 1
    heading = (*_draw_title("Guides"), Span("   Enter chooses one", "dim"))
    return [heading, *(_draw_row(fit_cells(topic, wide), read_title(topic), wide) for topic in TOPICS)]


def _draw_glossary(width: int, wide: int) -> list[Line]:
    """Return every word that the screen uses, with its meaning in lines of the width."""
    from tracetui.guides import read_glossary

    lines: list[Line] = [_draw_title("Words")]
    for term, meaning in read_glossary():
        room = max(TEXT_LEAST_CELLS, width - max(wide, count_cells(term)) - 3)
        first, *rest = textwrap.wrap(meaning, room) or [""]
        lines.append(_draw_row(term, first, wide))
        lines += [_draw_row("", part, max(wide, count_cells(term))) for part in rest]
    return lines


class GuideList(Struct, frozen=True):
    """The list of guides to choose from."""

    footer: ClassVar = "guides"
    columns: ClassVar = ("guide",)

    def answer(self, session: Session) -> Answer:
        """Return a row for each guide: its topic and its title."""
        from tracetui.guides import TOPICS, read_title  # loaded with the first help only

        wide = max(map(len, TOPICS)) + 2
        rows = [f"{topic:{wide}}{read_title(topic)}" for topic in TOPICS]
        return Answer(pl.DataFrame({"guide": rows}), ("Enter opens a guide, Esc goes back to the help",))

    def find_topic(self, row: int) -> str:
        from tracetui.guides import TOPICS

        return TOPICS[row]


class GuidePage(Struct, frozen=True):
    """One guide."""

    topic: str

    footer: ClassVar = "page"

    def draw_lines(self, size: DrawSize) -> list[Line]:
        """Return the Markdown of the guide, wrapped to the width."""
        from tracetui.guides import read_guide

        room = max(TEXT_LEAST_CELLS, size.width - 2)
        out: list[Line] = []
        for line in read_guide(self.topic).splitlines():
            style = "title" if line.startswith("#") else ""
            indent = " " * (len(line) - len(line.lstrip()))
            parts = textwrap.wrap(line, room, subsequent_indent=indent, break_on_hyphens=False) or [""]
            out += [(Span(f" {part}", style),) for part in parts]
        return out
