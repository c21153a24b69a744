"""Rows that the user linked as the same work, and the links that apply to two runs."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui.compare.pairing.sample_selection import read_file_name
from tracetui.look import RowLink

BY_HAND: Final = "linked by you"


def resolve_links(links: Iterable[RowLink], a: Run, b: Run) -> dict[str, str]:
    """Map rows of a to rows of b by the links whose file patterns match both runs, in either order."""
    file_a, file_b = read_file_name(a), read_file_name(b)
    rows: dict[str, str] = {}
    for link in links:
        if fnmatchcase(file_a, link.file_a) and fnmatchcase(file_b, link.file_b):
            rows[link.a] = link.b
        elif fnmatchcase(file_a, link.file_b) and fnmatchcase(file_b, link.file_a):
            rows[link.b] = link.a
    return rows


def make_link(a: Run, b: Run, name_a: str, name_b: str) -> RowLink:
    """Make a link between two rows that applies to the files of these two runs only."""
    return RowLink(name_a, name_b, escape(read_file_name(a)), escape(read_file_name(b)))


def remove_link(links: Iterable[RowLink], a: Run, b: Run, name_a: str, name_b: str) -> tuple[RowLink, ...]:
    """Remove the links that join these two rows."""
    return tuple(k for k in links if resolve_links([k], a, b) != {name_a: name_b})


def resolve_marked_names(
    rows: pl.DataFrame, named_by: Sequence[str], marked: Sequence[tuple[Any, ...]]
) -> tuple[str, str]:
    """Resolve two marked rows of a diff to a name in a and a name in b.

    Raise UsageError unless each has exactly one name on its side.
    """
    if len(marked) != 2:
        raise UsageError(f"{len(marked)} rows are marked", todo="mark two with m, then M links them")
    first, second = (_find_marked_row(rows, named_by, mark) for mark in marked)
    if not first["members_a"] or not second["members_b"]:
        first, second = second, first
    names = first["members_a"] or [], second["members_b"] or []
    for side, members in zip("ab", names, strict=True):
        if not members:
            raise UsageError(f"neither marked row is in {side}", todo="mark one row of each run")
    if any(len(members) > 1 for members in names):
        raise UsageError("a marked row combines several kernels", todo="only single rows can be linked")
    return str(names[0][0]), str(names[1][0])


def _find_marked_row(rows: pl.DataFrame, named_by: Sequence[str], mark: tuple[Any, ...]) -> dict[str, Any]:
    """Find the row of a mark; raise UsageError if the rows do not contain it."""
    keys = rows.select(named_by).rows()
    if tuple(mark) not in keys:
        raise UsageError("a marked row is filtered out", todo="clear the filter, or mark it again")
    return rows.row(keys.index(tuple(mark)), named=True)
