"""Judge each row of a diff by its samples: runs, steps or launches on both sides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tracetui.analysis import select, statistics, windows
from tracetui.analysis.compare import machine, one_pair, repeats, shared_steps
from tracetui.analysis.compare.align import Alignment, align
from tracetui.analysis.compare.at_once import of_each
from tracetui.analysis.compare.step_times import (
    StepTimes,
    launches,
    pair_cells,
    per_launch,
    per_step,
    step_times,
)
from tracetui.analysis.statistics import ALPHA, FEWEST, Evidence, Floats
from tracetui.look import Floor, Look, Terms

Names = tuple[list[str], list[str]]  # of one match: its rows on either side
Pair = tuple[StepTimes, StepTimes]
Sides = tuple[list[list[str]], list[list[str]]]  # of all matches

MOSTLY: Final = 0.5  # of its steps a run must have had alone, so that they are its own
UNQUIET: Final = (
    "; others had the processor in most steps of too many runs to leave these out, so that changes are "
    "doubted: repeat them on a quiet machine"
)
CROWDED: Final = "others had the processor, which makes runs differ by a factor of two"

_TIMES: Final = ("median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns")
_NUMBERS: Final = ("p", "p_adjusted", "cliff", "spread")
_NOTHING: Final = pl.DataFrame(
    schema={
        "row": pl.Int64,
        **dict.fromkeys((*_TIMES, *_NUMBERS), pl.Float64),
        "freed": pl.Boolean,
        **dict.fromkeys(("n_a", "n_b"), pl.Int64),
        **dict.fromkeys(("verdict", "per"), pl.String),
    }
)


@dataclass(frozen=True, eq=False)
class PhaseEvidence:
    """What the samples say about the rows of one phase."""

    how: str  # how the samples were made, in words
    unit: str = ""  # what one sample is the time of: step, token or launch
    evidence: Evidence | None = None  # None: there are no samples
    spread: Floats | None = None  # of each row: by what part runs of the same differ; None: single runs
    freed: bool = False  # whether rows were judged against the others of their run


def row_evidence(
    a: Run, b: Run, look: Look, rows: pl.DataFrame, names: Sequence[Names]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return medians, interval, tests and verdict of each row, and how each phase was sampled.

    `names` holds for each of the rows the names that it has on either side.
    """
    runs = _sides(a, b, look.terms)
    works = iter(of_each(partial(step_times, look=look), [run for side in runs for run in side]))
    sides = [[next(works) for _ in side] for side in runs]
    members: dict[str | None, list[int]] = {}
    for i, (phase, (x, y)) in enumerate(zip(rows["phase"], names, strict=True)):
        members.setdefault(phase, []).extend([i] if x and y else [])
    found = of_each(lambda p: _judge_phase(sides, p, [names[i] for i in members[p]]), list(members))
    judged = [_table(own, e, look.terms) for own, e in zip(members.values(), found, strict=True)]
    table = _without_evidence(names)
    table = table.join(pl.concat([_NOTHING, *judged]), on="row", how="left", maintain_order="left")
    verdict = pl.coalesce("verdict", "alone")
    counts = pl.col("freed").fill_null(False), pl.col("n_a", "n_b").fill_null(0)
    how = tuple(f"{phase or 'all rows'}: {e.how}" for phase, e in zip(members, found, strict=True))
    return table.with_columns(*counts, verdict=verdict).drop("row", "alone"), how


def _without_evidence(names: Sequence[Names]) -> pl.DataFrame:
    """Return the number of each row, and the verdict that needs no samples."""
    verdicts = ["new" if not x else "gone" if not y else "~" for x, y in names]
    return pl.DataFrame({"row": range(len(names)), "alone": pl.Series(verdicts, dtype=pl.String)})


def _table(members: Sequence[int], phase: PhaseEvidence, terms: Terms) -> pl.DataFrame:
    """Return one row a member of a phase, NaN as null; none where the phase has no samples."""
    e = phase.evidence
    if e is None:
        return _NOTHING
    matters = terms.threshold * (np.abs(e.median_a) + np.abs(e.median_b)) / 2
    columns = {
        "row": list(members),
        "median_a_ns": e.median_a,
        "median_b_ns": e.median_b,
        "median_delta_ns": e.delta,
        "low_ns": e.low,
        "high_ns": e.high,
        "p": e.p,
        "p_adjusted": e.p_adjusted,
        "cliff": e.cliff,
        "spread": phase.spread,
        "freed": [phase.freed] * len(members),
        "n_a": e.n_a,
        "n_b": e.n_b,
        "verdict": statistics.verdicts(e, matters, alpha=ALPHA * terms.share),
        "per": [phase.unit] * len(members),
    }
    floats = [c for c, kind in _NOTHING.schema.items() if kind == pl.Float64]
    return pl.DataFrame(columns, schema=_NOTHING.schema).with_columns(pl.col(floats).fill_nan(None))


