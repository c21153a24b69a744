"""How a plain table is written: its separator, its headings, and what they were understood as."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from capture.loaders.plain import rows
from capture.loaders.plain.columns import Found, understood

_FOREIGN: Final = frozenset({"kind", "ph", "cat", "event"})  # keys of other formats of JSON lines
_LONGEST_HEADER: Final = 100_000
FIRST: Final = 50  # the headings stand on one of these lines


class Layout(Struct, frozen=True):
    """How a table is written and what its columns are."""

    separator: str | None  # none: JSON lines
    header: int  # the line on which the headings stand
    headings: tuple[str, ...]
    columns: dict[str, Found]

    @property
    def comma(self) -> bool:
        """Whether a single comma in a number may be its decimal point."""
        return self.separator not in (",", None)


def layout_of(lines: Sequence[str]) -> Layout | None:
    """Return the layout that the first lines show; None where no name and duration stand in a heading."""
    first = next((i for i, ln in enumerate(lines[:FIRST]) if ln.strip() and not ln.startswith("#")), None)
    if first is None or len(lines[first]) > _LONGEST_HEADER:
        return None
    if lines[first].lstrip().startswith("{"):
        return _of_objects(lines[first], first)
    for separator in rows.SEPARATORS:
        headings = tuple(rows.cells(lines[first], separator))
        if len(headings) > 1 and (columns := understood(headings)) is not None:
            return Layout(separator, first, headings, columns)
    return None


def _of_objects(line: str, first: int) -> Layout | None:
    record = rows.object_in(line)
    if record is None or _FOREIGN & record.keys():
        return None
    columns = understood(tuple(record))
    return Layout(None, first, tuple(record), columns) if columns else None
