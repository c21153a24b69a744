"""JSON objects that are printed as the first one to the last blank: a table whose separator is the quote.

Without a backslash in a text, every second piece between its quotes is a key or a value in quotes. What
stands outside is the same in each line, but for numbers. One line that is printed otherwise, and all of them
are left to `flat_objects`.
"""

import re
from typing import Final, NamedTuple

import polars as pl

from capture.loaders._separated import LINE, begin_of, pieces
from capture.loaders.plain.flat_objects import DIGITS, number_pattern
from capture.loaders.plain.layout import Layout

_LEAST: Final = 1 << 20  # bytes, from which it is worth the while
_BEGIN: Final = re.compile(r"[ \t]*\{ *")
_COLON: Final = re.compile(r" *: *")
_BEHIND: Final = re.compile(r"(?P<front> *: *)[-0-9.nul]+(?P<back> *, *| *\}[ \t]*)")
_COMMA: Final = re.compile(r" *, *| *\}[ \t]*")


class _Number(NamedTuple):
    """A piece that holds a number, between what is the same in each line."""

    piece: int
    heading: int
    front: str
    back: str


class _Form(NamedTuple):
    """How a line is printed: pieces that are always the same, texts by their headings, and numbers."""

    fixed: dict[int, str]
    texts: dict[int, int]  # heading → piece
    numbers: list[_Number]


def cut(text: bytes, layout: Layout) -> pl.DataFrame | None:
    """Return all lines as cells, by the places of their keys; None where one is not printed as the first."""
    if len(text) < _LEAST or b"\\" in text or not _is_printed(text):
        return None
    text = text.rstrip(b"\n") if text.endswith(b"\n\n") else text
    begin = begin_of(text, layout.header)
    first = text[begin : begin_of(text, layout.header + 1)].rstrip(b"\n").decode().split('"')
    form = _form(first, layout)
    if form is None:
        return None
    table = pieces(text, '"', len(first), layout.header)
    return None if table is None or not _fits(table, form, layout) else _cells(table, form, layout)


def _cells(table: pl.DataFrame, form: _Form, layout: Layout) -> pl.DataFrame:
    texts = {str(at): pl.col(str(piece)) for at, piece in form.texts.items()}
    cells = texts | {str(number.heading): _value(table, number) for number in form.numbers}
    places = [str(found.at) for found in layout.columns.values()]
    return table.select(**{place: cells[place] for place in places}).with_row_index(LINE)


def _is_printed(text: bytes) -> bool:
    """Return whether a text holds no control character but ends of lines."""
    import numpy as np

    letters = np.frombuffer(text, np.uint8)
    step = _LEAST >> 2
    parts = (letters[at : at + step] for at in range(0, len(text), step))
    return all(np.count_nonzero(part < ord(" ")) == np.count_nonzero(part == ord("\n")) for part in parts)


def _form(first: list[str], layout: Layout) -> _Form | None:
    """Return how the pieces of the first line are printed; None where they are out of the ordinary."""
    form = _Form({0: first[0]}, {}, [])
    at = 1
    for heading, key in enumerate(layout.headings):
        if first[at : at + 1] != [key]:
            return None
        form.fixed[at] = key
        taken = _take_value(form, first, at + 1, heading)
        if not taken:
            return None
        at += 1 + taken
    return form if at == len(first) and _BEGIN.fullmatch(first[0]) and _ends_once(first) else None


def _take_value(form: _Form, first: list[str], at: int, heading: int) -> int:
    """Note how a value is printed whose colon stands in a piece; return how many pieces it takes, or 0."""
    colon, behind = (first[piece] if piece < len(first) else "" for piece in (at, at + 2))
    if _COLON.fullmatch(colon) and _COMMA.fullmatch(behind):
        form.texts[heading] = at + 1
        form.fixed.update({at: colon, at + 2: behind})
        return 3
    found = _BEHIND.fullmatch(colon)
    if found is None:
        return 0
    form.numbers.append(_Number(at, heading, found["front"], found["back"]))
    return 1


def _ends_once(first: list[str]) -> bool:
    """Return whether the object ends with the line, and nowhere before."""
    return "}" in first[-1] and not any("}" in piece for piece in first[:-1:2])


def _fits(table: pl.DataFrame, form: _Form, layout: Layout) -> bool:
    """Return whether all lines are printed in this form, and a float holds each of their numbers."""
    fixed = [(pl.col(str(at)) == piece).all() for at, piece in form.fixed.items()]
    if not table.select(pl.all_horizontal(fixed)).item():
        return False
    printed = [pl.col(str(n.piece)).str.contains(_printed(n, layout)).all() for n in form.numbers]
    alike = all(table.select(printed).row(0))
    return alike and all(_is_held(table[str(number.piece)], number) for number in form.numbers)


def _printed(number: _Number, layout: Layout) -> str:
    front, back = (part.replace("}", r"\}") for part in (number.front, number.back))
    return f"^{front}(?:{number_pattern(layout, number.heading)}|null){back}$"


def _is_held(cells: pl.Series, number: _Number) -> bool:
    too_long = cells.str.len_bytes() > DIGITS + 1 + len(number.front) + len(number.back)
    return not (too_long.any() and cells.filter(too_long).str.contains(".", literal=True).any())


def _value(table: pl.DataFrame, number: _Number) -> pl.Expr:
    """Return what a number says, as text: null for null."""
    cell, around = pl.col(str(number.piece)), len(number.front) + len(number.back)
    text = cell.str.slice(len(number.front), cell.str.len_bytes() - around)
    nulls = (table[str(number.piece)] == f"{number.front}null{number.back}").any()
    return pl.when(text != "null").then(text) if nulls else text
