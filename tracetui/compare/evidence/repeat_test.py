"""Test repeated runs per side: the run is the sample, so what happens in a single run is no difference.

Each run gives one value per row: the log of its time, the median over the steps that all runs have. The
difference of the sides is compared with the spread of these values between runs of one side.
Rows are judged within their steps (`step_contrast`), the step itself by its times. Identical runs show the
noise floor by which a single run per side is judged.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capture.run import Run
from tracetui.analysis.frames.ragged import Bools, Ints
from tracetui.analysis.frames.selection import list_lenses, list_phases
from tracetui.analysis.frames.statistics import (
    ALPHA,
    MIN_SAMPLES,
    Floats,
    RowEvidence,
    adjust_benjamini_hochberg,
    adjust_holm,
    compute_cliffs_delta,
)
from tracetui.compare import params
from tracetui.compare.evidence import cpu_contention
from tracetui.compare.evidence.step_contrast import (
    RowShifts,
    compute_contrasts,
    compute_known_medians,
    compute_medians_of_others,
    estimate_row_shifts,
    shrink_variances,
)
from tracetui.compare.pairing.step_times import (
    StepTimes,
    align_steps,
    build_step_times,
    tabulate_per_launch,
    tabulate_per_step,
)
from tracetui.compare.run_sides import NoiseFloor, Sides, find_distinct
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class LogLevels:
    """Log times of rows and runs; NaN if a run lacks the row."""

    level: Floats  # rows × runs
    typical: Floats  # rows: median over the steps of the mean run
    step_offset: Floats  # rows × runs × steps, relative to the level
    weight: Floats  # rows: share of the time


@dataclass(frozen=True, eq=False)
class RepeatEvidence:
    """The evidence between two sides, and the run-to-run spread that it rests on."""

    evidence: RowEvidence
    spread: Floats  # per row: SD between runs of one side, as a share of the time
    is_relative: bool  # rows were judged relative to the others of their run
    typical_spread: float  # mean of `spread`, weighted by time
    typical_time_spread: float  # the same before the common mode was removed


def judge_repeats(
    times: Floats,
    groups: Ints,
    *,
    alpha: float = ALPHA,
    contended: Bools | None = None,
) -> RepeatEvidence:
    """Judge rows × runs × steps of time; `groups` assigns each run to a (0), b (1) or neither (2).

    A machine slows all rows of a step together, so rows are judged by their contrasts within steps. That
    would be wrong if all rows changed, because one that did not would then seem to; so what rows share is
    tested first, with part of alpha, and if it changed, rows are judged by their own times. Rows are
    corrected for multiple testing with weight √(share of the time).
    `contended` marks runs beside which other programs used the CPU.
    """
    logs = compute_log_levels(times)
    evidence, spread = compare_means(logs.level, groups, alpha)
    typical = typical_time = _average_spread(spread, logs.weight)
    weight = np.sqrt(np.nan_to_num(logs.weight)).clip(params.FLOAT_NOISE)
    is_complete = np.asarray(~np.isnan(logs.level).any(axis=1))
    run_sd = params.CONTENDED_RUN_SD if contended is not None and contended.any() else 0.0
    p_of_all = _compute_common_shift_p(logs, groups, is_complete, run_sd)
    is_relative = bool(p_of_all >= params.TOTAL_ALPHA_SHARE * alpha)
    if is_relative:
        rows = np.flatnonzero(is_complete)
        shifts = _estimate_contrast_shifts(logs, rows, groups, weight, alpha)
        evidence = _apply_shifts(evidence, rows, shifts, alpha)
        spread = spread.copy()
        spread[rows] = np.expm1(shifts.spread)
        typical = _average_spread(spread, logs.weight)
    adjusted = adjust_holm(evidence.p, weight)
    if not np.isnan(p_of_all):
        adjusted = np.minimum(1.0, adjusted / (1 - params.TOTAL_ALPHA_SHARE))
    return RepeatEvidence(replace(evidence, p_adjusted=adjusted), spread, is_relative, typical, typical_time)


def _estimate_contrast_shifts(
    logs: LogLevels, rows: Ints, groups: Ints, weight: Floats, alpha: float
) -> RowShifts:
    """Estimate the shifts of the contrasts, leaving rows that evidently changed out of those of others.

    Only rows above the average time are left out, the most evident first: others hardly move a median.
    """
    offset = (logs.step_offset + logs.level[:, :, None] - logs.typical[:, None, None])[rows]
    share = logs.weight[rows].copy()
    is_large = share > share.mean()
    while True:
        contrasts = compute_contrasts(offset, share)
        shifts = estimate_row_shifts(contrasts.contrast, contrasts.pace, groups)
        p = compute_shift_p(shifts)
        is_changed = (adjust_holm(p, weight[rows]) < alpha * (1 - params.TOTAL_ALPHA_SHARE)) & (share > 0)
        is_changed &= is_large
        if not is_changed.any():
            return shifts
        share[np.where(is_changed, p, np.inf).argmin()] = 0.0


def _compute_common_shift_p(logs: LogLevels, groups: Ints, is_complete: Bools, run_sd: float) -> float:
    """Compute p of the shift that the rows share, their weighted median; NaN for too few rows.

    `run_sd` is added to the spread between runs.
    """
    from scipy.special import stdtr

    if is_complete.sum() < params.MIN_ROWS:
        return np.nan
    relative = (logs.level - logs.typical[:, None])[is_complete]
    # of one more row that has no weight, all rows are the others
    with_none = np.vstack([relative, np.zeros(relative.shape[1])])
    medians = compute_medians_of_others(with_none, np.append(logs.weight[is_complete], 0.0))[-1]
    spread, df = _estimate_pooled_sd(medians[None, :], groups)
    left, right = (medians[groups == g] for g in (0, 1))
    shift = abs(right.mean() - left.mean())
    if not shift or not (df[0] and spread[0] + run_sd):
        return 0.0 if shift else 1.0
    sd = np.hypot(spread[0], run_sd)
    error = sd * np.sqrt(1 / len(left) + 1 / len(right))
    total_df = df[0] * (sd / max(spread[0], 1e-9)) ** 4  # Satterthwaite: run_sd is given, not estimated
    return float(2 * stdtr(total_df, -shift / error))


def compute_shift_p(shifts: RowShifts) -> Floats:
    """Compute two-sided p of each shift by Student's t; 1 for a shift of exactly 0."""
    from scipy.special import stdtr

    size = np.abs(shifts.shift)
    t = np.divide(size, shifts.error, out=np.where(size > 0, np.inf, 0.0), where=shifts.error > 0)
    return np.asarray(2 * stdtr(shifts.df, -t))


