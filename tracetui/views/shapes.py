"""Shapes: which operand shapes the time went into, and how fast they ran."""

from collections.abc import Sequence
from typing import Final

from capture.run import Run
from tracetui.analysis import roofline, select, windows
from tracetui.analysis.shapes import shape_table
from tracetui.look import Look
from tracetui.views import Answer, View, _category
from tracetui.views._summed import summed


def shapes(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a shape and op."""
    run = runs[0]
    table = shape_table(run, look)
    notes = windows.scope(run, look)
    if table.is_empty():
        return Answer(table, (select.why_no_kernels(run), *notes), ("shape",))
    for column, rate in (("flops", "flop/s"), ("bytes", "byte/s")):
        if table[column].null_count() == table.height:
            notes.append(f"this source does not tell {column}: no {rate}")
    notes += roofline.notes(run, table)
    return Answer(table, tuple(notes), key=("shape", *(c for c in ("op",) if run.has(c))))


def _by(run: Run, look: Look) -> tuple[str, ...]:
    return ("shape", "op", "category", "phase")


_NEEDS: Final = frozenset({"dur", "shape"})
VIEW = View(
    "shapes",
    "Shapes",
    shapes,
    needs=_NEEDS,
    merging=summed(shapes, _by, _NEEDS),
    dress=_category.dress(),
    columns=(
        "shape",
        "total_ns",
        "share",
        "count",
        "op",
        "byte_per_s",
        "roof_share",
        "bound",
        "bytes_per_launch",
        "flops_per_launch",
        "flop_per_s",
        "mean_ns",
        "flops",
        "bytes",
        "category",
    ),
    group="shape",
)
