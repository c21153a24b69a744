"""Tables: tables of the source itself, unchanged."""

from collections.abc import Mapping, Sequence

import polars as pl

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, View


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return the table in focus; without a focus the only one, or the list of all."""
    stored = runs[0].tables
    name = look.focus_values.get("table")
    if name is None and len(stored) == 1:
        name = next(iter(stored))
    if isinstance(name, str) and name in stored:
        return Answer(stored[name], (f"table {name!r}, as reported by the source",))
    return Answer(_list_tables(stored), ("Enter shows a table",), key=("table",))


def _list_tables(stored: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
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
    answer,
    needs=frozenset({"table:any"}),
    own_focus="table",
    filters="rows",
    not_merged_because="tables of a source cannot be summed",
    tab="palette",
)
