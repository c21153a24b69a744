"""Judge each phase of two sides: its step time, its kernels and the time between them; and of single runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.ragged import Bools, to_floats
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.statistics import (
    ALPHA,
    MIN_SAMPLES,
    Floats,
    RowEvidence,
    compute_interval_from_a,
    judge_evidence,
)
from tracetui.analysis.time import step_sampling, step_table
from tracetui.compare import params
from tracetui.compare.evidence import cpu_contention, pair_test, repeat_test
from tracetui.compare.pairing.run_work import list_kernel_names
from tracetui.compare.pairing.step_times import (
    StepAlignment,
    align_steps,
    align_timed_steps,
    has_phases_within_steps,
)
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.look import Look, Terms

STEP: Final = "step"  # wall time
KERNELS: Final = "kernels"
GAP: Final = "between kernels"
SCHEMA: Final = {
    **dict.fromkeys(("phase", "what", "per"), pl.String),
    **dict.fromkeys(("a_ns", "b_ns", "delta_ns", "low_ns", "high_ns", "p"), pl.Float64),
    "verdict": pl.String,
    "steps": pl.Int64,
    "floor": pl.Float64,  # spread of equal runs that one run per side is judged by; null with repeats
}
_PARTS_OF_RUN: Final = 2 * MIN_SAMPLES  # that stand for steps where there are none
PhaseRow = tuple[Any, ...]  # one row of that schema


@dataclass(frozen=True)
class RunStepTimes:
    """Step times of one phase in several runs."""

    phase: str | None
    per: str  # token, step, or run if there are no steps
    times: tuple[float, ...]  # ns: the median of each run's steps


def compute_phase_totals(sides: Sides, look: Look) -> pl.DataFrame:
    """Compute step, kernels and time between kernels of each phase of both runs, as far as they are known.

    Phases within steps are judged as one, or by their kernels alone if the look selects one.
    """
    is_within = any(map(has_phases_within_steps, sides))
    phases = [look.phase] if is_within else _list_shared_phases(sides, look)
    rows_by_phase = [_judge_phase(sides, phase, look) for phase in phases]
    if any(map(_list_transfers, sides)):
        rows_by_phase = list(map(_clear_waiting_kernels, rows_by_phase))
    rows = list(chain.from_iterable(rows_by_phase))
    if is_within and look.phase is not None:
        rows = [row for row in rows if row[1] == KERNELS]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").with_columns(pl.col(pl.Float64).fill_nan(None))


def _list_shared_phases(sides: Sides, look: Look) -> list[str | None]:
    if look.phase is None and any(map(_is_mostly_unphased, sides)):
        return [None]
    a, b = map(selection.list_phases, sides)
    return [p for p in a if p in b and look.phase in (None, p)] or [look.phase]


def _is_mostly_unphased(run: Run) -> bool:
    """Whether a run without steps has much time in no phase, as the functions of a program."""
    if run.has("step") or not (run.has("phase") and run.has("dur")):
        return False
    kernels = run.events.filter(pl.col("kind") == "kernel")
    in_phases = int(kernels.filter(pl.col("phase").is_not_null())["dur"].sum())
    return in_phases < params.MOST * int(kernels["dur"].sum())


def compute_run_times(runs: Sequence[Run]) -> RunStepTimes | None:
    """Compute the step times of the phase that takes longest, without contended steps.

    They are wall time if that is known, else kernel time. None if the runs have no timed phase in common.
    """
    tables = [compute_phase_totals(Sides((run, run)), Look()).filter(pl.col("what") != GAP) for run in runs]
    total = pl.col("a_ns") * pl.col("steps").clip(1)
    for row in tables[0].sort(total, descending=True, maintain_order=True).iter_rows(named=True):
        has_label = [pl.col(c).eq_missing(pl.lit(row[c], pl.String)) for c in ("phase", "what", "per")]
        times_by_run = [table.filter(*has_label)["a_ns"].to_list() for table in tables]
        if all(times_by_run):
            return RunStepTimes(row["phase"], row["per"], tuple(times[0] for times in times_by_run))
    return None


Place = tuple[int | None, str, str]  # a rank of several, the kernels before and after


@dataclass(frozen=True)
class GapChange:
    """By how much more time passes between two kernels, per step or token, else in all."""

    before: str
    after: str
    delta_ns: float
    verdict: str
    ranks: tuple[int, ...] = ()  # of several, those of which it is a change
    is_arrival: bool = False  # of a rank, before a collective for which the others wait


def find_gap_change(sides: Sides, phase: str | None, terms: Terms, change_ns: float) -> GapChange | None:
    """Find between which kernels a change of the time between kernels is; None if in no one place.

    It is there if most of the change is, or more than half of it and that time evidently changed. A sleep, a
    lock or a slow callback is in one place of each step; other programs interrupt anywhere.
    """
    changes, gaps = _compute_gap_changes(sides, phase, terms)
    place = max(changes, key=lambda each: changes[each] * np.sign(change_ns), default=None)
    share = changes[place] / change_ns if place and change_ns else 0.0
    if place is None or share <= 0.5:
        return None
    verdict = _judge_place(sides, phase, terms, place, gaps)
    is_there = verdict in ("slower", "faster") or share >= params.MOST
    return GapChange(*place[1:], changes[place], verdict) if is_there else None


def find_late_rank(sides: Sides, phase: str | None, terms: Terms, change_ns: float) -> GapChange | None:
    """Find the rank and the kernels between which it waits longer, so that others wait for it, or no longer.

    None if that is hardly a part of a change and did not evidently change, or if the waits of no rank changed
    in one place. A wait behind a transfer follows from another rank, if one of these waits elsewhere.
    """
    changes, gaps = _compute_gap_changes(sides, phase, terms)
    mains = _find_main_changes(changes)
    if not mains:
        return None
    transfers = _list_transfers(sides[0]) | _list_transfers(sides[1])
    causes = [p for p in mains if p[1] not in transfers]
    place = max(causes or mains, key=lambda p: abs(mains[p]))
    verdict = _judge_place(sides, phase, terms, place, gaps)
    is_part = abs(mains[place]) >= (1 - params.MOST) * abs(change_ns)
    if not is_part and verdict not in ("slower", "faster"):
        return None
    ranks = sorted({rank for rank, *where in mains if rank is not None and where == [*place[1:]]})
    is_arrival = place[2] in transfers and bool(causes) and len(ranks) == 1
    return GapChange(*place[1:], mains[place], verdict, tuple(ranks), is_arrival)


def _find_main_changes(changes: Mapping[Place, float]) -> dict[Place, float]:
    """Find the changes of more than half of the time between all kernels of their rank, without smaller."""
    nets = dict.fromkeys((rank for rank, *_ in changes), 0.0)
    for (rank, *_), delta in changes.items():
        nets[rank] += delta
    mains = {p: delta for p, delta in changes.items() if delta * nets[p[0]] > 0.5 * nets[p[0]] ** 2}
    largest = max(map(abs, mains.values()), default=0.0)
    return {p: delta for p, delta in mains.items() if abs(delta) >= (1 - params.MOST) * largest}


def _list_transfers(run: Run) -> frozenset[str]:
    """List the kernels that communicate."""
    if not run.has("category"):
        return frozenset()
    names = run.events.filter(pl.col("category").cast(pl.String) == "comm")["name"].unique()
    return frozenset(names.cast(pl.String).drop_nulls())


def _compute_gap_changes(
    sides: Sides, phase: str | None, terms: Terms
) -> tuple[dict[Place, float], Sequence[dict[Place, float]]]:
    """Compute the change of the time between kernels that both runs have, and the time on either side."""
    aligned = align_steps(sides[:2], phase, terms.align)
    steps = aligned.sides if aligned.height else (None, None)
    a, b = (_measure_gaps(run, side) for run, side in zip(sides[:2], steps, strict=True))
    shared = list_kernel_names(sides[0]) & list_kernel_names(sides[1])  # another name is no wait
    places = (place for place in {**a, **b} if shared.issuperset(place[1:]))
    return {place: b.get(place, 0.0) - a.get(place, 0.0) for place in places}, (a, b)


def _judge_place(
    sides: Sides, phase: str | None, terms: Terms, place: Place, gaps: Sequence[dict[Place, float]]
) -> str:
    """Judge the time at a place, the largest change of all `gaps` of both sides; undecided if it is rare.

    Less than a tenth of a step counts as that: the ratio of two short waits says nothing of a long one, and
    only longer ones could have been the largest change. Without steps, equal parts of the run stand for them.
    """
    runs = [run for group in sides.groups for run in group]
    aligned = align_steps(runs, phase, terms.align)
    parts = 1 if aligned.height else _PARTS_OF_RUN
    series = _list_place_series(runs, aligned, place)
    limit = params.SHORT_WAIT_SHARE * float(np.median([step for _, step in series]))
    if not limit > 0 or 0 < aligned.height < MIN_SAMPLES:
        return "~"
    is_free = _mark_free_steps(runs, aligned) if aligned.height else np.ones((len(runs), parts), dtype=bool)
    longest = np.max([[side.get(each, 0.0) for each in {*gaps[0], *gaps[1]}] for side in gaps], axis=0)
    places = int((longest > limit * parts).sum())
    times = np.stack([gap.clip(limit) for gap, _ in series])
    evidence = _judge_series(times, is_free, sides, terms)
    threshold_ns = np.array([limit * params.MIN_CHANGE])
    return judge_evidence(evidence, threshold_ns, alpha=ALPHA * terms.share / max(1, places))[0]


def _list_place_series(
    runs: Sequence[Run], aligned: StepAlignment, place: Place
) -> list[tuple[Floats, float]]:
    """List for each run the ns at a place in each step, or part of the run without steps; and of that."""
    if not aligned.height:
        return [_split_waits(run, place) for run in runs]
    return [_compute_place_series(*pair, place) for pair in zip(runs, aligned.sides, strict=True)]


def _split_waits(run: Run, place: Place) -> tuple[Floats, float]:
    """Split the waits at a place into parts of equally many: ns of each, and of the run; NaN if too few."""
    rank, before, after = place
    is_there = (pl.col("before") == before) & (pl.col("after") == after)
    waits = _list_waits(run).filter(pl.col("rank").eq_missing(pl.lit(rank, pl.Int64)))
    end = pl.col("t").max() - pl.col("t").min()
    gaps, took = waits.select(pl.col("gap_ns").filter(is_there).implode(), end).collect().row(0)
    if len(gaps) < _PARTS_OF_RUN or took is None:
        return np.full(_PARTS_OF_RUN, np.nan), np.nan
    parts = np.array_split(np.array(gaps, dtype=np.float64), _PARTS_OF_RUN)
    mean_count = len(gaps) / _PARTS_OF_RUN
    return np.array([part.mean() * mean_count for part in parts]), took / _PARTS_OF_RUN


def _compute_place_series(run: Run, side: pl.DataFrame, place: Place) -> tuple[Floats, float]:
    """Compute the ns per token between two kernels in each step, and of the median step (NaN: unknown)."""
    rank, before, after = place
    is_there = (pl.col("before") == before) & (pl.col("after") == after)
    is_there &= pl.col("rank").eq_missing(pl.lit(rank, pl.Int64))
    gaps = tabulate_gaps(run).filter(is_there).group_by("step").agg(pl.col("gap_ns").sum())
    walls = step_table.compute_step_durations(run).select("step", wall_ns="took_ns").unique("step")
    joined = side.join(gaps, on="step", how="left", maintain_order="left")
    joined = joined.join(walls, on="step", how="left", maintain_order="left")
    tokens = to_floats(joined["tokens"])
    wall = to_floats(joined["wall_ns"].cast(pl.Float64).fill_null(np.nan)) / tokens
    return to_floats(joined["gap_ns"].fill_null(0)) / tokens, float(np.median(wall))


def _measure_gaps(run: Run, side: pl.DataFrame | None) -> dict[Place, float]:
    """Measure the time after one kernel and before the next: the median of these steps, else in all."""
    gaps, key = tabulate_gaps(run).drop_nulls(("before", "after")), ("rank", "before", "after")
    if side is None:
        sums = gaps.group_by(key).agg(pl.col("gap_ns").sum().cast(pl.Float64))
    else:
        gaps = side.select("step", "tokens").unique("step").join(gaps, on="step")
        gaps = gaps.with_columns(pl.col("gap_ns") / pl.col("tokens"))
        sums = gaps.group_by(key).agg("gap_ns")
        sums = sums.filter(2 * pl.col("gap_ns").list.len() >= side.height)  # else their median is 0
        sums = sums.with_columns(gap_ns=_find_median_with_zeros(pl.col("gap_ns").list.sort(), side.height))
    return {(rank, before, after): gap_ns for rank, before, after, gap_ns in sums.iter_rows()}


def _find_median_with_zeros(values: pl.Expr, count: int) -> pl.Expr:
    """Find the median of sorted positive numbers and zeros, of which there are `count` together."""
    zeros = count - values.list.len().cast(pl.Int64)

    def get(place: int) -> pl.Expr:
        value = values.list.get(place - zeros, null_on_oob=True)
        return pl.when(place >= zeros).then(value).otherwise(0.0)

    return (get((count - 1) // 2) + get(count // 2)) / 2


@cache_per_run
def tabulate_gaps(run: Run) -> pl.DataFrame:
    """Tabulate the time in which no kernel ran: rank (of several), step, before, after, gap_ns.

    It belongs to the step of the kernel before it; that is null if it is not the one that ended last.
    """
    key = ("rank", "step", "before", "after")
    waits = _list_waits(run).filter(pl.col("gap_ns") > 0)
    return waits.group_by(key).agg(pl.col("gap_ns").sum()).collect()


def _list_waits(run: Run) -> pl.LazyFrame:
    """List how long before each kernel none ran, 0 ns or less if one did.

    The columns are rank (of several), step, before, after, gap_ns, and the start of the kernel.
    """
    names = dict.fromkeys(("before", "after"), pl.Categorical())
    schema = pl.Schema(
        dict.fromkeys(("rank", "step"), pl.Int64()) | names | {"gap_ns": pl.Int64(), "t": pl.Int64()}
    )
    if not (run.has("t") and run.has("dur")):
        return pl.LazyFrame(schema=schema)
    timed = selection.select_timed(run, Look())
    if run.meta.get("work") == "spans":  # self times: the spans inside of one follow within its time
        timed = run.events.lazy().filter(pl.col("kind").is_in(["kernel", "span"]))
    has_ranks = len(selection.list_ranks(run)) > 1
    timed = selection.with_rank(run, timed) if has_ranks else timed.with_columns(rank=pl.lit(None, pl.Int64))
    step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64).alias("step")
    rows = timed.select("rank", step, "t", "dur", "name").drop_nulls("t").sort("rank", "t")
    end, name, is_first = pl.col("t") + pl.col("dur"), pl.col("name"), pl.lit(value=False)
    latest, last = end.cum_max(), end
    if has_ranks:
        latest, is_first = latest.over("rank"), pl.col("rank").ne_missing(pl.col("rank").shift(1))
    latest = pl.when(~is_first).then(latest.shift(1))
    waits = rows.select(
        "rank",
        pl.col("step").shift(1),
        before=pl.when(last.shift(1) == latest).then(name.shift(1)),
        after=name,
        gap_ns=pl.col("t") - latest,
        t="t",
    )
    return waits.cast(schema)


def _judge_phase(sides: Sides, phase: str | None, look: Look) -> list[PhaseRow]:
    runs = [run for group in sides.groups for run in group]
    aligned = align_timed_steps(runs, phase, look.terms.align)
    if not aligned.height:
        return _sum_kernels(sides, phase, look)
    steps_by_run = list(zip(runs, aligned.sides, strict=True))
    series = [_compute_step_series(run, steps, phase, look) for run, steps in steps_by_run]
    is_free = _mark_free_steps(runs, aligned)
    per = "token" if any(run.has("tokens") for run in runs) else "step"
    rows = []
    for what in (STEP, KERNELS, GAP):
        if all(what in s for s in series):
            evidence = _judge_series(np.stack([s[what] for s in series]), is_free, sides, look.terms)
            floor = None if sides.has_repeats else _choose_floor(is_free[:2], sides.floor).spread
            rows.append(_build_row(phase, what, per, evidence, look.terms, aligned.height, floor))
    return rows


def _clear_waiting_kernels(rows: list[PhaseRow]) -> list[PhaseRow]:
    """Clear the verdict on kernels if their step changed by more the other way: transfers wait for others."""
    delta, verdict = (list(SCHEMA).index(column) for column in ("delta_ns", "verdict"))
    step = next((row for row in rows if row[1] == STEP), None)
    cleared = []
    for row in rows:
        is_opposite = step and row[1] == KERNELS and row[delta] * step[delta] < -(row[delta] ** 2)
        cleared.append((*row[:verdict], "~", *row[verdict + 1 :]) if is_opposite else row)
    return cleared


def _mark_free_steps(runs: Sequence[Run], aligned: StepAlignment) -> Bools:
    """Mark runs × aligned steps without other programs on the CPU."""
    sides = zip(runs, aligned.sides, strict=True)
    return np.stack([~cpu_contention.is_contended(run, side["step"]) for run, side in sides])


def _choose_floor(is_free: Bools, floor: NoiseFloor) -> NoiseFloor:
    """Return the floor that one run per side is judged by: a larger one beside other programs."""
    is_contended = is_free.all(axis=0).sum() < MIN_SAMPLES <= is_free.shape[1]
    return NoiseFloor(params.CONTENDED_RUN_SD) if is_contended else floor


def _compute_step_series(run: Run, side: pl.DataFrame, phase: str | None, look: Look) -> dict[str, Floats]:
    """Compute the ns per token of each aligned step: kernels, wall time and the gap, if they are known."""
    walls = step_table.compute_step_durations(run).select("step", wall_ns="took_ns").unique("step")
    of_phase, lens = Look(lens=look.lens, phase=phase), selection.resolve_lens(run, look)
    sums = step_table.compute_step_totals(run, of_phase, lens).rename({"dur": "kernels"})
    joined = side.join(walls, on="step", how="left", maintain_order="left")
    covered = step_table.measure_covered(run, of_phase)
    for table in (sums, covered):
        joined = joined.join(table, on="step", how="left", maintain_order="left")
    busy = joined["covered_ns"].fill_null(joined["kernels"]).fill_null(0)  # threads overlap
    series: dict[str, Floats] = {}
    tokens, wall, kernels = to_floats(joined["tokens"]), joined["wall_ns"], joined["kernels"].fill_null(0)
    if step_sampling.compute_coverage(run, look) is None and joined["kernels"].count():
        series[KERNELS] = to_floats(kernels) / tokens
    if not wall.null_count():
        series[STEP] = to_floats(wall) / tokens
    is_covered = run.meta.get("work") == "spans"  # self times leave out the spans inside
    if len(series) == 2 and not is_covered and bool((wall >= busy).all()):  # streams overlap, too
        series[GAP] = series[STEP] - to_floats(busy) / tokens
    return series


def _judge_series(times: Floats, is_free: Bools, sides: Sides, terms: Terms) -> RowEvidence:
    """Judge runs × steps of one quantity; `is_free` marks steps without other programs on the CPU."""
    groups = np.repeat([0, 1, 2], [len(group) for group in sides.groups])
    if not sides.has_repeats:
        return _judge_pair_series(times[groups < 2], is_free[groups < 2], sides.floor)
    usable = is_free.sum(axis=1) >= MIN_SAMPLES
    counts = np.bincount(groups[usable], minlength=3)
    if counts[0] and counts[1] and counts.max() > 1 and times.shape[1] >= MIN_SAMPLES:
        times, groups = np.where(is_free, times, np.nan)[usable], groups[usable]
    medians = np.nanmedian(times, axis=1)
    level = np.log(np.where(medians > 0, medians, np.nan))  # NaN: no test, but the medians are reported
    evidence = repeat_test.compare_means(level[None, :], groups, ALPHA * terms.share)[0]
    by_side = {f"median_{s}": np.median(medians[groups == g], keepdims=True) for g, s in enumerate("ab")}
    return evidence if not np.isnan(evidence.p).any() else replace(evidence, **by_side)


def _judge_pair_series(times: Floats, is_free: Bools, floor: NoiseFloor) -> RowEvidence:
    """Judge two runs × steps of one quantity."""
    is_free_in_both = np.asarray(is_free.all(axis=0))
    if MIN_SAMPLES <= is_free_in_both.sum() < is_free_in_both.size:
        times = np.where(is_free_in_both, times, np.nan)
    floor = _choose_floor(is_free, floor)
    return pair_test.judge_pair(times[None, 0], times[None, 1], floor)


def _build_row(
    phase: str | None,
    what: str,
    per: str,
    evidence: RowEvidence,
    terms: Terms,
    step_count: int,
    floor: float | None = None,
) -> PhaseRow:
    a, b = evidence.median_a, evidence.median_b
    threshold_ns = terms.threshold * (np.abs(a) + np.abs(b)) / 2
    values = (a, b, b - a, *compute_interval_from_a(evidence), evidence.p)
    verdict = judge_evidence(evidence, threshold_ns, alpha=ALPHA * terms.share)[0]
    return (phase, what, per, *(float(x[0]) for x in values), verdict, step_count, floor)


def _sum_kernels(sides: Sides, phase: str | None, look: Look) -> list[PhaseRow]:
    """Sum the kernels of a phase without steps: one total per run has a verdict if there are repeats."""
    runs = [run for group in sides.groups for run in group]
    totals = {KERNELS: [_sum_scaled(run, phase, look) for run in runs]}
    if not all(totals[KERNELS]):
        return []
    if phase is None and not any(run.has("step") or len(selection.list_ranks(run)) > 1 for run in runs):
        totals[GAP] = [float(tabulate_gaps(run)["gap_ns"].sum()) for run in runs]
    return [_judge_totals(sides, phase, look, what, x) for what, x in totals.items() if all(x)]


def _sum_scaled(run: Run, phase: str | None, look: Look) -> float:
    if not run.has("dur"):
        return 0.0
    rows = selection.select_timed(run, Look(lens=look.lens, phase=phase, window=look.window))
    return float(step_sampling.compute_scaled_total(run, look, rows))


def _judge_totals(sides: Sides, phase: str | None, look: Look, what: str, totals: list[float]) -> PhaseRow:
    """Judge one total per run; undecided without repeats, because nothing shows a spread."""
    if not sides.has_repeats:
        a, b, *_ = totals
        return (phase, what, "run", a, b, b - a, None, None, None, "~", 0, None)
    is_free = np.ones((len(totals), 1), dtype=bool)
    evidence = _judge_series(np.array([totals]).T, is_free, sides, look.terms)
    return _build_row(phase, what, "run", evidence, look.terms, 0)
