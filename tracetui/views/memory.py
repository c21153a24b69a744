"""Memory: sizes by name, and how they moved."""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.sampled import SHAPES, rows_of, table_of
from tracetui.analysis.series import memory_table
from tracetui.look import Look
from tracetui.views import Answer, Merging, View


def memory(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a name."""
    run = runs[0]
    table = memory_table(run, look)
    if table.is_empty():
        return Answer(table, (select.NOTHING,), key=("name",))
    timeless = not select.on_timeline(run, ("memory",))
    notes = ("samples stand in the order of the source: it tells no times of them",) if timeless else ()
    return Answer(table, notes, key=("name",))


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the same, each on the tracks of its file's rank."""
    table = table_of(whole)
    return Answer(table, () if table.height else (select.NOTHING,), key=("name",))


def _contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    return rows_of(memory_table(run, look), run)


_NEEDS: Final = frozenset({"kind:memory", "bytes"})
VIEW = View(
    "memory",
    "Memory",
    memory,
    needs=_NEEDS,
    merging=Merging(_contribution, SHAPES, of_many, needs=_NEEDS, by_track=True),
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
