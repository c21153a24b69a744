"""Kernels: where the time went, one row a kernel, op, layer or whatever the rows are grouped by."""

from collections.abc import Sequence

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.kernels import kernel_table
from tracetui.look import Look
from tracetui.views import Answer, View

_ORDER = (
    "name", "op", "layer", "phase", "category", "lens", "count", "total_ns", "share", "cumulative_share",
    "mean_ns", "p50_ns", "p95_ns", "p99_ns", "min_ns", "max_ns", "trend", "shape",
)  # fmt: skip


def kernels(runs: Sequence[Run], look: Look) -> Answer:
    run = runs[0]
    table = kernel_table(run, look)
    order = [look.group, *(c for c in _ORDER if c in table.columns and c != look.group)]
    return Answer(table.select(order), tuple(_notes(run, look)), key=(look.group,))


def _notes(run: Run, look: Look) -> list[str]:
    chosen, known = select.lens(run, look), select.lenses(run)
    notes = []
    if len(known) > 1:
        others = ", ".join(x for x in known if x != chosen)
        notes.append(f"{chosen} times; {others} cover the same time and are not added")
    if not run.has(look.group):
        notes.append(f"this source does not tell {look.group}; all rows stand in one group")
    if run.has("count") and (run.events["count"] > 1).any():
        notes.append("rows are aggregates: percentiles stand only where the source printed them")
    return notes


VIEW = View(
    "kernels",
    "Kernels",
    kernels,
    needs=frozenset({"dur"}),
    columns=("name", "total_ns", "share", "count", "mean_ns", "trend", "p95_ns", "op", "layer", "phase"),
)
