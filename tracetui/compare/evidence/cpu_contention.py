"""Find the steps of a run in which other programs used the CPU that the run needed."""

import math
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.frames.ragged import Bools, to_floats
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import list_lenses
from tracetui.analysis.frames.statistics import CONFIDENCE, MIN_SAMPLES, Floats
from tracetui.compare import params

_OWN_COUNTER: Final = "process_cpu_usage"  # 100 % is one core
_HOST_COUNTER: Final = "host_cpu_usage"  # 100 % is all cores
_CORE_COUNTER: Final = "core_usage"  # a track per core


@cache_per_run
def measure_other_load(run: Run) -> pl.DataFrame | None:
    """Measure per step the cores that other programs used; None if not sampled, or if the work is a GPU's.

    Columns: step, own_cores (that the run used), other_cores (all that others used), contended_cores (of
    these, cores that the run needed).
    Others are the whole machine without this process. The run needs as many cores as it has threads, or as
    many as it ever used; it leaves the remaining cores to others.
    """
    if "gpu" in list_lenses(run)[:1] or not all(run.has(c) for c in ("t", "value", "step", "dur", "track")):
        return None
    name = pl.col("name").cast(pl.String)
    counters = pl.col("kind") == "counter", name.is_in([_OWN_COUNTER, _HOST_COUNTER, _CORE_COUNTER])
    samples = run.events.filter(*counters).drop_nulls(["t", "value"]).sort("t")
    samples = samples.select("t", "value", "track", name=name)
    process, host = (samples.filter(pl.col("name") == n) for n in (_OWN_COUNTER, _HOST_COUNTER))
    cores = samples.filter(pl.col("name") == _CORE_COUNTER)["track"].n_unique()
    if process.is_empty() or host.is_empty() or not cores:
        return None
    at, own_pct = to_floats(host["t"]), to_floats(process["value"])
    own_at_pct = np.interp(at, to_floats(process["t"]), own_pct)
    other_pct = cores * to_floats(host["value"]) - own_at_pct
    spare_cores = max(0, cores - max(1, _count_needed_cores(run, own_pct)))
    contended = np.maximum(other_pct / 100 - spare_cores, 0.0)
    steps = run.events.filter(pl.col("kind") == "step").drop_nulls(["step", "t", "dur"])
    begin, end = to_floats(steps["t"]), to_floats(steps["t"] + steps["dur"])
    return steps.select(
        "step",
        own_cores=pl.Series(_average_over_intervals(at, own_at_pct / 100, begin, end)),
        contended_cores=pl.Series(_average_over_intervals(at, contended, begin, end)),
        other_cores=pl.Series(_average_over_intervals(at, other_pct / 100, begin, end)),
    )


def _count_needed_cores(run: Run, own_pct: Floats) -> int:
    """Count the cores that a run needs: its threads, or what it used at most."""
    threads = run.meta.get("threads")
    if isinstance(threads, int):
        return threads
    used = float(np.quantile(own_pct, CONFIDENCE)) / 100
    return math.ceil(used - params.CONTENDED_CORES)


def _average_over_intervals(at: Floats, values: Floats, begin: Floats, end: Floats) -> Floats:
    """Average samples over intervals; each sample covers the time since the one before, 0 outside of all.

    The first sample covers as much time as the second.
    """
    edges = np.concatenate([[2 * at[0] - at[min(1, len(at) - 1)]], at])
    integral = np.concatenate([[0.0], np.cumsum(values * np.diff(edges))])
    inside = np.interp(end, edges, integral) - np.interp(begin, edges, integral)
    return np.asarray(inside / np.maximum(end - begin, 1.0))


def measure_used_cores(run: Run) -> float | None:
    """Measure the cores that a run used in its median step beside no other program; None for few samples."""
    load = measure_other_load(run)
    if load is None:
        return None
    name, steps = pl.col("name").cast(pl.String), run.events.filter(pl.col("kind") == "step")
    samples = run.events.filter(pl.col("kind") == "counter", name == _OWN_COUNTER)["t"]
    inside = samples.is_between(steps["t"].min(), (steps["t"] + steps["dur"]).max()).sum()
    free = load.filter(pl.col("contended_cores") < params.CONTENDED_CORES)["own_cores"]
    is_known = min(inside, free.len()) >= MIN_SAMPLES
    return float(free.median()) if is_known else None  # type: ignore[arg-type]


def is_contended(run: Run, steps: pl.Series) -> Bools:
    """Mark the steps in which other programs used cores that the run needed; none if that is unknown."""
    load = measure_other_load(run)
    if load is None:
        return np.zeros(len(steps), dtype=bool)
    joined = steps.to_frame("step").join(load.unique("step"), on="step", how="left", maintain_order="left")
    return (joined["contended_cores"].fill_null(0.0) >= params.CONTENDED_CORES).to_numpy()


def describe_excluded_steps(run: Run, steps: pl.Series, side: str) -> str:
    """Describe how many of a side's steps are contended, and how much CPU others used; empty if none is."""
    contended, load = is_contended(run, steps), measure_other_load(run)
    if load is None or not contended.any():
        return ""
    cores = max(1, run.events.filter(pl.col("name").cast(pl.String) == _CORE_COUNTER)["track"].n_unique())
    in_contended = pl.col("step").is_in(steps.filter(pl.Series(contended)).implode())
    share = float(load.filter(in_contended)["other_cores"].mean()) / cores  # type: ignore[arg-type]
    cpu = "core" if cores == 1 else f"{cores} cores"
    count = f"{contended.sum()} of {len(contended)} steps of {side} excluded"
    return f"{count}: other programs used {share:.0%} of the {cpu}"


def is_mostly_contended(run: Run) -> bool:
    """True if other programs used cores that the run needed in its median step."""
    load = measure_other_load(run)
    if load is None or load.is_empty():
        return False
    return float(load["contended_cores"].median()) >= params.CONTENDED_CORES  # type: ignore[arg-type]
