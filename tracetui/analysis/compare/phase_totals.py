"""What a step of each phase took on both sides, with its kernels and the time between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tracetui.analysis import select, steps, windows
from tracetui.analysis.compare import machine, one_pair, repeats
from tracetui.analysis.compare.align import align
from tracetui.analysis.statistics import ALPHA, FEWEST, Evidence, Floats, verdicts
from tracetui.analysis.step_sums import kernel_sums
from tracetui.look import Floor, Look, Terms

STEP: Final = "step"  # wall time
KERNELS: Final = "kernels"
GAP: Final = "between kernels"
SCHEMA: Final = {
    "phase": pl.String,
    "what": pl.String,
    "per": pl.String,
    "a_ns": pl.Float64,
    "b_ns": pl.Float64,
    "delta_ns": pl.Float64,
    "low_ns": pl.Float64,
    "high_ns": pl.Float64,
    "p": pl.Float64,
    "verdict": pl.String,
    "steps": pl.Int64,
}


def phase_totals(a: Run, b: Run, look: Look) -> pl.DataFrame:
    """Return one row for each phase of both runs and what of it is known: step, kernels, between kernels."""
    terms = look.terms
    runs = [a, *terms.more_a, b, *terms.more_b, *terms.same]
    groups = np.repeat([0, 1, 2], [1 + len(terms.more_a), 1 + len(terms.more_b), len(terms.same)])
    shared = [p for p in select.phases(a) if p in select.phases(b)]
    phases: list[str | None] = [p for p in shared if look.phase in (None, p)] or [look.phase]
    rows = [row for phase in phases for row in _of_phase(runs, groups, phase, look)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").with_columns(pl.col(pl.Float64).fill_nan(None))


Row = tuple[object, ...]


def _of_phase(runs: Sequence[Run], groups: NDArray[np.int64], phase: str | None, look: Look) -> list[Row]:
    aligned = align(runs, phase, look.terms.align)
    if not aligned.height:
        return _sums(runs[0], runs[int((groups == 0).sum())], phase, look)
    series = [_series(run, side, phase, look) for run, side in zip(runs, aligned.sides, strict=True)]
    per = "token" if any(run.has("tokens") for run in runs) else "step"
    found = []
    for what in (STEP, KERNELS, GAP):
        if all(what in s for s in series):
            times = np.stack([s[what] for s in series])
            alone = np.stack([~machine.busy(r, s["step"]) for r, s in zip(runs, aligned.sides, strict=True)])
            evidence = _judged(times, groups, alone, look.terms)
            found.append(_row(phase, what, per, evidence, look.terms, aligned.height))
    return found


def _series(run: Run, side: pl.DataFrame, phase: str | None, look: Look) -> dict[str, Floats]:
    """Return what is known of each aligned step, in ns a token."""
    walls = steps.paced(run).select("step", wall_ns="took_ns").unique("step")
    lens = select.lens_of(run, look)
    sums = kernel_sums(run, Look(lens=look.lens, phase=phase), lens).rename({"dur": "kernels"})
    joined = side.join(walls, on="step", how="left", maintain_order="left")
    joined = joined.join(sums, on="step", how="left", maintain_order="left")
    each = joined["tokens"].cast(pl.Float64).to_numpy()
    known: dict[str, Floats] = {}
    wall, kernels = joined["wall_ns"], joined["kernels"].fill_null(0)
    if windows.coverage(run, look) is None:
        known[KERNELS] = kernels.cast(pl.Float64).to_numpy() / each
    if not wall.null_count():
        known[STEP] = wall.cast(pl.Float64).to_numpy() / each
    if len(known) == 2 and bool((wall >= kernels).all()):  # of several streams kernels overlap
        known[GAP] = known[STEP] - known[KERNELS]
    return known


def _judged(times: Floats, groups: NDArray[np.int64], alone: NDArray[np.bool_], terms: Terms) -> Evidence:
    """Return the evidence of runs × steps of one thing; runs of neither side show the noise alone."""
    if not terms.repeated:
        return _judged_pair(times[groups < 2], alone[groups < 2], terms)
    quiet = alone.sum(axis=1) >= FEWEST
    left = np.bincount(groups[quiet], minlength=3)
    if left[0] and left[1] and left.max() > 1 and times.shape[1] >= FEWEST:
        times, groups = np.where(alone, times, np.nan)[quiet], groups[quiet]
    middle = np.nanmedian(times, axis=1)
    level = np.log(np.where(middle > 0, middle, np.nan))  # where a run has nothing, figures but no test
    evidence = repeats.between(level[None, :], groups, ALPHA * terms.share)[0]
    figures = {f"median_{side}": np.median(middle[groups == g], keepdims=True) for g, side in enumerate("ab")}
    return evidence if not np.isnan(evidence.p).any() else replace(evidence, **figures)


def _judged_pair(times: Floats, alone: NDArray[np.bool_], terms: Terms) -> Evidence:
    """Return the evidence of two runs × steps of one thing."""
    both = np.asarray(alone.all(axis=0))
    floor = _few(terms.floor) if times.shape[1] < FEWEST else terms.floor
    if FEWEST <= both.sum() < both.size:
        times = np.where(both, times, np.nan)
    elif times.shape[1] >= FEWEST and both.sum() < FEWEST:
        floor = Floor(repeats.BUSY)
    return one_pair.judge(times[None, 0], times[None, 1], floor)


def _few(floor: Floor) -> Floor:
    return Floor(float(np.hypot(floor.spread, one_pair.MOMENT)), floor.freedom, floor.how)


def _row(phase: str | None, what: str, per: str, e: Evidence, terms: Terms, steps: int) -> Row:
    matters = terms.threshold * (np.abs(e.median_a) + np.abs(e.median_b)) / 2
    figures = (e.median_a, e.median_b, e.median_b - e.median_a, e.low, e.high, e.p)
    verdict = verdicts(e, matters, alpha=ALPHA * terms.share)[0]
    return (phase, what, per, *(float(x[0]) for x in figures), verdict, steps)


def _sums(a: Run, b: Run, phase: str | None, look: Look) -> list[Row]:
    """Return the kernels of a phase that knows no steps, added up: without a spread, so undecided."""
    totals = []
    for run in (a, b):
        rows = select.timed(run, Look(lens=look.lens, phase=phase, window=look.window))
        totals.append(float(windows.whole(run, look, rows)) if run.has("dur") else 0.0)
    if not all(totals):
        return []
    return [(phase, KERNELS, "run", *totals, totals[1] - totals[0], None, None, None, "~", 0)]
