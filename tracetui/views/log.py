"""Log: the lines of value in the source that are no timings."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look
from tracetui.views import Answer, View

COLUMNS: Final = {"t": "at_ns", "step": "step", "path": "class", "name": "text"}


def log(runs: Sequence[Run], look: Look) -> Answer:
    """Mark rows in the order of the source; the class of a line stands in its path."""
    run = runs[0]
    rows = run.events.lazy().filter(pl.col("kind") == "mark")
    rows = select.narrowed(rows, run, look)
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


VIEW = View("log", "Log", log, needs=frozenset({"kind:mark"}), columns=("text", "class", "at_ns", "step"))
