"""Tree: scopes with what they took in all and by themselves."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.tree import MOST_NESTED, lens_of_scopes, stated, tree_table
from tracetui.look import Look
from tracetui.views import Answer, View


def tree(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a scope, parents first."""
    run = runs[0]
    by_path = stated(run)
    if not by_path and not select.on_timeline(run, ("span", "kernel")):
        note = "this source tells neither path nor t; the tree view needs one of them"
        return Answer(pl.DataFrame(), (note,), missing=("path", "t"))
    table = tree_table(run, look)
    if table.is_empty():
        return Answer(table, (select.NOTHING,), key=("path",))
    lens = lens_of_scopes(run, look, "path" if by_path else "t")
    notes = [f"{lens} times"] if lens else []
    if not by_path:
        notes.append(f"scopes are nested by their times, up to {MOST_NESTED:,} rows")
        notes += select.folding(run)
    order = ("scope", *(c for c in table.columns if c not in ("scope", "path")), "path")
    return Answer(table.select(order), tuple(notes), key=("path",))


VIEW = View(
    "tree",
    "Tree",
    tree,
    needs=frozenset({"dur", "path|t"}),
    columns=("scope", "inclusive_ns", "self_ns", "share", "count"),
    label="scope",
)
