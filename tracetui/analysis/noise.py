"""How much identical runs of one machine differ, so that no difference below that is believed."""

from collections.abc import Sequence
from itertools import combinations

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui.analysis.align import steps


def noise(runs: Sequence[Run]) -> float:
    """The largest difference between any two runs' median step, as a share of the smaller."""
    medians = [m for m in map(_median_step, runs) if m]
    if len(medians) < 2:
        raise UsageError("noise needs two or more repeated runs with steps", todo="--aa A1 A2 A3")
    return max(abs(x - y) / min(x, y) for x, y in combinations(medians, 2))


def _median_step(run: Run) -> float:
    """The median kernel time per token; where a run has no steps, its whole kernel time."""
    table = steps(run, None)
    per_token = table.select((pl.col("total") / pl.col("tokens")).median()).item() if table.height else None
    if per_token is not None:
        return float(per_token)
    return float(run.events.filter(pl.col("kind") == "kernel")["dur"].sum()) if run.has("dur") else 0.0
