"""The evidence behind each row of a diff: its samples on both sides, brought together and judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

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

_COLUMNS: Final = (
    "median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns", "p", "p_adjusted", "cliff",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Work:
    """A run, and the time that each of its rows took in each step."""

    run: Run
    look: Look
    sums: pl.DataFrame  # name, phase, step, dur, count


def prove(
    a: Run, b: Run, look: Look, rows: pl.DataFrame, names: Sequence[Names]
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Medians, interval, tests and verdict of each row, and the words that say how they were found."""
    columns: dict[str, Any] = {c: np.full(rows.height, np.nan) for c in (*_COLUMNS, "spread")}
    columns |= {
        "freed": np.zeros(rows.height, bool),
        "n_a": np.zeros(rows.height, int),
        "n_b": np.zeros(rows.height, int),
    }
    verdict = ["new" if not x else "gone" if not y else "~" for x, y in names]
    per: list[str | None] = [None] * rows.height
    sides = [[work(run, look) for run in runs] for runs in _sides(a, b, look.terms)]
    how: list[str] = []
    for phase in rows["phase"].unique(maintain_order=True):
        members = [i for i, (x, y) in enumerate(names) if x and y and rows["phase"][i] == phase]
        found, words, sample = _of_phase(sides, phase, [names[i] for i in members])
        how.append(f"{phase or 'all rows'}: {words}")
        if isinstance(found, repeats.Judged):
            columns["spread"][members], columns["freed"][members] = found.spread, found.freed
            found = found.evidence
        if found is not None:
            _write(columns, verdict, members, found, look.terms.threshold)
            for i in members:
                per[i] = sample
    frame = pl.DataFrame(columns).with_columns(pl.col(c).fill_nan(None) for c in (*_COLUMNS, "spread"))
    told = (pl.Series("verdict", verdict, pl.String), pl.Series("per", per, pl.String))
    return frame.with_columns(*told), tuple(how)


def _sides(a: Run, b: Run, terms: Terms) -> tuple[list[Run], list[Run], list[Run]]:
    """The runs of a, those of b, and those that only show the noise."""
    return [a, *terms.more_a], [b, *terms.more_b], list(terms.same)


def phased(run: Run, look: Look) -> pl.LazyFrame:
    """Timed rows with `name`, what they are compared by, and `phase`: two phases never share a row."""
    rows = select.timed(run, replace(look, per="total", sort=None, limit=None))
    group = look.group or "name"
    name = pl.col(group) if run.has(group) else pl.lit(None, pl.String)
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.String)
    return rows.with_columns(name.alias("name"), phase.alias("phase"))


def work(run: Run, look: Look) -> Work:
    """All that a proof asks of a run, in one pass."""
    if not run.has("dur"):
        return Work(run, look, pl.DataFrame(schema=_SUMS))
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64)
    sums = (
        phased(run, look).group_by("name", "phase", step.alias("step")).agg(pl.col("dur").sum(), count=count)
    )
    label = pl.col("name").cast(pl.String).fill_null("–")
    return Work(run, look, sums.with_columns(label, pl.col("phase").cast(pl.String)).select(*_SUMS).collect())


_SUMS: Final = {
    "name": pl.String, "phase": pl.String, "step": pl.Int64, "dur": pl.Int64, "count": pl.Int64,
}  # fmt: skip


def _write(
    columns: dict[str, Any], verdict: list[str], members: list[int], e: Evidence, threshold: float
) -> None:
    values = (e.median_a, e.median_b, e.delta, e.low, e.high, e.p, e.p_adjusted, e.cliff, e.n_a, e.n_b)
    for name, found in zip((*_COLUMNS, "n_a", "n_b"), values, strict=True):
        columns[name][members] = found
    matters = threshold * (np.abs(e.median_a) + np.abs(e.median_b)) / 2
    for i, word in zip(members, statistics.verdicts(e, matters), strict=True):
        verdict[i] = word


Found = tuple[Evidence | repeats.Judged | None, str, str]  # of a phase: proof, how it was made, time per what


