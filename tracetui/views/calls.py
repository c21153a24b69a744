"""Calls: callers and callees of one scope of the tree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.calls import CALLEE, ITSELF, compute_calls_in_tree, compute_calls_table
from tracetui.analysis.frames import selection
from tracetui.analysis.merged.partial_results import PartialResult
from tracetui.analysis.tree import SHAPES, build_tree, collect_leaves
from tracetui.glyphs import format_display_name
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, _category, find_cursor_row

WHICH_SCOPE: Final = "which scope? enter a row of the tree, or name it: --focus scope=NAME"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return a row for the scope in focus, and rows for its callers and callees."""
    plain = _build_answer(look, partial(compute_calls_table, runs[0], look))
    if not plain.key:
        return plain
    return replace(plain, table_style=_category.build_style_by_column(runs[:1], "name", "scope"))


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the same for the scopes of all files."""
    return _build_answer(look, partial(compute_calls_in_tree, build_tree(merged.frames["leaves"])))


def _build_answer(look: Look, compute_table: Callable[[str], pl.DataFrame]) -> Answer:
    scope = look.focus_values.get("scope")
    if not isinstance(scope, str):
        return Answer(pl.DataFrame(), (WHICH_SCOPE,))
    table = compute_table(scope)
    note = selection.NO_MATCH
    if table.height:
        note = f"shares are relative to {format_display_name(table['scope'][0])}"
    return Answer(table, (note,), key=("relation", "path"))


def _compute_partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    return collect_leaves(run, replace(look, focus=()))


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the scope under the cursor; for a kernel that is already in focus, its name."""
    row = find_cursor_row(answer, look)
    if row is None:
        return ()
    if row["relation"] != ITSELF:
        return (("scope", row["path"]),)
    is_kernel = answer.rows.filter(relation=CALLEE).is_empty()
    return (("name", row["scope"]),) if is_kernel else ()


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
