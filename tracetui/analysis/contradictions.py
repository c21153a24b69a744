"""Figures that cannot be: they are cleared, and a note says which of them contradict each other.

A share of a roof above the roof, a step shorter than the union of its kernels, more time of its own than in
all, a fall by more than 100 %: each shows that something was read, counted or assumed wrongly. No reader can
use the number, so none is printed.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import polars as pl

TOLERANCE: Final = 1.05  # of a whole: roofs and clocks are measured this well at best
_DIFFERENCES: Final = ("behind_share", "spread_share")  # shares of something else than a whole
_LABELS: Final = ("name", "op", "scope", "step", "layer", "rank", "shape", "category", "phase", "function")
_NAMED: Final = 2  # rows named in a note


class Contradiction(NamedTuple):
    """A column with impossible values, what it is called, and what they contradict."""

    column: str
    is_impossible: pl.Expr
    figure: str
    text: str


def find_contradictions(table: pl.DataFrame) -> Iterator[tuple[Contradiction, pl.DataFrame]]:
    """Yield each column with impossible values, and their rows."""
    for contradiction in _list_rules(table.schema):
        rows = table.filter(contradiction.is_impossible)
        if rows.height:
            yield contradiction, rows


def clear_contradictions(table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the table with null for each impossible figure, and a note per column."""
    notes = []
    for (column, is_impossible, figure, text), rows in find_contradictions(table):
        table = table.with_columns(pl.when(~is_impossible.fill_null(value=False)).then(column).alias(column))
        notes.append(f"impossible, so left out: {figure} of {_list_rows(rows)}, {text}")
    return table, notes


def _list_rules(schema: Mapping[str, pl.DataType]) -> Iterator[Contradiction]:
    """Yield what cannot be in a table of these columns."""
    for column, kind in schema.items():
        if not kind.is_numeric():
            continue
        if column == "roof_share":
            text = "above 100% (cached data, less work, or a wrong roof)"
            yield Contradiction(column, pl.col(column) > TOLERANCE, "share of the roof", text)
        elif column.endswith("share") and column not in _DIFFERENCES:
            text = "above 100% (the whole lacks some of its parts)"
            yield Contradiction(column, pl.col(column) > TOLERANCE, _format_column(column), text)
        elif column.endswith("_pct"):
            text = "a fall by more than 100%"
            yield Contradiction(column, pl.col(column) < -100 * TOLERANCE, _format_column(column), text)
    if {"self_ns", "inclusive_ns"} <= schema.keys():
        text = "longer than the time of all inside"
        yield Contradiction("self_ns", pl.col("self_ns") > pl.col("inclusive_ns"), "self time", text)
    if {"busy_ns", "wall_ns"} <= schema.keys():
        text = "shorter than the kernels (it covers only the host, or is incomplete)"
        is_short = pl.col("busy_ns") > TOLERANCE * pl.col("wall_ns")
        yield Contradiction("wall_ns", is_short, "wall time", text)


def _format_column(column: str) -> str:
    return column.removesuffix("_pct").replace("_", " ")


def _list_rows(rows: pl.DataFrame) -> str:
    """Name the first rows: `lm_head`, `step 3, step 4 and 7 more`."""
    label = next((c for c in _LABELS if c in rows.columns and rows[c].null_count() < rows.height), None)
    if label is None:
        return f"{rows.height} row{'s' * (rows.height > 1)}"
    lead = f"{label} " if rows.schema[label].is_numeric() else ""
    named = ", ".join(f"{lead}{value}" for value in rows[label].drop_nulls().head(_NAMED))
    more = rows.height - min(_NAMED, rows[label].drop_nulls().len())
    return f"{named} and {more} more" if more else named
