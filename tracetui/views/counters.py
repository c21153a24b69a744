"""Counters: what was sampled while the run went on."""

from collections.abc import Sequence

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.series import counter_table
from tracetui.look import Look
from tracetui.views import Answer, View


def counters(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a counter."""
    table = counter_table(runs[0], look)
    return Answer(table, () if table.height else (select.NOTHING,), key=("name",))


VIEW = View(
    "counters",
    "Counters",
    counters,
    needs=frozenset({"kind:counter", "value"}),
    columns=("name", "unit", "last", "mean", "max", "min", "trend", "count", "track", "first"),
    row_key=("name", "track"),
)
