"""Counters: what was sampled while the run went on."""

from collections.abc import Sequence
from typing import Final

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.series import counter_table
from tracetui.look import Look
from tracetui.views import Answer, View
from tracetui.views._sampled import merging


def counters(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a counter."""
    table = counter_table(runs[0], look)
    return Answer(table, () if table.height else (select.NOTHING,), key=("name",))


_NEEDS: Final = frozenset({"kind:counter", "value"})
VIEW = View(
    "counters",
    "Counters",
    counters,
    needs=_NEEDS,
    merging=merging(counter_table, _NEEDS),
    columns=("name", "unit", "last", "mean", "max", "min", "trend", "count", "track", "first"),
    row_key=("name", "track"),
)
