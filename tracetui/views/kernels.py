"""Kernels: where the time went, one row a kernel, op, layer or whatever the rows are grouped by."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select, windows
from tracetui.analysis.kernels import kernel_table
from tracetui.analysis.partial import standin
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.kernels import SHAPES, SPREAD, merged_table, partial
from tracetui.analysis.partial.sketch import ERROR
from tracetui.look import Look
from tracetui.views import Answer, Merging, View, _category

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
    return Answer(_ordered(table, group, _ORDER), tuple(_notes(run, look, group, table)), key=(group,))


def _ordered(table: pl.DataFrame, group: str, order: Sequence[str]) -> pl.DataFrame:
    """Return the columns in order, null where the source does not know one that somebody could know."""
    order = [c for c in order if c in table.columns or c not in _ABSENT]
    unknown = [c for c in order if c not in table.columns]
    table = table.with_columns_seq(
        pl.lit(None, pl.Int64 if c == "layer" else pl.String).alias(c) for c in unknown
    )
    return table[[group, *(c for c in order if c != group)]]


def _notes(run: Run, look: Look, group: str, table: pl.DataFrame) -> list[str]:
    notes = windows.scope(run, look, scaled=True)
    if table.is_empty():
        return [select.why_no_kernels(run), *notes]
    if not run.has(group):
        notes.append(f"this source does not tell {group}; all rows stand in one group")
    if look.filter or look.where:
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


def of_many(whole: Partial, look: Look) -> Answer:
    """Return one row a group over all files, with how far apart the files are; or the table of the run whose
    ranks they are.
    """
    table, group = merged_table(whole, look), look.group or "name"
    rough = whole.frames["sketch"].drop_nulls("bucket")["group"].n_unique()
    notes = [
        *_stopwatches(whole),
        *([f"percentiles of {rough:,} rows are from sketches, off by at most {ERROR:.1%}"] if rough else []),
        *roofline.notes(standin.bare(whole), table),
    ]
    if look.merged:
        return Answer(_ordered(table, group, _ORDER), tuple(notes), key=(group,))
    notes.append(
        "least, most and spread are of the totals of single files; spread is most less least over their mean"
    )
    if look.per != "total":
        notes.append(f"totals and counts are per {look.per} of one file")
    order = [c for c in (*_ORDER, *SPREAD) if c != "trend"]
    return Answer(_ordered(table, group, order), tuple(notes), key=(group,), columns=_OF_MANY)


def _stopwatches(whole: Partial) -> list[str]:
    """Return which stopwatch the times are of, and a warning where that of the files differs."""
    counts = whole.members.group_by("lens").len().sort("lens", nulls_last=True).rows()
    if len(counts) < 2:
        return [f"{lens} times" for lens, _ in counts if lens]
    words = ", ".join(f"{lens or 'unknown'} in {number:,} runs" for lens, number in counts)
    return [f"times of different stopwatches are added ({words}); --lens chooses one"]


_OF_MANY: Final = (
    "name",
    "total_ns",
    "share",
    "spread_share",
    "files",
    "least_ns",
    "most_ns",
    "count",
    "mean_ns",
)

VIEW = View(
    "kernels",
    "Kernels",
    kernels,
    needs=frozenset({"dur"}),
    merging=Merging(partial, SHAPES, of_many, needs=frozenset({"dur"})),
    dress=_category.dress(),
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
