"""Memory: sizes by name, and how they moved."""

from collections.abc import Sequence
from typing import Final

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.series import memory_table
from tracetui.look import Look
from tracetui.views import Answer, View
from tracetui.views._sampled import merging


def memory(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a name."""
    run = runs[0]
    table = memory_table(run, look)
    if table.is_empty():
        return Answer(table, (select.NOTHING,), key=("name",))
    timeless = not select.on_timeline(run, ("memory",))
    notes = ("samples stand in the order of the source: it tells no times of them",) if timeless else ()
    return Answer(table, notes, key=("name",))


_NEEDS: Final = frozenset({"kind:memory", "bytes"})
VIEW = View(
    "memory",
    "Memory",
    memory,
    needs=_NEEDS,
    merging=merging(memory_table, _NEEDS),
    columns=(
        "name",
        "max_bytes",
        "last_bytes",
        "first_bytes",
        "trend",
        "min_bytes",
        "mean_bytes",
        "count",
        "track",
    ),
)
