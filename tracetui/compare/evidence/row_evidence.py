"""Judge each row of a diff by its samples: runs, steps or launches on both sides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from capture.tasks import run_parallel
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.ragged import Bools, Ints
from tracetui.analysis.frames.statistics import (
    ALPHA,
    MIN_SAMPLES,
    Floats,
    RowEvidence,
    compute_interval_from_a,
    judge_evidence,
)
from tracetui.analysis.time import step_sampling
from tracetui.compare import params
from tracetui.compare.evidence import cpu_contention, pair_test, repeat_test
from tracetui.compare.pairing.step_times import (
    StepAlignment,
    StepTimes,
    align_steps,
    build_sparse_times,
    build_step_times,
    compute_launch_errors,
    tabulate_per_launch,
    tabulate_per_step,
)
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.look import Look, Terms

SideNames = tuple[list[str], list[str]]  # of one match: its rows on either side
MatchNames = tuple[list[list[str]], list[list[str]]]  # of all matches
StepTimesPair = tuple[StepTimes, StepTimes]

CONTENDED_STEPS_NOTE: Final = "other programs used the CPU, which makes runs differ by a factor of two"


_SCHEMA: Final = {
    "row": pl.Int64,
    **dict.fromkeys(("median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns"), pl.Float64),
    **dict.fromkeys(("p", "p_adjusted", "cliff", "spread"), pl.Float64),
    "is_relative": pl.Boolean,
    **dict.fromkeys(("n_a", "n_b"), pl.Int64),
    **dict.fromkeys(("verdict", "per"), pl.String),
}


@dataclass(frozen=True, eq=False)
class PhaseEvidence:
    """The evidence on the rows of one phase."""

    description: str  # how the samples were made
    unit: str = ""  # what one sample is the time of: step, token or launch
    evidence: RowEvidence | None = None  # None: there are no samples
    spread: Floats | None = None  # per row: run-to-run SD as a share; None: single runs
    is_relative: bool = False  # rows were judged relative to the others of their run


@dataclass(frozen=True, eq=False)
class RunSamples:
    """Rows × runs × steps of time, and how they were sampled."""

    times: Floats
    groups: Ints  # per run: a (0), b (1), neither (2)
    contended: Bools  # per run: other programs used the CPU in most steps
    unit: str
    description: str


def judge_rows(
    sides: Sides, look: Look, rows: pl.DataFrame, names: Sequence[SideNames]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Judge each row: medians, interval, tests and verdict; also describe how each phase was sampled.

    `names` has the names of each row on either side.
    """
    groups = sides.groups
    times = iter(run_parallel([partial(build_step_times, run, look=look) for side in groups for run in side]))
    works = [[next(times) for _ in side] for side in groups]
    members = _group_by_phase(rows["phase"], names)
    names_by_phase = {phase: [names[i] for i in indices] for phase, indices in members.items()}
    phases = run_parallel([partial(_judge_phase, sides, works, p, n) for p, n in names_by_phase.items()])
    tables = [_build_phase_table(m, e, look.terms) for m, e in zip(members.values(), phases, strict=True)]
    evidence = pl.concat([pl.DataFrame(schema=_SCHEMA), *tables])
    table = _build_default_verdicts(names).join(evidence, on="row", how="left", maintain_order="left")
    filled = pl.col("is_relative").fill_null(False), pl.col("n_a", "n_b").fill_null(0)
    table = table.with_columns(*filled, verdict=pl.coalesce("verdict", "default")).drop("row", "default")
    return table, tuple(f"{p or 'all rows'}: {e.description}" for p, e in zip(members, phases, strict=True))


def _group_by_phase(phases: pl.Series, names: Sequence[SideNames]) -> dict[str | None, list[int]]:
    """Group the indices of rows that are on both sides by phase; a phase may have none."""
    members: dict[str | None, list[int]] = {}
    for i, (phase, (x, y)) in enumerate(zip(phases, names, strict=True)):
        members.setdefault(phase, []).extend([i] if x and y else [])
    return members


def _build_default_verdicts(names: Sequence[SideNames]) -> pl.DataFrame:
    """Build the index of each row, and the verdict that needs no samples."""
    verdicts = ["new" if not x else "gone" if not y else "~" for x, y in names]
    return pl.DataFrame({"row": range(len(names)), "default": pl.Series(verdicts, dtype=pl.String)})


