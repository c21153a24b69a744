"""What a person remarks of rows: which are marked, and what is noted about each. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from capture.run import Run

Row = tuple[Any, ...]  # the values of its key


class Where(NamedTuple):
    """A view of a run, as remarks know it in every session."""

    source: str  # the file
    run: str  # of the runs in it
    view: str


@dataclass(frozen=True)
class Remarks:
    """Marked rows in the order in which they were marked, and notes by row."""

    marks: Mapping[Where, tuple[Row, ...]] = field(default_factory=dict)
    notes: Mapping[Where, Mapping[Row, str]] = field(default_factory=dict)

    def marked(self, where: Where, rows: tuple[Row, ...]) -> "Remarks":
        """Return the remarks with these rows marked and no others of the view."""
        return replace(self, marks={**self.marks, where: rows})

    def noted(self, where: Where, row: Row, text: str) -> "Remarks":
        """Return the remarks with a note about a row; an empty one takes it away."""
        notes = {k: v for k, v in self.notes.get(where, {}).items() if k != row}
        return replace(self, notes={**self.notes, where: notes | ({row: text} if text else {})})

    def joined(self, other: "Remarks") -> "Remarks":
        """Return both; what is known of a view goes before what the other knows of it."""
        return Remarks({**other.marks, **self.marks}, {**other.notes, **self.notes})


def known_as(run: Run, view: str) -> Where:
    """Return what a view of a run is known by."""
    return Where(run.log.source, run.name, view)
