"""Counters: values sampled during the run."""

from collections.abc import Sequence

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.time.series import compute_counter_table
from tracetui.look import Look
from tracetui.views import Answer, View
from tracetui.views._merging import build_sample_merging


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per counter."""
    table = compute_counter_table(runs[0], look)
    return Answer(table, () if table.height else (selection.NO_MATCH,), key=("name",))


VIEW = View(
    "counters",
    "Counters",
    answer,
    needs=frozenset({"kind:counter", "value"}),
    merging=build_sample_merging(compute_counter_table),
    columns=("name", "unit", "last", "mean", "max", "min", "trend", "count", "track", "first"),
    row_key=("name", "track"),
)
