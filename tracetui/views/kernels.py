"""Kernels: time by kernel, op, layer or any other grouping."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline
from tracetui.analysis.energy import JOULES, note_joules, with_joules
from tracetui.analysis.frames import selection
from tracetui.analysis.kernels import compute_kernel_table
from tracetui.analysis.merged import merged_run
from tracetui.analysis.merged.duration_sketch import MAX_RELATIVE_ERROR
from tracetui.analysis.merged.merged_kernels import SHAPES, SPREAD_COLUMNS, build_kernel_table, sum_kernels
from tracetui.analysis.merged.partial_results import PartialResult
from tracetui.analysis.time import step_sampling
from tracetui.look import Look
from tracetui.views import Answer, Merging, View, _category

_COLUMN_ORDER: Final = (
    "name", "op", "layer", "phase", "category", "lens", "count", "total_ns", *step_sampling.SCALE_COLUMNS,
    "share", "cumulative_share", *roofline.RATE_COLUMNS, "mean_ns", "p50_ns", "p95_ns", "p99_ns", "min_ns",
    "max_ns", JOULES, "trend", "shape",
)  # fmt: skip
# left out if no source could report them
_OPTIONAL_COLUMNS: Final = (*step_sampling.SCALE_COLUMNS, *roofline.RATE_COLUMNS, JOULES)
_MERGED_COLUMNS: Final = (
    "name", "total_ns", "share", "spread_share", "files", "least_ns", "most_ns", "count", "mean_ns",
)  # fmt: skip


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per group, always with the same columns."""
    run, group = runs[0], look.group or "name"
    table = with_joules(compute_kernel_table(run, look), run, look)
    rows = _order_columns(table, group, _COLUMN_ORDER)
    return Answer(rows, tuple(_build_notes(run, look, group, table)), key=(group,))


def _order_columns(table: pl.DataFrame, group: str, order: Sequence[str]) -> pl.DataFrame:
    """Return the columns in order, null for those that the source lacks."""
    order = [c for c in order if c in table.columns or c not in _OPTIONAL_COLUMNS]
    table = table.with_columns_seq(
        pl.lit(None, pl.Int64 if c == "layer" else pl.String).alias(c)
        for c in order
        if c not in table.columns
    )
    return table[[group, *(c for c in order if c != group)]]


def _build_notes(run: Run, look: Look, group: str, table: pl.DataFrame) -> list[str]:
    notes = step_sampling.note_lens_and_sampling(run, look, scaled=True)
    if table.is_empty():
        return [selection.explain_no_kernels(run), *notes]
    if run.meta.get("work") == "spans":
        notes.append("self times: what runs inside a span is in rows of its own")
    if not run.has(group):
        notes.append(f"this source does not report {group}; all rows are in one group")
    if look.filter or look.where:
        notes.append("shares include the rows that the filter hides")
    if look.per != "total":
        notes.append(_describe_per_unit(run, look))
    if selection.has_step_sums(run):
        notes.append(
            "rows of the source are sums per step: count and mean are per step, and there are no "
            "percentiles of launches"
        )
    elif selection.has_aggregates(run):
        notes.append("rows are aggregates: percentiles only where the source reports them")
    return [*notes, *roofline.note_roof(run, table), *note_joules(run, table)]


def _describe_per_unit(run: Run, look: Look) -> str:
    if not run.has("step"):
        return f"this source does not report steps: times are totals, not per {look.per}"
    if look.per == "token" and not run.has("tokens"):
        return "this source does not report tokens: totals and counts are per step"
    return f"totals and counts are per {look.per}; rows outside of steps are excluded"


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return one row per group over all files, with the spread between files.

    With `look.merged`: the table of the run whose ranks they are.
    """
    table, group = build_kernel_table(merged, look), look.group or "name"
    notes = _describe_lenses(merged)
    if rows := merged.frames["sketch"].drop_nulls("bucket")["group"].n_unique():
        notes.append(f"percentiles of {rows:,} rows are approximate, off by at most {MAX_RELATIVE_ERROR:.1%}")
    notes += roofline.note_roof(merged_run.build_empty_run(merged), table)
    if look.merged:
        return Answer(_order_columns(table, group, _COLUMN_ORDER), tuple(notes), key=(group,))
    notes.append("least, most and spread refer to totals of single files; spread is (most − least) / mean")
    if look.per != "total":
        notes.append(f"totals and counts are per {look.per} of one file")
    order = [c for c in (*_COLUMN_ORDER, *SPREAD_COLUMNS) if c != "trend"]
    return Answer(_order_columns(table, group, order), tuple(notes), key=(group,), columns=_MERGED_COLUMNS)


def _describe_lenses(merged: PartialResult) -> list[str]:
    """Return the lens of the times, or a warning if the files have different ones."""
    counts = merged.members.group_by("lens").len().sort("lens", nulls_last=True).rows()
    if len(counts) < 2:
        return [f"{lens} times" for lens, _ in counts if lens]
    counts_text = ", ".join(f"{lens or 'unknown'} in {number:,} runs" for lens, number in counts)
    return [f"times of different lenses are summed ({counts_text}): choose one with --lens"]


VIEW = View(
    "kernels",
    "Kernels",
    answer,
    needs=frozenset({"dur"}),
    merging=Merging(sum_kernels, SHAPES, finish_answer),
    table_style=_category.build_table_style(),
    columns=(
        "name", "total_ns", "scale", "share", "roof_share", "bound", "count", "mean_ns", "gb_per_s", "trend",
        "p95_ns", "op", "layer", "phase", "gflop_per_s", JOULES, "p50_ns", "max_ns", "min_ns",
        "cumulative_share", "p99_ns", "category", "shape", "lens", "measured_ns",
    ),
)  # fmt: skip
