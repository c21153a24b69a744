"""The timeline: lanes of work between two moments, at the resolution of a screen."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look

CELLS: Final = 480  # finer than any screen; a drawing squeezes them
NAMED: Final = 5  # cells that a name needs at least

_KINDS: Final = ("step", "span", "kernel")


@dataclass(frozen=True, eq=False)
class Timeline:
    """Lanes, their cells and the rows long enough to be named."""

    lanes: pl.DataFrame  # lane, kind, count, busy_ns, busy_share, first_ns, last_ns
    cells: pl.DataFrame  # lane, kind, cell, busy (fraction of the cell, 1 when rows overlap)
    names: pl.DataFrame  # lane, kind, a, b, name: start and end within the window
    window: tuple[int, int]  # of the look, within
    whole: tuple[int, int]


def timeline(run: Run, look: Look) -> Timeline | None:
    """What ran in the window; None where nothing on a timeline fits the look."""
    rows = _rows(run, look)
    whole = _extent(rows)
    if whole is None:
        return None
    low, high = look.zoom or whole
    high = max(high, low + 1)
    seen = rows.filter((pl.col("t") < high) & (pl.col("t") + pl.col("dur") >= low)).with_columns(
        a=pl.col("t").clip(low, high), b=(pl.col("t") + pl.col("dur")).clip(low, high)
    )
    return Timeline(
        _lanes(seen, high - low), _cells(seen, low, high), _names(seen, high - low), (low, high), whole
    )


def _rows(run: Run, look: Look) -> pl.LazyFrame:
    """Everything with a start and a duration, each in the lane of its track (or its lens, or its kind)."""
    rows = run.events.lazy().filter(
        pl.col("kind").is_in(list(_KINDS)) & pl.col("t").is_not_null() & pl.col("dur").is_not_null()
    )
    if look.lens is not None and run.has("lens"):
        rows = rows.filter((pl.col("lens") == look.lens) | (pl.col("kind") == "step"))
    names = [pl.col(c).cast(pl.String) for c in ("track", "lens") if run.has(c)]
    kind = pl.col("kind").cast(pl.String)
    lane = pl.when(kind == "step").then(pl.lit("steps")).otherwise(pl.coalesce(*names, kind))
    return select.narrowed(rows, run, look).select("kind", "name", "t", "dur", lane=lane)


def _extent(rows: pl.LazyFrame) -> tuple[int, int] | None:
    low, high = (
        rows.select(pl.col("t").min(), (pl.col("t") + pl.col("dur")).max().alias("end")).collect().row(0)
    )
    return None if low is None else (low, high)


def _lanes(seen: pl.LazyFrame, window: int) -> pl.DataFrame:
    """Busy time is the union of a lane's rows: what overlaps counts once."""
    before = pl.col("b").cum_max().shift(1).over("lane", "kind", order_by="a")
    fresh = (pl.col("b") - pl.max_horizontal("a", before)).clip(lower_bound=0)
    order = (
        pl.col("kind")
        .cast(pl.String)
        .replace_strict({k: i for i, k in enumerate(_KINDS)}, return_dtype=pl.Int8)
    )
    table = (
        seen.with_columns(fresh=fresh)
        .group_by("lane", "kind")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("fresh").sum().alias("busy_ns"),
            pl.col("t").min().alias("first_ns"),
            (pl.col("t") + pl.col("dur")).max().alias("last_ns"),
        )
        .sort(order, "lane")
        .with_columns(busy_share=pl.col("busy_ns") / window)
    )
    return table.select("lane", "kind", "count", "busy_ns", "busy_share", "first_ns", "last_ns").collect()


def _cells(seen: pl.LazyFrame, low: int, high: int) -> pl.DataFrame:
    """How busy each cell of each lane is; only rows longer than a cell are spread over several."""
    width = (high - low) / CELLS
    first, last = (((pl.col(c) - low) / width).floor().cast(pl.Int32).clip(0, CELLS - 1) for c in ("a", "b"))
    placed = seen.select("lane", "kind", "a", "b", first=first, last=last)
    short = placed.filter(pl.col("first") == pl.col("last")).select(
        "lane", "kind", cell="first", busy=pl.col("b") - pl.col("a")
    )
    cell = pl.col("cell")
    left, right = low + cell * width, low + (cell + 1) * width
    long = (
        placed.filter(pl.col("first") < pl.col("last"))
        .with_columns(cell=pl.int_ranges("first", pl.col("last") + 1))
        .explode("cell")
        .select(
            "lane", "kind", pl.col("cell").cast(pl.Int32),
            busy=(pl.min_horizontal(pl.col("b"), right) - pl.max_horizontal(pl.col("a"), left)),
        )
    )  # fmt: skip
    both = pl.concat([short.with_columns(pl.col("busy").cast(pl.Float64)), long])
    return (
        both.group_by("lane", "kind", "cell")
        .agg((pl.col("busy").sum() / width).clip(0, 1).alias("busy"))
        .sort("lane", "kind", "cell")
        .collect()
    )


def _names(seen: pl.LazyFrame, window: int) -> pl.DataFrame:
    """Rows that are long enough to hold a name on the widest screen."""
    long = (pl.col("b") - pl.col("a")) * CELLS >= NAMED * window
    return seen.filter(long).sort("a", "name").select("lane", "kind", "a", "b", "name").collect()