def _apply_shifts(evidence: RowEvidence, rows: Ints, shifts: RowShifts, alpha: float) -> RowEvidence:
    """Replace the changes of the judged rows by their shifts, around their geometric mean time."""
    from scipy.special import stdtrit

    mean = np.sqrt(evidence.median_a * evidence.median_b)[rows]
    shift, half_width = shifts.shift, shifts.error * stdtrit(shifts.df, 1 - alpha / 2)
    replaced = {
        "median_a": mean * np.exp(-shift / 2),
        "median_b": mean * np.exp(shift / 2),
        "p": compute_shift_p(shifts),
    }
    ends = (("delta", shift), ("low", shift - half_width), ("high", shift + half_width))
    replaced |= {field: 2 * mean * np.sinh(value / 2) for field, value in ends}
    fields = {field: getattr(evidence, field).copy() for field in replaced}
    for field, values in replaced.items():
        fields[field][rows] = values
    return replace(evidence, **fields)


def compute_log_levels(times: Floats) -> LogLevels:
    """Compute one log time per row and run from rows × runs × steps, over the steps that all runs have."""
    log = np.log(np.where(times > 0, times, np.nan))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row that a run lacks has no mean: it stays NaN
        profile = _estimate_step_profile(log)
        typical = compute_known_medians(profile)[:, None]
        offset = log - profile[:, None, :]
        run_offset = compute_known_medians(offset)
        weight = np.exp(typical[:, 0]) / np.nansum(np.exp(typical))
    return LogLevels(typical + run_offset, typical[:, 0], offset - run_offset[:, :, None], weight)


def _estimate_step_profile(log: Floats) -> Floats:
    """Estimate rows × steps: the mean over the runs, corrected for the speed of runs that lack a step."""
    if not np.isnan(log).any():
        return np.asarray(log.mean(axis=1))
    profile = np.nanmean(log, axis=1)
    for _ in range(2):
        run_offset = compute_known_medians(log - profile[:, None, :])
        run_offset -= np.nanmean(run_offset, axis=1, keepdims=True)
        profile = np.nanmean(log - run_offset[:, :, None], axis=1)
    return np.asarray(profile)


def compare_means(values: Floats, groups: Ints, alpha: float = ALPHA) -> tuple[RowEvidence, Floats]:
    """Apply Student's t-test with pooled spread to rows × runs of log times.

    Changes are in ns around the geometric mean of the sides. Also return each row's spread as a share.
    """
    from scipy.special import stdtr, stdtrit

    a, b = (np.where(groups == g, values, np.nan) for g in (0, 1))
    n_a, n_b = int((groups == 0).sum()), int((groups == 1).sum())
    spread, df = _estimate_pooled_sd(values, groups)
    mean_a, mean_b = np.nansum(a, axis=1) / n_a, np.nansum(b, axis=1) / n_b
    has_test = ~np.isnan(values[:, groups < 2]).any(axis=1) & (df > 0)
    shift = np.where(has_test, mean_b - mean_a, np.nan)
    error = spread * np.sqrt(1 / n_a + 1 / n_b)
    t = np.divide(np.abs(shift), error, out=np.where(shift == 0, 0.0, np.inf), where=error > 0)
    p = np.where(has_test, 2 * stdtr(np.maximum(df, 1), -t), np.nan)
    half_width = error * stdtrit(np.maximum(df, 1), 1 - alpha / 2)
    scale = 2 * np.exp((mean_a + mean_b) / 2)
    delta, low, high = (scale * np.sinh(x / 2) for x in (shift, shift - half_width, shift + half_width))
    counts = np.full(len(values), n_a), np.full(len(values), n_b)
    median_a, median_b = (np.where(has_test, np.exp(mean), np.nan) for mean in (mean_a, mean_b))
    cliff = compute_cliffs_delta(values[:, groups == 0], values[:, groups == 1])
    adjusted = adjust_benjamini_hochberg(p)
    evidence = RowEvidence(median_a, median_b, delta, low, high, p, adjusted, cliff, *counts)
    return evidence, np.where(has_test, np.expm1(spread), np.nan)


