"""Log: lines of the source that are not timings."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.look import Look
from tracetui.views import Answer, View

_COLUMNS: Final = {"t": "at_ns", "step": "step", "path": "class", "name": "text"}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return mark rows in the order of the source, with the class of each line."""
    run = runs[0]
    rows = run.events.lazy().filter(pl.col("kind") == "mark")
    rows = selection.filter_rows(rows, run, look)
    if run.has("t"):
        rows = rows.with_columns(pl.col("t") - _find_start(run))
    table = rows.select(pl.col(c).alias(name) for c, name in _COLUMNS.items() if run.has(c)).collect()
    left_out = run.meta["folded"].get("lines") if selection.is_folded(run) else 0
    notes = [] if table.height else [selection.NO_MATCH]
    if isinstance(left_out, int) and left_out:
        notes.append(f"{left_out:,} older lines are only in the file")
    return Answer(table, tuple(notes))


def _find_start(run: Run) -> int:
    """Return the start of a run on its own clock (often time since boot), or 0."""
    clock = run.meta.get("clock")
    return int(clock[0]) if isinstance(clock, list) and clock and isinstance(clock[0], int) else 0


VIEW = View(
    "log",
    "Log",
    answer,
    needs=frozenset({"kind:mark"}),
    not_merged_because="lines of text cannot be summed",
    newest_last=True,
    columns=("text", "class", "at_ns", "step"),
    tab="palette",
)