def _of_phase(sides: Sequence[Sequence[Work]], phase: str | None, names: Sequence[Names]) -> Found:
    """Runs are the samples where they were repeated, else the steps, else launches; else there are none."""
    if not names:
        return None, "no row stands on both sides", ""
    (a, *_), (b, *_), _ = sides
    left, right = [x for x, _ in names], [y for _, y in names]
    if a.look.terms.repeated:
        return _of_runs(sides, phase, left, right)
    aligned = _watched(align([a.run, b.run], phase, a.look.terms.align), (a, b))
    if aligned.height >= FEWEST:
        times = [
            per_step(w, phase, s, n) for w, s, n in zip((a, b), aligned.sides, (left, right), strict=True)
        ]
        unit = _unit((a, b))
        return statistics.paired(*times), _words(aligned, unit), unit
    if not select.aggregates(a.run) and not select.aggregates(b.run):
        words = "launches of one run each are the samples, unpaired; they share one moment and one clock"
        return statistics.ragged(instances(a, phase, left), instances(b, phase, right)), words, "launch"
    return None, "no spread in this source; totals and means only", ""


def _watched(aligned: Alignment, works: Sequence[Work]) -> Alignment:
    """Only steps in which single rows were seen in every run."""
    sides = zip(works, aligned.sides, strict=True)
    seen = pl.all_horizontal([windows.seen(w.run, w.look, side["step"]) for w, side in sides])
    kept = pl.select(seen=seen)["seen"]
    if kept.all():
        return aligned
    how = f"watched {aligned.how}"
    return replace(aligned, sides=tuple(side.filter(kept) for side in aligned.sides), how=how)


def _unit(works: Sequence[Work]) -> str:
    """What a sample is the time of: steps are divided by their tokens where these are told."""
    return "token" if any(w.run.has("tokens") for w in works) else "step"


def _words(aligned: Alignment, unit: str) -> str:
    warm = " and ".join(map(str, aligned.warm))
    return (
        f"{aligned.height} {aligned.how} paired, per {unit}"
        f"{f'; {warm} warm-up steps left out' if any(aligned.warm) else ''}; "
        "intervals from a block bootstrap over the steps of one run each"
    )


def _of_runs(
    sides: Sequence[Sequence[Work]],
    phase: str | None,
    left: Sequence[Sequence[str]],
    right: Sequence[Sequence[str]],
) -> Found:
    """Each run is one sample; identical runs of neither side tell the noise of both."""
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
    return judged, _run_words(judged, groups, samples), _unit(works) if stepwise else "launch"


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


def per_step(work: Work, phase: str | None, picked: pl.DataFrame, names: Sequence[Sequence[str]]) -> Floats:
    """Rows × aligned steps, in ns per token; a row that is absent in a step took nothing there."""
    columns = picked.select("step").with_row_index("column")
    kept = _placed(work, phase, names).join(columns, on="step")
    out = np.zeros((len(names), picked.height))
    np.add.at(out, (kept["row"].to_numpy(), kept["column"].to_numpy()), kept["dur"].to_numpy())
    return np.asarray(out / picked["tokens"].to_numpy())


def per_launch(work: Work, phase: str | None, names: Sequence[Sequence[str]]) -> Floats:
    """Rows × 1: the mean of a launch, in ns."""
    sums = _placed(work, phase, names).group_by("row").agg(pl.col("dur", "count").sum())
    out = np.zeros((len(names), 1))
    out[sums["row"].to_numpy(), 0] = (sums["dur"] / sums["count"]).to_numpy()
    return out


def _placed(work: Work, phase: str | None, names: Sequence[Sequence[str]]) -> pl.DataFrame:
    """The sums of a phase, each with the number of the row that it belongs to."""
    sums = work.sums.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    return sums.with_columns(row=_places(sums["name"], names)).drop_nulls("row")


def instances(work: Work, phase: str | None, names: Sequence[Sequence[str]]) -> list[Floats]:
    """Of each row the durations of its launches, evenly thinned where they are very many."""
    rows = phased(work.run, work.look).filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    found = rows.select(pl.col("name").cast(pl.String).fill_null("–"), "dur").collect()
    placed = found.with_columns(row=_places(found["name"], names)).drop_nulls("row")
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