def _estimate_pooled_sd(values: Floats, groups: Ints) -> tuple[Floats, Floats]:
    """Estimate each row's SD within groups, shrunk towards that of all rows, and its degrees of freedom.

    Few runs estimate an SD badly, and of many rows one has hardly any by chance.
    """
    squares, df = np.zeros(len(values)), np.zeros(len(values))
    for group in np.unique(groups):
        members = values[:, groups == group]
        n = (~np.isnan(members)).sum(axis=1)
        mean = np.divide(np.nansum(members, axis=1), n, out=np.zeros(len(values)), where=n > 0)
        squares += np.nansum((members - mean[:, None]) ** 2, axis=1)
        df += np.maximum(n - 1, 0)
    variance = np.divide(squares, df, out=np.full(len(values), np.nan), where=df > 0)
    shrunk, total_df = shrink_variances(variance, df)
    return np.sqrt(shrunk), total_df


def estimate_run_spread(times: Floats) -> float:
    """Estimate the SD between runs of the same thing (rows × runs × steps) as a share of the time."""
    groups = np.zeros(times.shape[1], dtype=np.int64)
    logs = compute_log_levels(times)
    return _average_spread(_estimate_pooled_sd(logs.level, groups)[0], logs.weight)


def _average_spread(spread: Floats, weight: Floats) -> float:
    """Average the spread of the rows, weighted by their time; NaN if no spread is known."""
    is_known = ~np.isnan(spread) & ~np.isnan(weight)
    return float(np.average(spread[is_known], weights=weight[is_known])) if is_known.any() else np.nan


def find_median_run(totals: Sequence[int]) -> int:
    """Find the index of the median run, which represents its side where a single run is needed."""
    return sorted(range(len(totals)), key=lambda i: (totals[i], i))[(len(totals) - 1) // 2]


def assume_floor(sides: Sides) -> NoiseFloor:
    """Return the floor of the sides; if none is known, that beside other programs if the load is unknown."""
    if sides.floor.is_known or not any(_is_of_unknown_load(run) for run in sides):
        return sides.floor
    return NoiseFloor(params.CONTENDED_RUN_SD)


def _is_of_unknown_load(run: Run) -> bool:
    return list_lenses(run)[:1] == ["host"] and cpu_contention.measure_other_load(run) is None


def measure_floor(runs: Sequence[Run]) -> NoiseFloor | None:
    """Measure the spread of identical runs in the phase that takes longest; None for fewer than two runs."""
    works = [build_step_times(runs[i], Look()) for i in find_distinct(runs)]
    if len(works) < 2:
        return None
    times = _tabulate_runs(works, _find_longest_phase(works))
    usable = [t for t in times if (~np.isnan(t)).any(axis=0).sum() >= min(MIN_SAMPLES, t.shape[1])]
    if len(usable) < 2:
        return None
    spread = estimate_run_spread(np.stack(usable, axis=1))
    return NoiseFloor(spread, len(usable) - 1, f"measured on {len(usable)} runs")


def _find_longest_phase(works: Sequence[StepTimes]) -> str | None:
    """Find the phase that takes longest in the first run; None if the runs have no phase in common."""
    shared = [p for p in list_phases(works[0].run) if all(p in list_phases(w.run) for w in works)]
    return max(shared, key=lambda p: int(works[0].dur[works[0].index_phase(p)].sum()), default=None)


def _tabulate_runs(works: Sequence[StepTimes], phase: str | None) -> list[Floats]:
    """Tabulate rows × steps of each run, contended steps as NaN; few steps: rows × 1, per launch."""
    names = [[n] for n in sorted(set.intersection(*(w.list_names(phase) for w in works)))]
    if not names:
        return []
    aligned = align_steps([w.run for w in works], phase)
    if aligned.height < MIN_SAMPLES:
        return [tabulate_per_launch(w, phase, names) for w in works]
    tables = []
    for w, side in zip(works, aligned.sides, strict=True):
        is_contended = cpu_contention.is_contended(w.run, side["step"])
        tables.append(np.where(is_contended, np.nan, tabulate_per_step(w, phase, side, names)))
    return tables
