"""Tables: what the source itself tabulated, kept whole."""

from collections.abc import Mapping, Sequence

import polars as pl

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, View


def tables(runs: Sequence[Run], look: Look) -> Answer:
    """Return the table in focus; without one the only one, or the list of all."""
    stored = runs[0].tables
    name = look.focused.get("table")
    if name is None and len(stored) == 1:
        name = next(iter(stored))
    if isinstance(name, str) and name in stored:
        return Answer(stored[name], (f"the table {name!r}, as the source states it",))
    return Answer(_contents(stored), ("Enter shows a table",), key=("table",))


def _contents(stored: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "table": list(stored),
            "rows": [t.height for t in stored.values()],
            "columns": [", ".join(t.columns) for t in stored.values()],
        },
        schema={"table": pl.String, "rows": pl.Int64, "columns": pl.String},
    )


VIEW = View(
    "tables",
    "Tables",
    tables,
    needs=frozenset({"table:any"}),
    alone="what a source has tabulated is not added up",
)
