"""The columns of a table, as a table to choose from."""

from collections.abc import Sequence
from typing import ClassVar, Final

import polars as pl
from msgspec import Struct

from tracetui import units
from tracetui.ui.session import Session
from tracetui.ui.sheet import Sheet
from tracetui.views import Answer

COLUMNS: Final = ("column", "place")
BEST: Final = "what fits, the most important first"


class ColumnList(Struct, frozen=True):
    """The page on which the columns of a sheet are chosen, and put in order."""

    sheet: Sheet
    in_sight: tuple[str, ...] = ()  # those of the table beside the name, as the page came

    footer: ClassVar = "columns"
    columns: ClassVar = COLUMNS

    def answer(self, session: Session) -> Answer:
        """Return a row for each column; the first row takes every choice back."""
        chosen = self.sheet.meant(session.look.columns)
        places = {name: f"{place}" for place, name in enumerate(chosen, 1)}
        rows = [(BEST, "" if chosen else "yes")]
        rows += [(units.heading(name), places.get(name, "")) for name in self._others(chosen)]
        frame = pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")
        note = "Enter shows a column or hides it, ← and → move it; Esc goes back to the table"
        return Answer(frame, (note,))

    def toggled(self, words: Sequence[str], row: int) -> tuple[str, ...]:
        """Return the chosen columns after Enter on a row."""
        if row == 0:
            return ()
        chosen = self.sheet.meant(words)
        name = self._others(chosen)[row - 1]
        return tuple(c for c in chosen if c != name) if name in chosen else (*chosen, name)

    def moved(self, words: Sequence[str], row: int, by: int) -> tuple[str, ...]:
        """Return the chosen columns, else those that were in sight, with that of a row moved to the right or
        left.
        """
        name = self.name(words, row)
        chosen = list(self.sheet.meant(words) or self.sheet.meant(self.in_sight))
        if name not in chosen:
            return tuple(words)
        place = chosen.index(name)
        chosen.insert(max(0, place + by), chosen.pop(place))
        return tuple(chosen)

    def name(self, words: Sequence[str], row: int) -> str:
        """Return the column of a row; empty for the first row, which is none."""
        return self._others(self.sheet.meant(words))[row - 1] if row else ""

    def row(self, words: Sequence[str], name: str) -> int:
        """Return the row of a column, once these are chosen."""
        others = self._others(self.sheet.meant(words))
        return others.index(name) + 1 if name in others else 0

    def _others(self, chosen: Sequence[str]) -> list[str]:
        """Return all columns but the name, which always comes first: those chosen, then by importance."""
        names = {c.name for c in self.sheet.columns[1:]}
        return [*chosen, *(n for n in self.sheet.rank if n in names and n not in chosen)]
