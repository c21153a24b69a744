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
    """Return what ran in the window; None where nothing on a timeline fits the look."""
    rows = _rows(run, look)
    whole = _extent(rows)
    if whole is None:
        return None
    low, high = look.zoom or whole
    high = max(high, low + 1)
    inside = rows.filter((pl.col("t") < high) & (pl.col("end") >= low))
    seen = inside.select(
        "lane", "kind", "name", a=pl.col("t").clip(low, high), b=pl.col("end").clip(low, high)
    )
    placed = seen.collect()
    if not placed["a"].is_sorted():
        placed = placed.sort("a", maintain_order=True)
    return Timeline(
        lanes=_named(_lanes(placed, high - low)),
        cells=_named(_cells(placed.lazy(), low, high)),
        names=_named(_names(placed, high - low)),
        window=(low, high),
        whole=whole,
    )


def _rows(run: Run, look: Look) -> pl.LazyFrame:
    """Return everything with a start and a duration, each in the lane of its track, its lens, or its kind."""
    rows = run.events.lazy().filter(
        pl.col("kind").is_in(list(_KINDS)) & pl.col("t").is_not_null() & pl.col("dur").is_not_null()
    )
    if look.lens is not None and run.has("lens"):
        rows = rows.filter((pl.col("lens") == look.lens) | (pl.col("kind") == "step"))
    lane = pl.coalesce(*select.have(run, ("track", "lens")), "kind")
    lane = pl.when(pl.col("kind") == "step").then("kind").otherwise(lane)
    rows = select.narrowed(rows, run, look)
    return rows.select("kind", "name", "t", end=pl.col("t") + pl.col("dur"), lane=lane)


def _extent(rows: pl.LazyFrame) -> tuple[int, int] | None:
    low, high = rows.select(pl.col("t").min(), pl.col("end").max()).collect().row(0)
    return None if low is None else (low, high)


def _named(table: pl.DataFrame) -> pl.DataFrame:
    """Return lanes by their names, steps above spans above kernels."""
    kind = pl.col("kind").cast(pl.String)
    table = table.with_columns(pl.col("lane").cast(pl.String), kind).sort(
        kind.replace_strict({k: i for i, k in enumerate(_KINDS)}, return_dtype=pl.Int8),
        "lane",
        maintain_order=True,
    )
    return table.with_columns(lane=pl.when(pl.col("kind") == "step").then(pl.lit("steps")).otherwise("lane"))


def _lanes(placed: pl.DataFrame, window: int) -> pl.DataFrame:
    """Return one row a lane, with the part of the window in which it was busy."""
    lanes = placed.select("lane", "kind", "a", "b").partition_by("lane", "kind", as_dict=True)
    rows = [
        (*lane, own.height, busy := _union(own["a"], own["b"]), busy / window, own["a"].min(), own["b"].max())
        for lane, own in lanes.items()
    ]
    names = ("lane", "kind", "count", "busy_ns", "busy_share", "first_ns", "last_ns")
    return pl.DataFrame(rows, schema=names, orient="row")


def _union(starts: pl.Series, ends: pl.Series) -> int:
    """Return the time covered by intervals in the order of their starts: what overlaps counts once."""
    before = ends.cum_max().shift(1, fill_value=starts[0])
    covered = pl.select(pl.max_horizontal(starts, before)).to_series()
    return int((ends - covered).clip(lower_bound=0).sum())


def _cells(seen: pl.LazyFrame, low: int, high: int) -> pl.DataFrame:
    """Return how busy each cell of each lane is; only rows longer than a cell are spread over several."""
    width = (high - low) / CELLS
    first, last = (((pl.col(c) - low) / width).floor().cast(pl.Int32).clip(0, CELLS - 1) for c in ("a", "b"))
    placed = seen.select("lane", "kind", "a", "b", first=first, last=last)
    short = placed.filter(pl.col("first") == pl.col("last")).select(
        "lane", "kind", cell="first", busy=(pl.col("b") - pl.col("a")).cast(pl.Float64)
    )
    left = low + pl.col("cell") * width
    spread = (
        placed.filter(pl.col("first") < pl.col("last"))
        .with_columns(cell=pl.int_ranges("first", pl.col("last") + 1, dtype=pl.Int32))
        .explode("cell")
        .select(
            "lane", "kind", "cell", busy=pl.min_horizontal("b", left + width) - pl.max_horizontal("a", left)
        )
    )
    busy = (pl.col("busy").sum() / width).clip(0, 1)
    both = pl.concat(
        [part.group_by("lane", "kind", "cell").agg(pl.col("busy").sum()) for part in (short, spread)]
    )
    return both.group_by("lane", "kind", "cell").agg(busy).sort("cell").collect()


def _names(placed: pl.DataFrame, window: int) -> pl.DataFrame:
    """Return rows that are long enough to hold a name on the widest screen."""
    long = (pl.col("b") - pl.col("a")) * CELLS >= NAMED * window
    return placed.filter(long).sort("a", "name").select("lane", "kind", "a", "b", "name")
