"""Calls: one row of the tree, entered: which scopes call it, and what it calls."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.calls import CALLEE, ITSELF, calls_in, calls_table
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.tree import SHAPES, partial
from tracetui.analysis.tree import tree_of
from tracetui.look import Look
from tracetui.shown_names import shown_name
from tracetui.views import Answer, Focus, Merging, View, _category

WHICH: Final = "which scope? enter a row of the tree, or name it: --focus scope=NAME"


def calls(runs: Sequence[Run], look: Look) -> Answer:
    """Return a row for the scope in focus, and rows for its callers and callees."""
    scope = look.focused.get("scope")
    if not isinstance(scope, str):
        return Answer(pl.DataFrame(), (WHICH,))
    told = _told(calls_table(runs[0], look, scope))
    return replace(told, dress=_category.by(runs[:1], "name", "scope"))


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the same of the scopes of all files."""
    scope = look.focused.get("scope")
    if not isinstance(scope, str):
        return Answer(pl.DataFrame(), (WHICH,))
    return _told(calls_in(tree_of(whole.frames["leaves"]), scope))


def _contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    return partial(run, replace(look, focus=()))


def _told(table: pl.DataFrame) -> Answer:
    if table.is_empty():
        return Answer(table, (select.NOTHING,), key=("relation", "path"))
    return Answer(table, (f"shares are of {shown_name(table['scope'][0])}",), key=("relation", "path"))


def enter(answer: Answer, look: Look) -> Focus:
    """Return the scope under the cursor; of a kernel that is in focus already its name."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height:
        return ()
    here = answer.rows.row(row, named=True)
    if here["relation"] != ITSELF:
        return (("scope", here["path"]),)
    kernel = answer.rows.filter(relation=CALLEE).is_empty()
    return (("name", here["scope"]),) if kernel else ()


VIEW = View(
    "calls",
    "Calls",
    calls,
    needs=frozenset({"dur", "path|t|layer"}),
    merging=Merging(_contribution, SHAPES, of_many, needs=frozenset({"dur", "path|t|layer"})),
    columns=("scope", "relation", "inclusive_ns", "self_ns", "share", "count"),
    label="scope",
    enter=enter,
)
