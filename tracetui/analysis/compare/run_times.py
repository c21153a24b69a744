"""The step time of whole runs, one number each, and what their spread lets a comparison tell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.compare.phase_totals import GAP, phase_totals
from tracetui.analysis.statistics import LEVEL
from tracetui.look import Look


@dataclass(frozen=True)
class RunTimes:
    """What a step of one phase takes in each of several runs."""

    phase: str | None
    per: str  # token, step, or run where no steps are known
    times: tuple[float, ...]  # in ns, the median of a run's steps


def run_times(runs: Sequence[Run]) -> RunTimes | None:
    """Return the times of the phase that takes longest, those in which others had the processor left out.

    Wall time where it is known, else that of the kernels; None where the runs have no timed phase in common.
    """
    tables = [phase_totals(run, run, Look()).filter(pl.col("what") != GAP) for run in runs]
    whole = pl.col("a_ns") * pl.col("steps").clip(1)
    for row in tables[0].sort(whole, descending=True, maintain_order=True).iter_rows(named=True):
        alike = [pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in ("phase", "what", "per")]
        found = [table.filter(*alike)["a_ns"].to_list() for table in tables]
        if all(found):
            return RunTimes(row["phase"], row["per"], tuple(times[0] for times in found))
    return None


def told_by(spread: float, freedom: float, runs: int) -> float:
    """Return the smallest change, as a share, that so many runs a side tell from what runs of the same do.

    One run a side is read against a spread of these degrees of freedom; several have a spread of their own.
    """
    from scipy.special import stdtrit

    own = freedom if runs == 1 else 2 * runs - 2
    degrees = own if math.isfinite(own) else 1e6
    return float(np.expm1(stdtrit(degrees, (1 + LEVEL) / 2) * spread * math.sqrt(2 / runs)))