def _sides(a: Run, b: Run, terms: Terms) -> tuple[list[Run], list[Run], list[Run]]:
    """Return the runs of a, those of b, and those that only show the noise."""
    return [a, *terms.more_a], [b, *terms.more_b], list(terms.same)


def _judge_phase(
    sides: Sequence[Sequence[StepTimes]], phase: str | None, names: Sequence[Names]
) -> PhaseEvidence:
    """Take runs as samples where they were repeated, else steps, else launches; else there are none."""
    if not names:
        return PhaseEvidence("no row stands on both sides")
    (a, *_), (b, *_), _ = sides
    left, right = [x for x, _ in names], [y for _, y in names]
    if a.look.terms.repeated:
        return _judge_runs(run_samples(sides, phase, left, right), ALPHA * a.look.terms.share)
    return _judge_pair((a, b), phase, (left, right))


def _judge_pair(works: Pair, phase: str | None, names: Sides) -> PhaseEvidence:
    """Take steps as samples beside how far runs of the same lie apart; one sum a row where there are few."""
    a, b = works
    terms = a.look.terms
    aligned = _watched(align([a.run, b.run], phase, terms.align), works)
    busy = [_busy(w, side) for w, side in zip(works, aligned.sides, strict=True)]
    if aligned.height >= FEWEST:
        alone = ~(busy[0] | busy[1])
        floor = terms.floor if alone.sum() >= FEWEST else replace(terms.floor, spread=repeats.BUSY)
        cells = pair_cells(works, phase, aligned.sides, names)
        unit = _unit(works)
        kept = cells.only(alone) if alone.sum() >= FEWEST else cells
        evidence, told = one_pair.judge_cells(kept, floor)
        sides = zip(works, aligned.sides, "ab", strict=True)
        left_out = [out for w, steps, side in sides if (out := machine.taken(w.run, steps["step"], side))]
        words = _words(aligned, unit, floor, alone, left_out) + shared_steps.words(told)
        return PhaseEvidence(words, unit, evidence)
    if select.aggregates(a.run) or select.aggregates(b.run):
        return PhaseEvidence("no spread in this source; totals and means only")
    return _judge_launches(works, phase, names, any(side.any() for side in busy))


def _judge_launches(works: Pair, phase: str | None, names: Sides, crowded: bool) -> PhaseEvidence:
    """Take one sum of each row and run as a sample; `crowded`: others had the processor meanwhile."""
    floor = works[0].look.terms.floor
    x, y = (per_launch(w, phase, n) for w, n in zip(works, names, strict=True))
    several = np.logical_and(*(launches(w, phase, n) > 1 for w, n in zip(works, names, strict=True)))
    spread = repeats.BUSY if crowded else floor.spread
    moment = replace(floor, spread=float(np.hypot(spread, one_pair.MOMENT)))
    evidence = one_pair.judge(x, np.where(several[:, None], y, np.nan), moment)
    evidence = replace(evidence, median_b=y[:, 0], delta=(y - x)[:, 0])  # a single launch has them too
    words = (
        "one sum of each row and run: launches of so few steps share their moment, which is taken to move "
        f"them by {one_pair.MOMENT:.0%}; {CROWDED if crowded else _floor_words(floor)}"
    )
    return PhaseEvidence(words, "launch", evidence)


def _busy(work: StepTimes, steps: pl.DataFrame) -> NDArray[np.bool_]:
    return machine.busy(work.run, steps["step"])


def _floor_words(floor: Floor) -> str:
    how = floor.how or "assumed, since nobody measured it"
    return f"runs of the same differ by {floor.percent} (one standard deviation, {how})"


def _watched(aligned: Alignment, works: Sequence[StepTimes]) -> Alignment:
    """Return the alignment with only the steps in which single rows were seen in every run."""
    sides = zip(works, aligned.sides, strict=True)
    seen = pl.all_horizontal([windows.seen(w.run, w.look, side["step"]) for w, side in sides])
    kept = pl.select(seen=seen)["seen"]
    if kept.all():
        return aligned
    how = f"watched {aligned.how}"
    return replace(aligned, sides=tuple(side.filter(kept) for side in aligned.sides), how=how)


def _unit(works: Sequence[StepTimes]) -> str:
    """Return what a sample is the time of: a token where tokens are known, else a step."""
    return "token" if any(w.run.has("tokens") for w in works) else "step"


