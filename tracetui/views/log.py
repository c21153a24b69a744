"""Log: the lines of the source that are worth reading and are no timings."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look
from tracetui.views import Answer, View

COLUMNS: Final = {"t": "at_ns", "step": "step", "path": "class", "name": "text"}


def log(runs: Sequence[Run], look: Look) -> Answer:
    """Return mark rows in the order of the source, with the class of each line."""
    run = runs[0]
    rows = run.events.lazy().filter(pl.col("kind") == "mark")
    rows = select.narrowed(rows, run, look)
    if run.has("t"):
        rows = rows.with_columns(pl.col("t") - _begin(run))
    columns = [c for c in ("t", "step", "path", "name") if run.has(c)]
    table = (
        rows.select(columns).collect().rename({"t": "at_ns", "path": "class", "name": "text"}, strict=False)
    )
    left_out = run.meta["folded"].get("lines") if select.folded(run) else 0
    notes = (
        (f"{left_out:,} older lines stand in the file alone",)
        if isinstance(left_out, int) and left_out
        else ()
    )
    return Answer(table, notes if table.height else (select.NOTHING, *notes))


def _begin(run: Run) -> int:
    """Return when a run began by its own clock, which often counts from the start of the machine; else 0."""
    clock = run.meta.get("clock")
    return int(clock[0]) if isinstance(clock, list) and clock and isinstance(clock[0], int) else 0


VIEW = View(
    "log",
    "Log",
    log,
    needs=frozenset({"kind:mark"}),
    alone="lines are read, not added",
    newest_last=True,
    columns=("text", "class", "at_ns", "step"),
)
