"""The machine beside a run: in which steps other programs had a part of its processors."""

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


@once
def other_load(run: Run) -> pl.DataFrame | None:
    """Return step, others: processors that this program wanted and other programs had meanwhile.

    None where that was not sampled, or the work is a GPU's. A program of fewer threads than processors leaves
    some to others.
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
    at = _floats(host["t"])
    others = cores * _floats(host["value"]) - np.interp(at, _floats(own["t"]), _floats(own["value"]))
    threads = run.meta.get("threads")
    spare = max(0, cores - threads) if isinstance(threads, int) else 0
    wanted = np.maximum(others / 100 - spare, 0.0)
    steps = run.events.filter(pl.col("kind") == "step").drop_nulls(["step", "t", "dur"])
    middle = _floats(steps["t"] + steps["dur"] // 2)
    return steps.select("step").with_columns(others=pl.Series(np.interp(middle, at, wanted)))


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
