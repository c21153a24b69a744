"""Judge each row of a diff by its samples: runs, steps or launches on both sides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis import select, statistics, windows
from tracetui.analysis.compare import repeats
from tracetui.analysis.compare.align import Alignment, align
from tracetui.analysis.statistics import FEWEST, Evidence, Floats
from tracetui.look import Look, Terms

MOST_INSTANCES: Final = 512  # of one row, where instances are the samples

Names = tuple[list[str], list[str]]  # of one match: its rows on either side

_NOTHING: Final = pl.DataFrame(
    schema={
        "row": pl.Int64,
        "median_a_ns": pl.Float64,
        "median_b_ns": pl.Float64,
        "median_delta_ns": pl.Float64,
        "low_ns": pl.Float64,
        "high_ns": pl.Float64,
        "p": pl.Float64,
        "p_adjusted": pl.Float64,
        "cliff": pl.Float64,
        "spread": pl.Float64,
        "freed": pl.Boolean,
        "n_a": pl.Int64,
        "n_b": pl.Int64,
        "verdict": pl.String,
        "per": pl.String,
    }
)


@dataclass(frozen=True, eq=False)
class StepTimes:
    """A run, and the time that each of its rows took in each step."""

    run: Run
    look: Look
    sums: pl.DataFrame  # name, phase, step, dur, count


@dataclass(frozen=True, eq=False)
class PhaseEvidence:
    """What the samples say about the rows of one phase."""

    how: str  # how the samples were made, in words
    unit: str = ""  # what one sample is the time of: step, token or launch
    evidence: Evidence | None = None  # None: there are no samples
    spread: Floats | None = None  # of each row: by what part runs of the same differ; None: single runs
    freed: bool = False  # whether rows were judged against the others of their step


def row_evidence(
    a: Run, b: Run, look: Look, rows: pl.DataFrame, names: Sequence[Names]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return medians, interval, tests and verdict of each row, and how each phase was sampled.

    `names` holds for each of the rows the names that it has on either side.
    """
    sides = [[step_times(run, look) for run in runs] for runs in _sides(a, b, look.terms)]
    judged, how = [], []
    for phase in rows["phase"].unique(maintain_order=True):
        members = [i for i, (x, y) in enumerate(names) if x and y and rows["phase"][i] == phase]
        evidence = _judge_phase(sides, phase, [names[i] for i in members])
        judged.append(_table(members, evidence, look.terms.threshold))
        how.append(f"{phase or 'all rows'}: {evidence.how}")
    table = _without_evidence(names)
    table = table.join(pl.concat([_NOTHING, *judged]), on="row", how="left", maintain_order="left")
    verdict = pl.coalesce("verdict", "alone")
    counts = pl.col("freed").fill_null(False), pl.col("n_a", "n_b").fill_null(0)
    return table.with_columns(*counts, verdict=verdict).drop("row", "alone"), tuple(how)


def _without_evidence(names: Sequence[Names]) -> pl.DataFrame:
    """Return the number of each row, and the verdict that needs no samples."""
    verdicts = ["new" if not x else "gone" if not y else "~" for x, y in names]
    return pl.DataFrame({"row": range(len(names)), "alone": pl.Series(verdicts, dtype=pl.String)})


def _table(members: Sequence[int], phase: PhaseEvidence, threshold: float) -> pl.DataFrame:
    """Return one row a member of a phase, NaN as null; none where the phase has no samples."""
    e = phase.evidence
    if e is None:
        return _NOTHING
    matters = threshold * (np.abs(e.median_a) + np.abs(e.median_b)) / 2
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
        "verdict": statistics.verdicts(e, matters),
        "per": [phase.unit] * len(members),
    }
    floats = [c for c, kind in _NOTHING.schema.items() if kind == pl.Float64]
    return pl.DataFrame(columns, schema=_NOTHING.schema).with_columns(pl.col(floats).fill_nan(None))


def _sides(a: Run, b: Run, terms: Terms) -> tuple[list[Run], list[Run], list[Run]]:
    """Return the runs of a, those of b, and those that only show the noise."""
    return [a, *terms.more_a], [b, *terms.more_b], list(terms.same)


def phased(run: Run, look: Look) -> pl.LazyFrame:
    """Return timed rows with `name`, what they are compared by, and `phase`; both may be null."""
    rows = select.timed(run, replace(look, per="total", sort=None, limit=None))
    group = look.group or "name"
    name = pl.col(group) if run.has(group) else pl.lit(None, pl.String)
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.String)
    return rows.with_columns(name.alias("name"), phase.alias("phase"))


def step_times(run: Run, look: Look) -> StepTimes:
    """Return the time of every row in every step, in one pass over the events."""
    if not run.has("dur"):
        return StepTimes(run, look, pl.DataFrame(schema=_SUMS))
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64)
    sums = (
        phased(run, look).group_by("name", "phase", step.alias("step")).agg(pl.col("dur").sum(), count=count)
    )
    label = pl.col("name").cast(pl.String).fill_null("–")
    return StepTimes(
        run, look, sums.with_columns(label, pl.col("phase").cast(pl.String)).select(*_SUMS).collect()
    )


_SUMS: Final = {
    "name": pl.String,
    "phase": pl.String,
    "step": pl.Int64,
    "dur": pl.Int64,
    "count": pl.Int64,
}


