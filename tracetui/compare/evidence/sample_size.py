"""Plan a comparison: required recordings, the detectable change, and alpha spending over interim looks.

Also describes why a difference is undecided, and how far equal runs differ.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.frames.statistics import ALPHA, CONFIDENCE
from tracetui.compare import params
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.look import Terms

# Noise floors within which the difference of two equal runs stays
_RUN_DIFFERENCE_SD: Final = 2 * math.sqrt(2)
_VARY_TOO_MUCH: Final = "the steps vary too much"


def estimate_recordings_needed(row: dict[str, Any], sides: Sides, terms: Terms) -> int | None:
    """Estimate how many more recordings per side decide a row of phase totals, with a power of 80 %.

    They show either the change that is seen now or that there is none that matters. None if more than
    `MAX_RUNS_PER_SIDE` would be needed, or if the row has no interval.
    """
    a, b, low, high = (row[c] for c in ("a_ns", "b_ns", "low_ns", "high_ns"))
    if not a or not b or low is None or high is None or low >= high or a + low <= 0:
        return None
    shift = abs(math.log(b / a))
    present = 1 + len(sides.more_a), 1 + len(sides.more_b)
    alpha = ALPHA * terms.share if sides.has_repeats else ALPHA
    df = sum(present) - 2 + max(0, len(sides.same) - 1) if sides.has_repeats else sides.floor.freedom
    error = _compute_standard_error(math.log((a + high) / (a + low)), df, alpha)
    run_sd = error / math.sqrt(1 / present[0] + 1 / present[1])
    for runs in range(max(*present, 2), params.MAX_RUNS_PER_SIDE + 1):
        if _is_decisive(shift, run_sd * math.sqrt(2 / runs), 2 * runs - 2, alpha, terms.threshold):
            return max(1, runs - min(present))
    return None


def _compute_standard_error(width: float, df: float, alpha: float) -> float:
    """Compute the standard error of a log shift from the width of its interval on the log scale."""
    from scipy.special import stdtrit

    return width / 2 / float(stdtrit(max(1.0, min(df, params.MAX_DF)), 1 - alpha / 2))


def _is_decisive(shift: float, error: float, df: int, alpha: float, least_change: float) -> bool:
    """True if a shift with this standard error is likely to be decided, as changed or as the same."""
    from scipy.special import ndtri, stdtrit

    critical, reserve = stdtrit(df, 1 - alpha / 2), ndtri(params.POWER)
    threshold = math.log1p(least_change)
    is_changed = shift >= threshold and shift / error - reserve >= critical
    return bool(is_changed or shift + (critical + reserve) * error <= threshold)


def compute_required_runs(effect: float, spread: float, alpha: float) -> int | None:
    """Compute how many runs per side show a relative effect with a power of 80 %.

    `spread` is the run-to-run SD as a share. None: more than `MAX_RUNS_PER_SIDE`.
    """
    from scipy.special import ndtri, stdtrit

    for n in range(2, params.MAX_RUNS_PER_SIDE + 1):
        z = abs(np.log1p(effect)) / (np.log1p(spread) * np.sqrt(2 / n)) if spread > 0 else np.inf
        if z - ndtri(params.POWER) >= stdtrit(2 * n - 2, 1 - alpha / 2):
            return n
    return None


def compute_detectable_change(spread: float, df: float, runs: int) -> float:
    """Compute the smallest significant change, as a share, of so many runs per side.

    Single runs are compared with a spread of `df` degrees of freedom; several estimate it themselves.
    """
    from scipy.special import stdtrit

    own_df = df if runs == 1 else 2 * runs - 2
    finite_df = own_df if math.isfinite(own_df) else params.MAX_DF
    return float(np.expm1(stdtrit(finite_df, (1 + CONFIDENCE) / 2) * spread * math.sqrt(2 / runs)))


@dataclass
class AlphaSpending:
    """The significance level spent on interim looks of a comparison whose recordings grow.

    Stopping at the first difference errs more often than a single look, so all looks share alpha. How much
    may be spent depends on the share of the budget that has passed (Pocock's function in the form of Lan and
    DeMets, Biometrika 70, 1983). The correlation of the looks is ignored, so the total stays below alpha.
    """

    spent: float = 0.0  # share of alpha

    def spend(self, passed: float) -> float:
        """Spend and return the share of alpha for a look at this share of the budget; 1.0: the last look."""
        share = compute_cumulative_share(passed) - self.spent
        self.spent += share
        return share


def compute_cumulative_share(passed: float) -> float:
    """Compute the share of alpha that may be spent once this share of the budget has passed."""
    return math.log1p((math.e - 1) * min(1.0, max(0.0, passed)))


def measure_longest_recording(runs: Iterable[Run]) -> float | None:
    """Measure the seconds of the longest of the recordings; None if no run has timestamps."""
    lengths = [length for run in runs if (length := _measure_recording(run)) is not None]
    return max(lengths, default=None)


def _measure_recording(run: Run) -> float | None:
    if not run.has("t"):
        return None
    end = pl.col("t") + (pl.col("dur").fill_null(0) if run.has("dur") else 0)
    low, high = run.events.select(pl.col("t").min().alias("low"), end.max().alias("high")).row(0)
    return None if low is None else float((high - low) / 1e9)


def format_requirement(more: int | None, seconds: float | None) -> str:
    """Format the recordings needed as a clause: `record 3 more per side, about 40 s each, to decide`."""
    if more is None:
        limit = params.MAX_RUNS_PER_SIDE
        return f"more than {limit} recordings per side, or a quieter machine, would be needed"
    wait = f", about {format_wait(seconds)} each," if seconds else ""
    return f"record {more} more per side{wait} to decide"


def format_wait(seconds: float) -> str:
    """Format a time that the user waits: 40 s, 3 min."""
    minutes = seconds / 60
    return f"{max(1, round(seconds))} s" if minutes < 2 else f"{round(minutes)} min"


def describe_uncertainty(row: dict[str, Any], sides: Sides, terms: Terms) -> str:
    """Describe from which change on the samples show it, beside the change that is seen."""
    if row["low_ns"] is None or row["a_ns"] + row["low_ns"] <= 0:
        return _VARY_TOO_MUCH
    change = f"this is {row['b_ns'] / row['a_ns'] - 1:+.1%}"
    shift = math.log(row["b_ns"] / row["a_ns"])
    floor = select_floor(row, sides)
    if not sides.has_repeats and abs(shift) <= _RUN_DIFFERENCE_SD * floor.spread:
        differ = "differ" if floor.is_known else "are assumed to differ"
        return f"equal runs {differ} by up to {format_floor_limit(floor)}; {change}"
    if row["low_ns"] > 0 or row["high_ns"] < 0:
        return f"{change}, and may be less than the threshold of {100 * terms.threshold:.2g}%"
    needed = math.log((row["a_ns"] + row["high_ns"]) / (row["a_ns"] + row["low_ns"])) / 2
    if abs(shift) >= needed or needed > math.log1p(params.LARGEST_CHANGE_PCT / 100):
        return "the runs of one side differ too much" if sides.has_repeats else _VARY_TOO_MUCH
    samples = (
        f"{1 + len(sides.more_a)} and {1 + len(sides.more_b)} runs" if sides.has_repeats else "these steps"
    )
    return f"{samples} show a change from {math.expm1(math.copysign(needed, shift)):+.0%} on; {change}"


def select_floor(row: Mapping[str, Any], sides: Sides) -> NoiseFloor:
    """Select the floor by which a phase was judged: that of the sides, or the one beside other programs."""
    return sides.floor if row["floor"] in (None, sides.floor.spread) else NoiseFloor(row["floor"])


def format_floor_limit(floor: NoiseFloor) -> str:
    """Format by how much two equal runs differ at most: `±15% (floor 5%)`, `a factor of 7.2 (floor 70%)`."""
    ratio = math.exp(_RUN_DIFFERENCE_SD * floor.spread)
    limit = f"±{ratio - 1:.0%}" if ratio < 2 else f"a factor of {ratio:.2g}"
    return f"{limit} (floor {floor.percent})"
