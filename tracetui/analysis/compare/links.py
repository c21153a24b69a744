"""Rows that a person linked by hand: which of the links apply to two runs."""

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


def applying(links: Iterable[Link], a: Run, b: Run) -> dict[str, str]:
    """Row of a → row of b; a link made the other way round says the same."""
    here, there = _file(a), _file(b)
    found: dict[str, str] = {}
    for link in links:
        if fnmatchcase(here, link.file_a) and fnmatchcase(there, link.file_b):
            found[link.a] = link.b
        elif fnmatchcase(here, link.file_b) and fnmatchcase(there, link.file_a):
            found[link.b] = link.a
    return found


def linked(a: Run, b: Run, name_a: str, name_b: str) -> Link:
    """The link of a row of one file to a row of another, which holds for these two files."""
    return Link(name_a, name_b, escape(_file(a)), escape(_file(b)))


def without(links: Iterable[Link], a: Run, b: Run, name_a: str, name_b: str) -> tuple[Link, ...]:
    """The links that do not make these two rows one."""
    return tuple(k for k in links if applying([k], a, b) != {name_a: name_b})


def meant(rows: pl.DataFrame, named_by: Sequence[str], marked: Sequence[tuple[Any, ...]]) -> tuple[str, str]:
    """The names that two marked rows of a diff stand for: one in a, one in b."""
    if len(marked) != 2:
        raise UsageError(f"{len(marked)} rows are marked", todo="mark two with m, then M links them")
    key = rows.select(named_by).rows()
    first, second = (rows.row(key.index(tuple(m)), named=True) if tuple(m) in key else {} for m in marked)
    if not first or not second:
        raise UsageError("a marked row is out of sight", todo="clear the filter, or mark it anew")
    if not first["members_a"] or not second["members_b"]:
        first, second = second, first
    names = first["members_a"] or [], second["members_b"] or []
    if not all(names):
        side = "a" if not names[0] else "b"
        raise UsageError(f"neither marked row stands in {side}", todo="mark one row of each run")
    if any(len(n) > 1 for n in names):
        raise UsageError("a marked row stands for several kernels", todo="only single rows can be linked")
    return str(names[0][0]), str(names[1][0])


def _file(run: Run) -> str:
    """The name of a run's file, without its folder: a file that is moved keeps its links."""
    return PurePath(run.log.source).name or run.name
