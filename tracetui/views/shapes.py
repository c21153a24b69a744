"""Shapes: time by operand shape, and the rates reached."""

from collections.abc import Sequence
from typing import Final

from capture.run import Run
from tracetui.analysis import roofline
from tracetui.analysis.frames import selection
from tracetui.analysis.shapes import compute_shape_table
from tracetui.analysis.time import step_sampling
from tracetui.look import Look
from tracetui.views import Answer, View, _category
from tracetui.views._merging import build_sum_merging


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per shape and op."""
    run = runs[0]
    table = compute_shape_table(run, look)
    notes = step_sampling.note_lens_and_sampling(run, look)
    if table.is_empty():
        return Answer(table, (selection.explain_no_kernels(run), *notes), ("shape",))
    for column, rate in (("flops", "GFLOP/s"), ("bytes", "GB/s")):
        if table[column].null_count() == table.height:
            notes.append(f"this source does not report {column}: no {rate}")
    notes += roofline.note_roof(run, table)
    return Answer(table, tuple(notes), key=("shape", *(c for c in ("op",) if run.has(c))))


_NEEDS: Final = frozenset({"dur", "shape"})
VIEW = View(
    "shapes",
    "Shapes",
    answer,
    needs=_NEEDS,
    merging=build_sum_merging(answer, lambda run, look: ("shape", "op", "category", "phase"), _NEEDS),
    table_style=_category.build_table_style(),
    columns=(
        "shape", "total_ns", "share", "count", "op", "byte_per_s", "flop_per_s", "roof_share", "bound",
        "bytes_per_launch", "flops_per_launch", "mean_ns", "flops", "bytes", "category",
    ),
    default_group="shape",
)  # fmt: skip
