"""Kernels: where the time went, one row a kernel, op, layer or whatever the rows are grouped by."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select, windows
from tracetui.analysis.kernels import kernel_table
from tracetui.look import Look
from tracetui.views import Answer, View

_ORDER: Final = (
    "name",
    "op",
    "layer",
    "phase",
    "category",
    "lens",
    "count",
    "total_ns",
    *windows.COLUMNS,
    "share",
    "cumulative_share",
    *roofline.COLUMNS,
    "mean_ns",
    "p50_ns",
    "p95_ns",
    "p99_ns",
    "min_ns",
    "max_ns",
    "trend",
    "shape",
)
_ABSENT: Final = (*windows.COLUMNS, *roofline.COLUMNS)  # where nobody could know them


def kernels(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a group, with the same columns whatever the source knows."""
    run, group = runs[0], look.group or "name"
    table = kernel_table(run, look)
    order = [c for c in _ORDER if c in table.columns or c not in _ABSENT]
    unknown = [c for c in order if c not in table.columns]
    table = table.with_columns(
        pl.lit(None, pl.Int64 if c == "layer" else pl.String).alias(c) for c in unknown
    )
    rows = table.select(group, *(c for c in order if c != group))
    return Answer(rows, tuple(_notes(run, look, group, table)), key=(group,))


def _notes(run: Run, look: Look, group: str, table: pl.DataFrame) -> list[str]:
    notes = windows.scope(run, look, scaled=True)
    if table.is_empty():
        return [select.why_no_kernels(run), *notes]
    if not run.has(group):
        notes.append(f"this source does not tell {group}; all rows stand in one group")
    if look.filter:
        notes.append("shares are of all rows, those that the filter hides too")
    if look.per != "total":
        notes.append(_per(run, look))
    if select.step_sums(run):
        notes.append(
            "a row of the source is the sum of one step: count and mean are of steps, and there "
            "are no launches to take percentiles of"
        )
    elif select.aggregates(run):
        notes.append("rows are aggregates: percentiles stand only where the source printed them")
    return [*notes, *roofline.notes(run, table)]


def _per(run: Run, look: Look) -> str:
    if not run.has("step"):
        return f"this source does not tell steps: times are totals, not per {look.per}"
    if look.per == "token" and not run.has("tokens"):
        return "this source does not tell tokens: totals and counts are per step"
    return f"totals and counts are per {look.per}; rows outside of steps are left out"


VIEW = View(
    "kernels",
    "Kernels",
    kernels,
    needs=frozenset({"dur"}),
    columns=(
        "name",
        "total_ns",
        "scale",
        "share",
        "roof_share",
        "bound",
        "count",
        "mean_ns",
        "gb_per_s",
        "trend",
        "p95_ns",
        "op",
        "layer",
        "phase",
        "gflop_per_s",
        "p50_ns",
        "max_ns",
        "min_ns",
        "cumulative_share",
        "p99_ns",
        "category",
        "shape",
        "lens",
        "measured_ns",
    ),
)