def _build_phase_table(members: Sequence[int], phase: PhaseEvidence, terms: Terms) -> pl.DataFrame:
    """Build one row per member of a phase, NaN as null; no rows if the phase has no samples."""
    e = phase.evidence
    if e is None:
        return pl.DataFrame(schema=_SCHEMA)
    threshold_ns = terms.threshold * (np.abs(e.median_a) + np.abs(e.median_b)) / 2
    low_ns, high_ns = compute_interval_from_a(e)
    columns = {
        "row": list(members),
        "median_a_ns": e.median_a,
        "median_b_ns": e.median_b,
        "median_delta_ns": e.delta,
        "low_ns": low_ns,
        "high_ns": high_ns,
        "p": e.p,
        "p_adjusted": e.p_adjusted,
        "cliff": e.cliff,
        "spread": phase.spread,
        "is_relative": [phase.is_relative] * len(members),
        "n_a": e.n_a,
        "n_b": e.n_b,
        "verdict": judge_evidence(e, threshold_ns, alpha=ALPHA * terms.share),
        "per": [phase.unit] * len(members),
    }
    return pl.DataFrame(columns, schema=_SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))


def _judge_phase(
    sides: Sides, works: Sequence[Sequence[StepTimes]], phase: str | None, names: Sequence[SideNames]
) -> PhaseEvidence:
    """Judge by runs if any are repeated, else by steps, else by launches."""
    if not names:
        return PhaseEvidence("no row is on both sides")
    (a, *_), (b, *_), _ = works
    left, right = [x for x, _ in names], [y for _, y in names]
    if not sides.has_repeats:
        return _judge_pair((a, b), phase, (left, right), sides.floor)
    samples = collect_run_samples(works, phase, left, right)
    alpha, contended = ALPHA * a.look.terms.share, samples.contended
    repeats = repeat_test.judge_repeats(samples.times, samples.groups, alpha=alpha, contended=contended)
    description = _describe_run_samples(repeats, samples)
    return PhaseEvidence(description, samples.unit, repeats.evidence, repeats.spread, repeats.is_relative)


def _judge_pair(
    works: StepTimesPair, phase: str | None, names: MatchNames, floor: NoiseFloor
) -> PhaseEvidence:
    """Judge by steps against the noise floor; by one value per row and run if there are few steps."""
    a, b = works
    aligned = _select_sampled_steps(align_steps([a.run, b.run], phase, a.look.terms.align), works)
    contended = [_find_contended(w, side) for w, side in zip(works, aligned.sides, strict=True)]
    if aligned.height < MIN_SAMPLES:
        if selection.has_aggregates(a.run) or selection.has_aggregates(b.run):
            return PhaseEvidence("no spread in this source; totals and means only")
        is_contended = any(side.any() for side in contended)
        return _judge_launches(works, phase, names, floor, is_contended=is_contended)
    is_free = ~(contended[0] | contended[1])
    cells, used_floor = build_sparse_times(works, phase, aligned.sides, names), floor
    if is_free.sum() >= MIN_SAMPLES:
        cells = cells.select_steps(is_free)
    else:
        used_floor = replace(floor, spread=params.CONTENDED_RUN_SD)
    evidence = pair_test.judge_sparse_pair(cells, used_floor)
    unit = _choose_unit(works)
    description = _describe_pair_samples(aligned, works, unit, is_free, floor)
    return PhaseEvidence(description, unit, evidence)


def _judge_launches(
    works: StepTimesPair, phase: str | None, names: MatchNames, floor: NoiseFloor, *, is_contended: bool
) -> PhaseEvidence:
    """Judge by one value per row and run; none is judged if other programs used the CPU meanwhile.

    A program that waits for the CPU in one of two steps takes ten times as long in it, without a change.
    """
    x, y = (tabulate_per_launch(w, phase, n) for w, n in zip(works, names, strict=True))
    error = np.hypot(*(compute_launch_errors(w, phase, n) for w, n in zip(works, names, strict=True)))
    widened = replace(floor, spread=float(np.hypot(floor.spread, params.FEW_STEPS_SD)))
    evidence = pair_test.judge_pair(x, np.where(np.isfinite(error)[:, None], y, np.nan), widened)
    evidence = replace(evidence, median_b=y[:, 0], delta=(y - x)[:, 0])  # also where nothing is decided
    is_covered = np.abs(evidence.delta) <= params.EFFECT_LIMIT_SE * error  # by the scatter of its launches
    is_covered |= is_contended
    p, adjusted = (np.where(is_covered & ~np.isnan(q), 1.0, q) for q in (evidence.p, evidence.p_adjusted))
    evidence = replace(evidence, p=p, p_adjusted=adjusted)
    noise = f"no row is judged: {CONTENDED_STEPS_NOTE}" if is_contended else _describe_floor(floor)
    description = (
        "too few steps: one value per row and run; its launches share the state of the machine, which is "
        f"assumed to move them by {params.FEW_STEPS_SD:.0%}; {noise}"
    )
    return PhaseEvidence(description, "launch", evidence)


