"""The machine beside a run: in which steps other programs had a part of its processors."""

import math
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.select import lenses, once
from tracetui.analysis.statistics import Floats

BUSY: Final = 0.2  # processors that others had, from which a step is not one of this program alone

_OWN: Final = "process_cpu_usage"  # 100 % is one processor
_ALL: Final = "host_cpu_usage"  # 100 % is all of them
_CORES: Final = "core_usage"
MOST: Final = 0.95  # of the samples of its own use, below which is what a program wants
ROUNDING: Final = 0.1  # of a processor: less beyond a whole number is no further thread


@once
def other_load(run: Run) -> pl.DataFrame | None:
    """Return step, others, had: processors that this program wanted and others had meanwhile, and all that
    they had.

    None where that was not sampled, or the work is a GPU's. Others are the whole machine without this
    program. It wants as many processors as it has threads, or used at most; those beyond it leaves to others.
    A sample covers the time since the one before; a step has the mean over its time, zero where nothing was
    sampled.
    """
    if "gpu" in lenses(run)[:1] or not all(run.has(c) for c in ("t", "value", "step", "dur", "track")):
        return None
    named = pl.col("name").cast(pl.String)
    samples = run.events.filter(pl.col("kind") == "counter", named.is_in([_OWN, _ALL, _CORES]))
    samples = samples.drop_nulls(["t", "value"]).sort("t").select("t", "value", name=named, track="track")
    own, host = (samples.filter(pl.col("name") == n) for n in (_OWN, _ALL))
    cores = samples.filter(pl.col("name") == _CORES)["track"].n_unique()
    if own.is_empty() or host.is_empty() or not cores:
        return None
    at, used = _floats(host["t"]), _floats(own["value"])
    others = cores * _floats(host["value"]) - np.interp(at, _floats(own["t"]), used)
    threads = run.meta.get("threads")
    wants = (
        threads if isinstance(threads, int) else math.ceil(float(np.quantile(used, MOST)) / 100 - ROUNDING)
    )
    wanted = np.maximum(others / 100 - max(0, cores - max(1, wants)), 0.0)
    steps = run.events.filter(pl.col("kind") == "step").drop_nulls(["step", "t", "dur"])
    begin, end = _floats(steps["t"]), _floats(steps["t"] + steps["dur"])
    means = {"others": _means(at, wanted, begin, end), "had": _means(at, others / 100, begin, end)}
    return steps.select("step", **{name: pl.Series(mean) for name, mean in means.items()})


def _means(at: Floats, values: Floats, begin: Floats, end: Floats) -> Floats:
    """Return the mean from begin to end of values that each hold since the one before, the first for as long
    as the second.
    """
    edges = np.concatenate([[2 * at[0] - at[min(1, len(at) - 1)]], at])
    sums = np.concatenate([[0.0], np.cumsum(values * np.diff(edges))])
    over = np.interp(end, edges, sums) - np.interp(begin, edges, sums)
    return np.asarray(over / np.maximum(end - begin, 1.0))


def taken(run: Run, steps: pl.Series, side: str) -> str:
    """Return how many of a side's steps are left out for what others took, and how much that was, in words;
    empty where none is.
    """
    out, load = busy(run, steps), other_load(run)
    if load is None or not out.any():
        return ""
    cores = max(1, run.events.filter(pl.col("name").cast(pl.String) == _CORES)["track"].n_unique())
    had = load.filter(pl.col("step").is_in(steps.filter(pl.Series(out)).implode()))["had"].mean()
    share = float(had) / cores  # type: ignore[arg-type]
    what = "processor was" if cores == 1 else f"{cores} processors were"
    return f"{out.sum()} of {len(out)} steps of {side} left out: the {what} {share:.0%} taken by others"


def busy(run: Run, steps: pl.Series) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Tell in which of the steps other programs had processors; in none where that is not known."""
    load = other_load(run)
    if load is None:
        return np.zeros(len(steps), dtype=bool)
    found = steps.to_frame("step").join(load.unique("step"), on="step", how="left", maintain_order="left")
    return (found["others"].fill_null(0.0) >= BUSY).to_numpy()


def load_words(run: Run) -> str:
    """Return how many processors others had in the middle step; empty where that is little or not known."""
    load = other_load(run)
    if load is None or load.is_empty():
        return ""
    middle = float(load["others"].median())  # type: ignore[arg-type]
    return f"others had {middle:.1f} processors in its middle step" if middle >= BUSY else ""


def _floats(values: pl.Series) -> Floats:
    return values.cast(pl.Float64).to_numpy()
