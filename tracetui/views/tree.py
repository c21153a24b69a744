"""Tree: scopes with their inclusive and exclusive time."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import tree
from tracetui.analysis.frames import selection
from tracetui.analysis.merged.partial_results import PartialResult
from tracetui.look import Look
from tracetui.views import Answer, Focus, Merging, View, _category, find_cursor_row


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per scope, parents first."""
    run = runs[0]
    if not (tree.has_paths(run) or run.has("layer") or selection.has_start_times(run, ("span", "kernel"))):
        note = "this source reports neither path nor t nor layer; the tree view needs one of them"
        return Answer(pl.DataFrame(), (note,), missing=("path", "t", "layer"))
    table = tree.compute_tree_table(run, look)
    if table.is_empty():
        return Answer(table, (selection.NO_MATCH,), key=("path",))
    lens = tree.resolve_tree_lens(run, look)
    notes = [f"{lens} times"] if lens else []
    is_nested = tree.is_nested_by_time(run, look)
    if is_nested:
        notes += _note_nesting(run, look, lens)
    if run.has("layer") and (lens == "gpu" or not is_nested) and tree.has_kernels_without_path(run, lens):
        notes.append(f"{selection.name_work(run)}s without a scope are grouped by step, kind of layer and op")
    notes += [] if tree.has_paths(run) else selection.note_folding(run)
    table_style = _category.build_style_by_column(runs[:1], "name", "scope")
    return replace(_build_answer(table, notes), table_style=table_style)


def _note_nesting(run: Run, look: Look, lens: str | None) -> list[str]:
    """Return that scopes are nested by time, and how much of the steps of all threads is in none."""
    notes = ["scopes are nested by their times"]
    if lens == "gpu" or look.is_partial or look.phase or look.window:
        return notes
    outside_ns, steps_ns = tree.compute_outside_ns(run)
    if not outside_ns:
        return notes
    outside, steps = map(units.format_duration, (outside_ns, steps_ns))
    return [*notes, f"{outside} of {steps} in steps are in no scope; a step lasts until the next one begins"]


def _build_answer(table: pl.DataFrame, notes: Sequence[str]) -> Answer:
    order = ("scope", *(c for c in table.columns if c not in ("scope", "path")), "path")
    return Answer(table.select(order), tuple(notes), key=("path",))


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return the tree of the scopes of all files."""
    lenses = merged.members["lens"].drop_nulls().unique().sort()
    notes = [f"{' and '.join(lenses)} times"] if lenses.len() else []
    table = tree.build_tree(merged.frames["leaves"])
    if look.filter or look.where:  # what the files left out is not known
        table = table.with_columns(share=pl.lit(None, pl.Float64))
    return _build_answer(table, notes)


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the scope under the cursor."""
    row = find_cursor_row(answer, look)
    return () if row is None else (("scope", row["path"]),)


VIEW = View(
    "tree",
    "Tree",
    answer,
    needs=frozenset({"dur", "path|t|layer"}),
    merging=Merging(tree.collect_leaves, tree.SHAPES, finish_answer),
    columns=("scope", "inclusive_ns", "self_ns", "share", "count"),
    label_column="scope",
    find_focus=find_focus,
)
