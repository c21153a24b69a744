"""Calls: callers and callees of one scope of the tree."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.calls import CALLEE, ITSELF, compute_calls_in_tree, compute_calls_table
from tracetui.analysis.frames import selection
from tracetui.analysis.merged.partial_results import PartialResult
from tracetui.analysis.tree import SHAPES, build_tree, collect_leaves
from tracetui.display_names import format_display_name
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, _category

WHICH_SCOPE: Final = "which scope? enter a row of the tree, or name it: --focus scope=NAME"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return a row for the scope in focus, and rows for its callers and callees."""
    scope = look.focus_values.get("scope")
    if not isinstance(scope, str):
        return Answer(pl.DataFrame(), (WHICH_SCOPE,))
    unstyled = _build_answer(compute_calls_table(runs[0], look, scope))
    return replace(unstyled, table_style=_category.build_style_by_column(runs[:1], "name", "scope"))


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the same for the scopes of all files."""
    scope = look.focus_values.get("scope")
    if not isinstance(scope, str):
        return Answer(pl.DataFrame(), (WHICH_SCOPE,))
    return _build_answer(compute_calls_in_tree(build_tree(merged.frames["leaves"]), scope))


def _compute_partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    return collect_leaves(run, replace(look, focus=()))


def _build_answer(table: pl.DataFrame) -> Answer:
    if table.is_empty():
        return Answer(table, (selection.NO_MATCH,), key=("relation", "path"))
    return Answer(
        table, (f"shares are relative to {format_display_name(table['scope'][0])}",), key=("relation", "path")
    )


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the scope under the cursor; for a kernel that is already in focus, its name."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height:
        return ()
    entry = answer.rows.row(row, named=True)
    if entry["relation"] != ITSELF:
        return (("scope", entry["path"]),)
    kernel = answer.rows.filter(relation=CALLEE).is_empty()
    return (("name", entry["scope"]),) if kernel else ()


VIEW = View(
    "calls",
    "Calls",
    answer,
    needs=frozenset({"dur", "path|t|layer"}),
    merging=Merging(_compute_partial, SHAPES, finish_answer),
    columns=("scope", "relation", "inclusive_ns", "self_ns", "share", "count"),
    label_column="scope",
    find_focus=find_focus,
)