def _words(
    aligned: Alignment, unit: str, floor: Floor, alone: NDArray[np.bool_], left_out: Sequence[str]
) -> str:
    warm = " and ".join(map(str, aligned.warm))
    parts = [f"{aligned.height} {aligned.how} paired, per {unit}"]
    if any(aligned.warm):
        parts.append(f"{warm} warm-up steps left out")
    if FEWEST <= alone.sum() < len(alone):
        parts += left_out
    if alone.sum() < FEWEST:
        parts.append(f"in nearly all of them {CROWDED}")
    else:
        parts.append(_floor_words(floor))
    return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class RunSamples:
    """Rows × runs × steps of time, and how they were sampled."""

    times: Floats
    groups: NDArray[np.int64]  # of each run: a (0), b (1), neither (2)
    busy: NDArray[np.bool_]  # of each run: others had the processor, and nothing could be left out
    unit: str
    words: str
    left_out: str = ""


def run_samples(
    sides: Sequence[Sequence[StepTimes]],
    phase: str | None,
    left: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
) -> RunSamples:
    """Return the rows of each run, those of a and b by the names of their side."""
    works = [w for side in sides for w in side]
    groups = np.repeat([0, 1, 2], [len(side) for side in sides])
    aligned = _watched(align([w.run for w in works], phase, works[0].look.terms.align), works)
    stepwise = aligned.height >= FEWEST
    sided = ((left,), (right,), (left, right))  # by which names the runs of a group are known
    times = [
        _times_of_run(w, phase, aligned.sides[i] if stepwise else None, sided[groups[i]])
        for i, w in enumerate(works)
    ]
    alone = [~_busy(w, side) for w, side in zip(works, aligned.sides, strict=True)] if stepwise else []
    stacked, groups, busy, left_out = _alone(np.stack(times, axis=1), groups, alone)
    words = f"their medians over {aligned.height} {aligned.how}" if stepwise else "their time per launch"
    return RunSamples(stacked, groups, busy, _unit(works) if stepwise else "launch", words, left_out)


def _judge_runs(samples: RunSamples, alpha: float) -> PhaseEvidence:
    """Take each run as one sample; identical runs of neither side show the noise of both."""
    judged = repeats.judge(samples.times, samples.groups, alpha=alpha, busy=samples.busy)
    how = _run_words(judged, samples.groups, samples.words) + samples.left_out
    return PhaseEvidence(how, samples.unit, judged.evidence, judged.spread, judged.freed)


def _times_of_run(
    work: StepTimes, phase: str | None, steps: pl.DataFrame | None, names: Sequence[Sequence[Sequence[str]]]
) -> Floats:
    """Return rows × steps, or rows × 1 a launch; a run of neither side has its rows by either name."""
    by_side = [
        per_launch(work, phase, n) if steps is None else per_step(work, phase, steps, n) for n in names
    ]
    return np.where(by_side[0].any(axis=1, keepdims=True), by_side[0], by_side[-1])


def _alone(
    times: Floats, groups: NDArray[np.int64], alone: Sequence[NDArray[np.bool_]]
) -> tuple[Floats, NDArray[np.int64], NDArray[np.bool_], str]:
    """Return the times without the steps, and without the runs, in which others had the processor, with the
    group of each run that is left, and which runs had others beside them and could not be left out.

    A run that was mostly among others is left out whole: its few other steps still feel them. Nothing is
    left out where a side would have no run left, or none of the runs would be a repeat.
    """
    nobody = np.zeros(len(groups), dtype=bool)
    if not alone or all(a.all() for a in alone):
        return times, groups, nobody, ""
    quiet = np.array([a.sum() >= max(FEWEST, MOSTLY * len(a)) for a in alone])
    kept = np.bincount(groups[quiet], minlength=3)
    if not kept[0] or not kept[1] or kept.max() < 2:
        return times, groups, ~quiet, UNQUIET
    masked = np.where(np.stack(alone)[None], times, np.nan)[:, quiet]
    steps, runs = sum(int((~a).sum()) for a in np.stack(alone)[quiet]), int((~quiet).sum())
    words = [f"{steps} steps"] * bool(steps) + [f"{runs} run{'s' * (runs > 1)}"] * bool(runs)
    left_out = f"; left out, since others had the processor: {' and '.join(words)}"
    return masked, groups[quiet], nobody[quiet], left_out


def _run_words(judged: repeats.Judged, groups: NDArray[np.int64], samples: str) -> str:
    a, b, same = (int((groups == g).sum()) for g in range(3))
    noise = f" and {same} identical ones for the noise" if same else ""
    words = f"{a} and {b} runs are the samples{noise}: {samples}; runs of the same differ by "
    if not judged.freed:
        return f"{words}{100 * judged.noise:.1f}% (one standard deviation); intervals from their spread"
    return (
        f"{words}{100 * judged.time_noise:.0f}%, mostly in all rows at once; so each row is read against the "
        f"others of its run, which leaves {100 * judged.noise:.1f}% (one standard deviation)"
    )
