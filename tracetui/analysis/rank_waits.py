"""Collectives in which a rank mostly waits for a slower one: all begin only when the last has come."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import device_time, gpu_time, select

MOSTLY: Final = 0.5  # of a collective is over before the last rank comes to it

_FOUND: Final = {device_time.DEVICE: pl.Categorical(), "t": pl.Int64(), "dur": pl.Int64()}


@select.once
def waiting(run: Run) -> pl.DataFrame:
    """Return the collectives (`device`, `t`, `dur`) that are for the most part a wait for another rank.

    The k-th collective of a name on one rank is the k-th on all; where the ranks do not have as many of a
    name, nothing is claimed of it.
    """
    ranks = set(select.rank_tracks(run).values())
    if len(ranks) < 2 or not device_time.watched(run):
        return pl.DataFrame(schema=_FOUND)
    rows = device_time.with_device(run, gpu_time.device_rows(run)).filter(pl.col("class") == gpu_time.COMM)
    table = rows.select(device_time.DEVICE, "name", "t", "dur").sort("t").collect()
    own = [device_time.DEVICE, "name"]
    table = table.with_columns(number=pl.int_range(pl.len()).over(own), of=pl.len().over(own))
    together = ["name", "number"]
    least, most = pl.col("of").min().alias("least"), pl.col("of").max().alias("most")
    groups = table.group_by(together).agg(least, most, members=pl.len(), last=pl.col("t").max())
    complete = groups.filter((pl.col("members") == len(ranks)) & (pl.col("least") == pl.col("most")))
    table = table.join(complete, on=together, nulls_equal=True)
    return table.filter(pl.col("last") - pl.col("t") > MOSTLY * pl.col("dur")).select(*_FOUND)
