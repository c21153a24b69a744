"""Steps out of the launches of graphs, where nothing else marks a step."""

from collections.abc import Sequence
from typing import Final

import polars as pl

GRAPH_LAUNCH: Final = r"^(?:cuda|hip|cu)GraphLaunch"  # how the calls are named that replay a graph
REPLAY: Final = "graph replay"  # how a step of this kind is named
NOTHING_MARKS_A_STEP: Final = "steps are launches of graphs: nothing in this file marks a step"
_LEAST: Final = 2  # steps
_EMPTY: Final = {"step": pl.Int64(), "t": pl.Int64(), "dur": pl.Int64()}


def steps_of_replays(launches: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return step, t, dur of the steps that launches (t, key) open, by their kernels.

    Kernels have key, name (a number), t and dur. A step is one launch where all replay the same kernels,
    and as many launches as go by until the same graphs come again where a step has several; it ends where
    the next begins, the last one with its last kernel. Empty where the launches do not repeat.
    """
    end = (pl.col("t") + pl.col("dur")).max()
    graphs = kernels.sort("t").group_by("key", maintain_order=True).agg(names=pl.col("name"), end=end)
    replays = launches.join(graphs, on="key", how="inner").sort("t")
    period = cycle([hash(tuple(names)) for names in replays["names"]])
    if not period or replays.height < _LEAST * period:
        return pl.DataFrame(schema=_EMPTY)
    first = replays.gather_every(period)
    ends = first["t"].shift(-1).fill_null(replays["end"].max())
    numbers = range(1, first.height + 1)
    return pl.DataFrame({"step": numbers, "t": first["t"], "dur": ends - first["t"]}, schema=_EMPTY)


def cycle(values: Sequence[int]) -> int:
    """Return after how many values the same ones come again, all along; 0 where they never do."""
    for period in range(1, len(values) // 2 + 1):
        if all(a == b for a, b in zip(values, values[period:], strict=False)):
            return period
    return 0
