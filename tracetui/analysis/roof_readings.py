"""The roof of the time in which a run was made: how fast memory was read in the pauses between its steps."""

from dataclasses import replace
from typing import Final

import polars as pl

from capture import roofs
from capture.roofs import Roof
from capture.run import Run
from tracetui import units
from tracetui.analysis import select, steps

SWING: Final = 1.2  # from the slowest reading to the fastest: beyond it the host itself is said to swing


def readings(run: Run) -> pl.DataFrame:
    """Return when memory was read beside a run, and its bytes a second, in order of time."""
    empty = pl.DataFrame(schema={"t": pl.Int64, "value": pl.Float64})
    if not run.has("value") or not run.has("name"):
        return empty
    counters = select.of_kind(run, "counter", ("t", "name", "value"))
    own = counters.filter(pl.col("name").cast(pl.String) == roofs.READING, pl.col("value") > 0)
    return own.select("t", "value").drop_nulls().sort("t")


def of_its_time(run: Run, roof: Roof) -> Roof:
    """Return the roof with the memory's speed at each step in place of the one at the start.

    Every step reads the same weights, so that the time of all of them at best is the sum of what each takes
    at the speed of its own time: their harmonic mean.
    """
    read = readings(run)
    if read.is_empty():
        return roof
    begun = steps.marks(run)["t"].drop_nulls()
    places = (read["t"].search_sorted(begun, side="right").cast(pl.Int64) - 1).clip(0)
    rates = read["value"].gather(places) if len(begun) else read["value"]
    mean = len(rates) / float((1 / rates).sum())
    ordered = sorted(rates)
    return replace(
        roof,
        source=roofs.BESIDE,
        read_bytes_per_s=mean,
        copy_bytes_per_s=0.0,
        read_low=ordered[0],
        read_high=ordered[-1],
    )


def swing(roof: Roof) -> str:
    """Return a sentence on a host whose memory was not equally fast throughout; empty where it was."""
    if not roof.read_low or roof.read_high <= SWING * roof.read_low:
        return ""
    low, high = (units.giga(rate / 1e9) for rate in (roof.read_low, roof.read_high))
    return f"the host swung: memory was read at {low} to {high} GB/s; compare shares of the roof, not times"
