"""Memory: sizes by name, and how they changed."""

from collections.abc import Sequence

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.time.series import compute_memory_table
from tracetui.look import Look
from tracetui.views import Answer, View
from tracetui.views._merging import build_sample_merging


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per name."""
    run = runs[0]
    table = compute_memory_table(run, look)
    if table.is_empty():
        return Answer(table, (selection.NO_MATCH,), key=("name",))
    timeless = not selection.has_start_times(run, ("memory",))
    notes = ("samples are in the order of the source, which reports no times",) if timeless else ()
    return Answer(table, notes, key=("name",))


VIEW = View(
    "memory",
    "Memory",
    answer,
    needs=frozenset({"kind:memory", "bytes"}),
    merging=build_sample_merging(compute_memory_table),
    columns=(
        "name", "max_bytes", "last_bytes", "first_bytes", "trend", "min_bytes", "mean_bytes", "count",
        "track",
    ),
)  # fmt: skip