def _judge_phase(
    sides: Sequence[Sequence[StepTimes]], phase: str | None, names: Sequence[Names]
) -> PhaseEvidence:
    """Take runs as samples where they were repeated, else steps, else launches; else there are none."""
    if not names:
        return PhaseEvidence("no row stands on both sides")
    (a, *_), (b, *_), _ = sides
    left, right = [x for x, _ in names], [y for _, y in names]
    if a.look.terms.repeated:
        return _judge_runs(sides, phase, left, right)
    aligned = _watched(align([a.run, b.run], phase, a.look.terms.align), (a, b))
    if aligned.height >= FEWEST:
        times = [
            per_step(w, phase, s, n) for w, s, n in zip((a, b), aligned.sides, (left, right), strict=True)
        ]
        unit = _unit((a, b))
        return PhaseEvidence(_words(aligned, unit), unit, statistics.paired(*times))
    if not select.aggregates(a.run) and not select.aggregates(b.run):
        words = "launches of one run each are the samples, unpaired; they share one moment and one clock"
        evidence = statistics.ragged(instances(a, phase, left), instances(b, phase, right))
        return PhaseEvidence(words, "launch", evidence)
    return PhaseEvidence("no spread in this source; totals and means only")


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


def _words(aligned: Alignment, unit: str) -> str:
    warm = " and ".join(map(str, aligned.warm))
    return (
        f"{aligned.height} {aligned.how} paired, per {unit}"
        f"{f'; {warm} warm-up steps left out' if any(aligned.warm) else ''}; "
        "intervals from a block bootstrap over the steps of one run each"
    )


def _judge_runs(
    sides: Sequence[Sequence[StepTimes]],
    phase: str | None,
    left: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
) -> PhaseEvidence:
    """Take each run as one sample; identical runs of neither side show the noise of both."""
    works = [w for side in sides for w in side]
    groups = np.repeat([0, 1, 2], [len(side) for side in sides])
    aligned = _watched(align([w.run for w in works], phase, works[0].look.terms.align), works)
    stepwise = aligned.height >= FEWEST
    times = []
    for i, (w, group) in enumerate(zip(works, groups, strict=True)):
        by_side = [
            per_step(w, phase, aligned.sides[i], names) if stepwise else per_launch(w, phase, names)
            for names in ((left, right) if group == 2 else (right,) if group == 1 else (left,))
        ]
        times.append(np.where(by_side[0].any(axis=1, keepdims=True), by_side[0], by_side[-1]))
    judged = repeats.judge(np.stack(times, axis=1), groups)
    samples = f"their medians over {aligned.height} {aligned.how}" if stepwise else "their time per launch"
    unit = _unit(works) if stepwise else "launch"
    how = _run_words(judged, groups, samples)
    return PhaseEvidence(how, unit, judged.evidence, judged.spread, judged.freed)


def _run_words(judged: repeats.Judged, groups: Floats, samples: str) -> str:
    a, b, same = (int((groups == g).sum()) for g in range(3))
    noise = f" and {same} identical ones for the noise" if same else ""
    words = f"{a} and {b} runs are the samples{noise}: {samples}; runs of the same differ by "
    if not judged.freed:
        return f"{words}{100 * judged.noise:.1f}% (one standard deviation); intervals from their spread"
    return (
        f"{words}{100 * judged.time_noise:.0f}%, mostly in all rows at once; so each row is read against the "
        f"others of its step, which leaves {100 * judged.noise:.1f}% (one standard deviation)"
    )


def per_step(
    times: StepTimes, phase: str | None, picked: pl.DataFrame, names: Sequence[Sequence[str]]
) -> Floats:
    """Return rows × aligned steps, in ns per token; a row that is absent in a step took 0 there."""
    columns = picked.select("step").with_row_index("column")
    kept = _placed(times, phase, names).join(columns, on="step")
    out = np.zeros((len(names), picked.height))
    np.add.at(out, (kept["row"].to_numpy(), kept["column"].to_numpy()), kept["dur"].to_numpy())
    return np.asarray(out / picked["tokens"].to_numpy())


def per_launch(times: StepTimes, phase: str | None, names: Sequence[Sequence[str]]) -> Floats:
    """Return rows × 1: the mean of a launch, in ns."""
    sums = _placed(times, phase, names).group_by("row").agg(pl.col("dur", "count").sum())
    out = np.zeros((len(names), 1))
    out[sums["row"].to_numpy(), 0] = (sums["dur"] / sums["count"]).to_numpy()
    return out


def _placed(times: StepTimes, phase: str | None, names: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Return the sums of a phase, each with the number of the row that it belongs to."""
    sums = times.sums.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    return sums.with_columns(row=_places(sums["name"], names)).drop_nulls("row")


def instances(times: StepTimes, phase: str | None, names: Sequence[Sequence[str]]) -> list[Floats]:
    """Return for each row the durations of its launches, evenly thinned where they are very many."""
    rows = phased(times.run, times.look).filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    launches = rows.select(pl.col("name").cast(pl.String).fill_null("–"), "dur").collect()
    placed = launches.with_columns(row=_places(launches["name"], names)).drop_nulls("row")
    grouped = {k[0]: g["dur"].to_numpy().astype(float) for k, g in placed.group_by("row")}
    return [_thinned(np.sort(grouped.get(i, np.empty(0)))) for i in range(len(names))]


def _thinned(values: Floats) -> Floats:
    if len(values) <= MOST_INSTANCES:
        return values
    places = np.linspace(0, len(values) - 1, MOST_INSTANCES).round().astype(int)
    return np.asarray(values[places])


def _places(labels: pl.Series, names: Sequence[Sequence[str]]) -> pl.Series:
    place = {name: i for i, group in enumerate(names) for name in group}
    return labels.replace_strict(place, default=None, return_dtype=pl.Int64)
