"""Tree: scopes with what they took in all and by themselves."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.tree import SHAPES, partial
from tracetui.analysis.places import placed
from tracetui.analysis.tree import by_time, has_free_kernels, lens_of_tree, stated, tree_of, tree_table
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, _category


def tree(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a scope, parents first."""
    run = runs[0]
    if not (stated(run) or placed(run) or select.on_timeline(run, ("span", "kernel"))):
        note = "this source tells neither path nor t nor layer; the tree view needs one of them"
        return Answer(pl.DataFrame(), (note,), missing=("path", "t", "layer"))
    table = tree_table(run, look)
    if table.is_empty():
        return Answer(table, (select.NOTHING,), key=("path",))
    lens = lens_of_tree(run, look)
    notes = [f"{lens} times"] if lens else []
    if by_time(run, look):
        notes.append("scopes are nested by their times")
    if placed(run) and has_free_kernels(run, lens):
        notes.append("kernels of no scope stand by their step, kind of layer and op")
    notes += [] if stated(run) else select.folding(run)
    return replace(_told(table, notes), dress=_category.by(runs[:1], "name", "scope"))


def _told(table: pl.DataFrame, notes: Sequence[str]) -> Answer:
    order = ("scope", *(c for c in table.columns if c not in ("scope", "path")), "path")
    return Answer(table.select(order), tuple(notes), key=("path",))


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the tree of the scopes of all files."""
    lenses = whole.members["lens"].drop_nulls().unique().sort()
    return _told(tree_of(whole.frames["leaves"]), [f"{' and '.join(lenses)} times"] if lenses.len() else [])


def enter(answer: Answer, look: Look) -> Focus:
    """Return the scope under the cursor."""
    row = look.cursor[0]
    return (("scope", answer.rows["path"][row]),) if 0 <= row < answer.rows.height else ()


VIEW = View(
    "tree",
    "Tree",
    tree,
    needs=frozenset({"dur", "path|t|layer"}),
    merging=Merging(partial, SHAPES, of_many, needs=frozenset({"dur", "path|t|layer"})),
    columns=("scope", "inclusive_ns", "self_ns", "share", "count"),
    label="scope",
    enter=enter,
)
