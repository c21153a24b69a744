"""Counters: what was sampled while the run went on."""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.partial.algebra import Partial
from tracetui.analysis.partial.sampled import SHAPES, rows_of, table_of
from tracetui.analysis.series import counter_table
from tracetui.look import Look
from tracetui.views import Answer, Merging, View


def counters(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a counter."""
    table = counter_table(runs[0], look)
    return Answer(table, () if table.height else (select.NOTHING,), key=("name",))


def of_many(whole: Partial, look: Look) -> Answer:
    """Return the same, each on the tracks of its file's rank."""
    table = table_of(whole)
    return Answer(table, () if table.height else (select.NOTHING,), key=("name",))


def _contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    return rows_of(counter_table(run, look), run)


_NEEDS: Final = frozenset({"kind:counter", "value"})
VIEW = View(
    "counters",
    "Counters",
    counters,
    needs=_NEEDS,
    merging=Merging(_contribution, SHAPES, of_many, needs=_NEEDS, by_track=True),
    columns=("name", "unit", "last", "mean", "max", "min", "trend", "count", "track", "first"),
    row_key=("name", "track"),
)
