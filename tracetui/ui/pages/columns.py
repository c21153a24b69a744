"""The columns of a table, as a table to choose from."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from tracetui import units
from tracetui.ui.sheet import Column, Sheet
from tracetui.views import Answer

COLUMNS: Final = ("column", "shown")
BEST: Final = "what fits, the most important first"


def answer(sheet: Sheet, chosen: Sequence[str]) -> Answer:
    """One row a column; the first row takes every choice back."""
    rows = [(BEST, "" if chosen else "yes")]
    rows += [(units.heading(c.name), "yes" if c.name in chosen else "") for c in _others(sheet)]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")
    return Answer(frame, ("Enter shows a column or hides it, Esc goes back to the table",))


def toggled(sheet: Sheet, chosen: Sequence[str], row: int) -> tuple[str, ...]:
    """The choice after Enter on a row."""
    if row == 0:
        return ()
    name = _others(sheet)[row - 1].name
    return tuple(c for c in chosen if c != name) if name in chosen else (*chosen, name)


def _others(sheet: Sheet) -> list[Column]:
    """All but the name, which always stands first; the most important at the top."""
    return sorted(sheet.columns[1:], key=lambda c: sheet.rank.index(c.name))