def _find_contended(work: StepTimes, steps: pl.DataFrame) -> Bools:
    return cpu_contention.is_contended(work.run, steps["step"])


def _describe_floor(floor: NoiseFloor) -> str:
    return f"run-to-run spread {floor.percent} (one standard deviation, {floor.source or 'assumed'})"


def _select_sampled_steps(aligned: StepAlignment, works: Sequence[StepTimes]) -> StepAlignment:
    """Select the aligned steps in which every run was recorded kernel by kernel."""
    sides = zip(works, aligned.sides, strict=True)
    sampled = pl.all_horizontal([step_sampling.is_sampled(w.run, w.look, side["step"]) for w, side in sides])
    is_sampled = pl.select(sampled=sampled)["sampled"]
    if is_sampled.all():
        return aligned
    selected = tuple(side.filter(is_sampled) for side in aligned.sides)
    return replace(aligned, sides=selected, how=f"sampled {aligned.how}")


def _choose_unit(works: Sequence[StepTimes]) -> str:
    """Choose the unit of a sample: token if tokens are known, else step."""
    return "token" if any(w.run.has("tokens") for w in works) else "step"


def _describe_pair_samples(
    aligned: StepAlignment, works: StepTimesPair, unit: str, is_free: Bools, floor: NoiseFloor
) -> str:
    """Describe the paired steps, what was excluded from them, and the noise floor."""
    parts = [f"{aligned.height} {aligned.how} paired, per {unit}"]
    if any(aligned.warm_up_counts):
        parts.append(f"{' and '.join(map(str, aligned.warm_up_counts))} slow first steps left out")
    if is_free.sum() < MIN_SAMPLES:
        return "; ".join([*parts, f"in nearly all of them {CONTENDED_STEPS_NOTE}"])
    if not is_free.all():
        sides = zip(works, aligned.sides, "ab", strict=True)
        excluded = [cpu_contention.describe_excluded_steps(w.run, s["step"], side) for w, s, side in sides]
        parts += filter(None, excluded)
    return "; ".join([*parts, _describe_floor(floor)])


def collect_run_samples(
    sides: Sequence[Sequence[StepTimes]],
    phase: str | None,
    left: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
) -> RunSamples:
    """Collect the rows of all runs; `left` and `right` are the names of each row on side a and b."""
    works = [w for side in sides for w in side]
    groups = np.repeat([0, 1, 2], [len(side) for side in sides])
    aligned = align_steps([w.run for w in works], phase, works[0].look.terms.align)
    aligned = _select_sampled_steps(aligned, works)
    has_steps = aligned.height >= MIN_SAMPLES
    names_by_group = ((left,), (right,), (left, right))
    times = [
        _tabulate_run(w, phase, aligned.sides[i] if has_steps else None, names_by_group[groups[i]])
        for i, w in enumerate(works)
    ]
    contended = np.array([has_steps and cpu_contention.is_mostly_contended(w.run) for w in works])
    unit = _choose_unit(works) if has_steps else "launch"
    medians = f"medians over {aligned.height} {aligned.how}" if has_steps else "time per launch"
    return RunSamples(np.stack(times, axis=1), groups, contended, unit, medians)


def _tabulate_run(
    work: StepTimes, phase: str | None, steps: pl.DataFrame | None, names: Sequence[Sequence[Sequence[str]]]
) -> Floats:
    """Tabulate rows × steps, or rows × 1 per launch; with names of two sides a row has either."""
    by_side = [
        tabulate_per_launch(work, phase, n) if steps is None else tabulate_per_step(work, phase, steps, n)
        for n in names
    ]
    return np.where(by_side[0].any(axis=1, keepdims=True), by_side[0], by_side[-1])


def _describe_run_samples(repeats: repeat_test.RepeatEvidence, samples: RunSamples) -> str:
    a, b, same = (int((samples.groups == g).sum()) for g in range(3))
    noise = f" (and {same} identical ones for the noise)" if same else ""
    lead = f"samples are {a} and {b} runs{noise}: {samples.description}; run-to-run spread "
    if not repeats.is_relative:
        return f"{lead}{100 * repeats.typical_spread:.1f}% (one standard deviation)"
    return (
        f"{lead}{100 * repeats.typical_time_spread:.0f}%, mostly common to all rows; so each row is judged "
        f"relative to the others of its step, which leaves {100 * repeats.typical_spread:.1f}% (one standard "
        "deviation, of each row its own)"
    )
