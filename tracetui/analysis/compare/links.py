"""Rows that a person linked by hand, and which of these links apply to two runs."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui.look import Link

BY_HAND: Final = "linked by you"


def names_linked(links: Iterable[Link], a: Run, b: Run) -> dict[str, str]:
    """Return row of a → row of b for the links that fit both files, in either order."""
    here, there = _file(a), _file(b)
    rows: dict[str, str] = {}
    for link in links:
        if fnmatchcase(here, link.file_a) and fnmatchcase(there, link.file_b):
            rows[link.a] = link.b
        elif fnmatchcase(here, link.file_b) and fnmatchcase(there, link.file_a):
            rows[link.b] = link.a
    return rows


def new_link(a: Run, b: Run, name_a: str, name_b: str) -> Link:
    """Return the link of a row of one file to a row of another, for these two files alone."""
    return Link(name_a, name_b, escape(_file(a)), escape(_file(b)))


def without(links: Iterable[Link], a: Run, b: Run, name_a: str, name_b: str) -> tuple[Link, ...]:
    """Return the links but those that join these two rows."""
    return tuple(k for k in links if names_linked([k], a, b) != {name_a: name_b})


def marked_names(
    rows: pl.DataFrame, named_by: Sequence[str], marked: Sequence[tuple[Any, ...]]
) -> tuple[str, str]:
    """Return the names that two marked rows of a diff have, one in a and one in b.

    Raise UsageError where they do not have just one each.
    """
    if len(marked) != 2:
        raise UsageError(f"{len(marked)} rows are marked", todo="mark two with m, then M links them")
    first, second = (_marked_row(rows, named_by, mark) for mark in marked)
    if not first["members_a"] or not second["members_b"]:
        first, second = second, first
    names = first["members_a"] or [], second["members_b"] or []
    for side, own in zip("ab", names, strict=True):
        if not own:
            raise UsageError(f"neither marked row stands in {side}", todo="mark one row of each run")
    if any(len(own) > 1 for own in names):
        raise UsageError("a marked row stands for several kernels", todo="only single rows can be linked")
    return str(names[0][0]), str(names[1][0])


def _marked_row(rows: pl.DataFrame, named_by: Sequence[str], mark: tuple[Any, ...]) -> dict[str, Any]:
    """Return the row of a mark; raise UsageError where the rows do not hold it."""
    keys = rows.select(named_by).rows()
    if tuple(mark) not in keys:
        raise UsageError("a marked row is out of sight", todo="clear the filter, or mark it anew")
    return rows.row(keys.index(tuple(mark)), named=True)


def _file(run: Run) -> str:
    """Return the name of a run's file without its folder, so that a file that is moved keeps its links."""
    return PurePath(run.log.source).name or run.name
