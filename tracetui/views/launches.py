"""Launches: one row per launch, longest first; of two in focus, in what the second differs from the first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import detail as analysis
from tracetui.analysis.frames import display_names, selection
from tracetui.analysis.time import step_sampling
from tracetui.look import Look
from tracetui.views import Answer, TableStyle, View, why

NUMBER: Final = "number"  # of a launch, and the column of the focus
_NOT_COMPARED: Final = (NUMBER, "at_ns", "dur_ns", "delay_ns", "count", "path")  # rows, or told by the layer


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return the launches that the look selects; of the two numbers in focus, their difference."""
    run, pair = runs[0], look.focus_values.get(NUMBER)
    if isinstance(pair, tuple) and len(pair) == 2:
        return _compare(run, pair)
    rows = analysis.select_numbered_launches(run, look)
    notes = (*look.focus_labels, *step_sampling.note_lens_and_sampling(run, look))
    if rows.is_empty():
        return Answer(rows, (selection.explain_no_kernels(run), *notes), (NUMBER,))
    placed = rows.drop_nulls(NUMBER)
    if placed.height < rows.height:
        notes = (*notes, "rows without a start, or with sums, are left out")
    rows = placed.sort("dur_ns", descending=True, maintain_order=True)
    return Answer(rows, notes, (NUMBER,))


def _compare(run: Run, pair: tuple[int, int]) -> Answer:
    """Return rows of what, a_ns, b_ns, delta_ns and ratio_times; the first notes are the answer."""
    launches = analysis.select_numbered_launches(run, Look(), pair)
    by_number = {row[NUMBER]: row for row in launches.iter_rows(named=True)}
    if len(by_number) < 2:
        return Answer(pl.DataFrame(), (f"launches {pair[0]:,} and {pair[1]:,} are not both here",), ("what",))
    a, b = (by_number[number] for number in pair)
    names = display_names.map_kernel_names([run])
    notes = (_describe_times(a, b), _describe_differences(a, b, names))
    rows = analysis.compare_launches(run, a, b)
    kernel = ": " + pl.col("name").replace(names)
    rows = rows.with_columns(what=pl.concat_str("what", kernel.fill_null(""))).drop("name")
    return Answer(rows, notes, ("what",), leading_notes=2)


def _describe_times(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Return both durations, and how many times that of a the one of b is."""
    took, before = (units.format_duration(row["dur_ns"]) for row in (b, a))
    ratio = f", {b['dur_ns'] / a['dur_ns']:.2f}×" if a["dur_ns"] else ", after"
    return f"launch {b[NUMBER]:,} (b) took {took}{ratio} launch {a[NUMBER]:,} (a: {before})"


def _describe_differences(a: dict[str, Any], b: dict[str, Any], names: Mapping[str, str]) -> str:
    """Return the facts in which the launches differ, from a to b."""
    a, b = ({**row, "name": names.get(row["name"], row["name"])} for row in (a, b))
    columns = [c for c in a if c not in _NOT_COMPARED and a[c] != b[c]]
    facts = (
        f"{units.format_heading(c)} {units.format_cell(c, a[c])} → {units.format_cell(c, b[c])}"
        for c in columns
    )
    return ", ".join(facts) or "the same in all else that is recorded of them"


VIEW = View(
    "launches",
    "Launches",
    answer,
    needs=frozenset({"dur", "t"}),
    not_merged_because="it shows single launches",
    table_style=TableStyle(why.select_styles, bar="delta_ns", wide_names=True),
    columns=(
        "what", "dur_ns", NUMBER, "name", "delta_ns", "bar", "a_ns", "b_ns", "ratio_times", "at_ns", "step",
        "layer", "op", "phase", "track", "shape", "grid", "block", "delay_ns", "registers", "shared_bytes",
        "occupancy_pct", "line", "launcher", "path",
    ),
    label_column="name",
    tab="palette",
)  # fmt: skip
