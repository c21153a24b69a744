"""Courses: how the time of each group goes over the steps of a run, in a few cells."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select, steps

TREND_CELLS: Final = 48
FEW: Final = 1 << 17  # rows that are sooner added up at once than cell by cell


def trends(run: Run, rows: pl.LazyFrame, group: str, width: int = TREND_CELLS) -> pl.DataFrame:
    """Return group → its time per step (per token where known) in a few cells; a gap is null."""
    return courses(run, *in_numbered_steps(rows, group), group, width)


def in_numbered_steps(rows: pl.LazyFrame, group: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return the group, step and time of the rows in steps, and which steps these are, in order."""
    timed = rows.filter(pl.col("step").is_not_null()).select(group, "step", "dur").collect()
    step = timed["step"]
    return timed, step.filter(select.changes(step)).unique().sort()


def courses(
    run: Run, timed: pl.DataFrame, numbers: pl.Series, group: str, width: int = TREND_CELLS
) -> pl.DataFrame:
    """Return group → its time per step of rows in some steps, in a few cells."""
    cells = _cells(run, numbers, width)
    if cells.is_empty():
        return pl.DataFrame(schema={group: timed.schema[group], "trend": pl.List(pl.Float64)})
    count = int(cells["place"].max()) + 1  # type: ignore[arg-type]
    table = timed.select(pl.col(group).unique()).with_row_index("row")
    found = _cell_sums(timed, cells, group).join(table, on=group, nulls_equal=True)
    places = found["row"].cast(pl.Int64) * count + found["place"]
    every = pl.repeat(None, table.height * count, dtype=pl.Float64, eager=True)
    every = every.scatter(places, found["each"])
    return table.select(group, trend=every.reshape((table.height, count)).arr.to_list())


def _cell_sums(timed: pl.DataFrame, cells: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return group, place → `each`, the time in a cell over its weight: of few rows at once, else cell by
    cell, since small tables of groups are fast ones.
    """
    placed = timed.join(cells, on="step", maintain_order="left")
    each = (pl.col("dur").sum() / pl.col("weight").first()).alias("each")
    if placed.height <= FEW:
        return placed.group_by(group, "place").agg(each)
    if not placed["place"].is_sorted():
        placed = placed.sort("place", maintain_order=True)
    return pl.concat(part.group_by(group).agg(pl.col("place").first(), each) for part in _stretches(placed))


def _stretches(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each cell, which stand together: small tables of groups are fast ones."""
    start = 0
    for length in rows["place"].rle().struct.field("len"):
        yield rows.slice(start, length)
        start += length


def _cells(run: Run, numbers: pl.Series, width: int) -> pl.DataFrame:
    """Return step → the place of its cell in a trend, and the cell's weight: tokens, else steps.

    A prefill in front of a decode would flatten everything after it: it is left out.
    """
    marks = steps.marks(run)
    if numbers.len() < marks.height:
        marks = marks.filter(pl.col("step").is_in(numbers.implode()))
    decode = (marks["phase"] == "decode").sum()
    chosen = marks.filter(pl.col("phase") == "decode") if 0 < decode < marks.height else marks
    weight = pl.col("tokens" if (chosen["tokens"] > 0).sum() == chosen.height else "steps")
    cell, weight = steps.cells(chosen, width).alias("cell"), weight.cast(pl.Float64)
    return chosen.select_seq(
        "step",
        weight=weight.sum().over(cell),
        place=cell.rank("dense").cast(pl.Int64) - 1,
    )
