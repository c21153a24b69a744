"""The columns of a table, as a table to choose from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import polars as pl

from tracetui import units
from tracetui.ui.session import Session
from tracetui.ui.sheet import Column, Sheet
from tracetui.views import Answer

COLUMNS: Final = ("column", "shown")
BEST: Final = "what fits, the most important first"


@dataclass(frozen=True)
class ColumnList:
    """The page on which the columns of a sheet are chosen."""

    sheet: Sheet

    footer: ClassVar = "columns"
    columns: ClassVar = COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each column; the first row takes every choice back."""
        chosen = session.look.columns
        rows = [(BEST, "" if chosen else "yes")]
        rows += [(units.heading(c.name), "yes" if c.name in chosen else "") for c in self._others()]
        frame = pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")
        return Answer(frame, ("Enter shows a column or hides it, Esc goes back to the table",))

    def toggle(self, chosen: Sequence[str], row: int) -> tuple[str, ...]:
        """Return the chosen columns after Enter on a row."""
        if row == 0:
            return ()
        name = self._others()[row - 1].name
        return tuple(c for c in chosen if c != name) if name in chosen else (*chosen, name)

    def _others(self) -> list[Column]:
        """Return all columns but the name, which always is the first; the most important at the top."""
        return sorted(self.sheet.columns[1:], key=lambda c: self.sheet.rank.index(c.name))
