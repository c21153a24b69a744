"""What a summary begins and ends with: verdict, what to look at next by its key, and what cannot be told."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from tracetui.views import ink, views
from tracetui.views.ink import Line, Size

_WATCHED: Final = ("server", "latency", "windows")
_NUMBERED: Final = 9
_PALETTE: Final = "Ctrl+P"
_INDENT: Final = "  "
_NEXT: Final = "next "


def first_lines(verdicts: pl.DataFrame, looks: pl.DataFrame, size: Size) -> list[Line]:
    """Return what a run is, how good that is, and what to look at next, each in a line or more."""
    texts = dict(verdicts.select("name", "text").iter_rows())
    what = ": ".join(texts[name] for name in ("subject", "run") if name in texts)
    good = ", ".join(texts[name] for name in ("pace", "device", "bound") if name in texts)
    sentences = [s for s in (*(texts.get(name, "") for name in _WATCHED), what, good) if s]
    wide = max(size.width, len(_INDENT) + 1)
    lines = [
        ink.line((part, "bold"))
        for sentence in sentences
        for part in textwrap.wrap(sentence, wide, subsequent_indent=_INDENT)
    ]
    return [*lines, *([ink.line()] if lines and looks.height else []), *_next(looks, size)]


def _next(looks: pl.DataFrame, size: Size) -> Iterator[Line]:
    """Yield what to look at next: the key that leads there, and what is to be seen."""
    keys = [_key(name, size) for name in looks["name"]]
    wide = max(map(len, keys), default=0)
    head = _NEXT
    for key, text in zip(keys, looks["text"], strict=True):
        room = max(8, size.width - len(_NEXT) - wide - 2)
        for at, part in enumerate(textwrap.wrap(text, room)):
            yield ink.line((head, "dim"), (f"{'' if at else key:<{wide}}", "accent"), f"  {part}")
            head = " " * len(_NEXT)


def _key(name: str, size: Size) -> str:
    """Return the key that leads to a view of one run: a person's choice, its own, or its tab's number."""
    tabs = [v for v in views() if v.runs == 1]
    place = next(number for number, v in enumerate(tabs, 1) if v.name == name)
    own = dict(size.keys).get(name, tabs[place - 1].key)
    return own or (str(place) if place <= _NUMBERED else _PALETTE)


def untold(unknown: pl.DataFrame, ways: pl.DataFrame, size: Size) -> list[Line]:
    """Return which views lack what, a line for all that lack the same, then how to record what is lacking."""
    lacks: dict[str, list[str]] = {}
    for name, needs in unknown.select("name", "text").iter_rows():
        lacks.setdefault(needs, []).append(name)
    lines = _two_columns([(", ".join(names), needs) for needs, names in lacks.items()], size)
    if ways.height:
        lines += [ink.line(("record it next time with", "title"))]
        lines += _two_columns(list(ways.select("name", "text").iter_rows()), size)
    return lines


def untold_in_short(unknown: pl.DataFrame, size: Size) -> list[Line]:
    """Return the same in one line, as much of it as fits."""
    names = ", ".join(unknown["name"])
    text, behind = f"cannot tell: {names}", "; tracetui doctor FILE says what to record"
    room = size.width - len(behind)
    return [ink.line((ink.fit(text, min(room, ink.wide(text)), ascii=size.ascii) + behind, "dim"))]


def _two_columns(rows: Sequence[tuple[str, str]], size: Size) -> list[Line]:
    """Return rows of a name and a text, which is wrapped beside it."""
    wide = min(max((ink.wide(name) for name, _ in rows), default=0), size.width // 2)
    room = max(8, size.width - wide - 2)
    lines = []
    for name, text in rows:
        parts = textwrap.wrap(text, room) or [""]
        names = [ink.fit(name, wide, ascii=size.ascii), *[" " * wide] * (len(parts) - 1)]
        lines += [ink.line((n, "dim"), f"  {part}") for n, part in zip(names, parts, strict=True)]
    return lines
