"""Compare ranks, of one file or of many: work and waits per step, skew, and stragglers.

Ranks that decode together end each step together: one with less work waits in a collective for one with more.
So the skew of a step is that of the work outside collectives, and a straggler is the rank that the others
wait for: that spends most time before its collectives, in kernels, in gaps or on the host. Times are unions
of intervals by class of row, as in the summary.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from capture.merge_ranks import move_to_rank_tracks, parse_ranks_from_names
from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.rank_permutation import MIN_STEPS, compute_late_and_early_p
from tracetui.analysis.frames.selection import (
    list_phases,
    list_ranks,
    select_timed,
    with_rank,
)
from tracetui.analysis.frames.statistics import ALPHA, CONFIDENCE, Floats
from tracetui.analysis.frames.time_axis import TimeAxis
from tracetui.analysis.merged.partial_results import MEMBERS, PartialResult
from tracetui.analysis.time import gpu_time
from tracetui.analysis.time.gpu_time import compute_unions_by_class, work_class
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

_CELL_KEY: Final = ("step", "rank")
_TIMES: Final = ("busy_ns", "work_ns", "comm_ns")
_CLASSES_BY_TIME: Final = {
    "busy_ns": gpu_time.CLASSES, "work_ns": (gpu_time.COMPUTE, gpu_time.TRANSFER), "comm_ns": (gpu_time.COMM,)
}  # fmt: skip
_NO_CELLS: Final = pl.DataFrame(schema=dict.fromkeys((*_CELL_KEY, *_TIMES), pl.Int64))
_TREND_CELLS: Final = 48  # means over the steps, drawn as a sparkline
_RANK_KEY: Final = ["member", "run", "own_rank"]
_SKEW_COLUMNS: Final = (
    "step", "fastest", "slowest", "fastest_ns", "slowest_ns", "skew_ns", "skew_share", "wall_ns", "by_rank"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RankTimes:
    """Times of every rank in every step that all of them have."""

    cells: pl.DataFrame  # step, rank, wall_ns, work_ns, comm_ns, busy_ns
    ops: pl.DataFrame  # rank, op, comm (is it a collective), total_ns
    has_start_times: bool  # then overlapping rows count once

    @property
    def ranks(self) -> list[int]:
        """The ranks in order."""
        return [int(n) for n in self.cells["rank"].unique().sort()]

    @property
    def step_count(self) -> int:
        """Number of steps that all ranks have."""
        return self.cells["step"].n_unique()

    @property
    def has_collectives(self) -> bool:
        """Whether any rank has a collective among its rows; else its time in them is unknown."""
        return bool(self.cells["comm_ns"].sum() > 0)

    def build_work_matrix(self) -> Floats:
        """Return the work of ranks × steps, in ns."""
        ordered = self.cells.sort("rank", "step")["work_ns"]
        return ordered.to_numpy().astype(float).reshape(len(self.ranks), -1)

    def build_own_matrix(self) -> Floats:
        """Return the time of ranks × steps before and between collectives, in ns.

        That is the wall time without exposed collectives; the work, if wall times or collectives are unknown.
        """
        wall, busy = self.cells["wall_ns"], self.cells["busy_ns"]
        if wall.has_nulls() or not self.has_collectives or (wall < busy).any():
            return self.build_work_matrix()
        own_ns = pl.col("wall_ns") - (pl.col("busy_ns") - pl.col("work_ns"))
        ordered = self.cells.sort("rank", "step").select(own_ns).to_series()
        return ordered.to_numpy().astype(float).reshape(len(self.ranks), -1)


def compare_ranks(run: Run, look: Look) -> RankTimes:
    """Return the times of the ranks in the selected steps; a step that a rank lacks is left out."""
    rows = select_rank_rows(run, look)
    has_times = run.has("t") and rows["t"].null_count() == 0
    rows = rows.with_columns(comm=pl.col("class") == gpu_time.COMM)
    cells = _compute_cells(rows, has_times) if rows.height else _NO_CELLS
    cells = cells.filter(pl.len().over("step") == pl.col("rank").n_unique())
    cells = cells.join(_find_wall_times(run), on=_CELL_KEY, how="left").sort(*_CELL_KEY)
    is_complete = pl.col("step").is_in(cells["step"].unique().implode())
    return RankTimes(cells, _sum_by_op(rows.lazy().filter(is_complete), run), has_times)


def resolve_phase(run: Run, look: Look) -> str | None:
    """Return the requested phase, else decode; None if the run has no decode."""
    return look.phase or ("decode" if "decode" in list_phases(run) else None)


def select_rank_rows(run: Run, look: Look) -> pl.DataFrame:
    """Return the ranks' rows in steps, with their rank; waits for the device are left out."""
    columns = [c for c in ("name", "op", "category", "shape", "t", "dur", "step", "track") if run.has(c)]
    rows = select_timed(run, look).filter(pl.col("step").is_not_null())
    rows = rows.select(*columns, work_class(run).alias("class"))
    if run.has("category"):
        rows = rows.filter(pl.col("category").ne_missing("wait"))
    phase = resolve_phase(run, look)
    if phase is not None:
        of_phase = build_step_facts(run).filter(pl.col("phase") == phase).select("step")
        rows = rows.join(of_phase.lazy(), on="step", how="semi")
    return with_rank(run, rows).drop_nulls("rank").collect()


def _compute_cells(rows: pl.DataFrame, has_times: bool) -> pl.DataFrame:
    """Return busy_ns, work_ns and comm_ns per step and rank; with start times, overlaps count once."""
    if not has_times:
        dur, comm = pl.col("dur"), pl.col("comm")
        times = {"busy_ns": dur, "work_ns": dur.filter(~comm), "comm_ns": dur.filter(comm)}
        return rows.group_by(_CELL_KEY).agg(**{name: time.sum() for name, time in times.items()})
    axis = TimeAxis.from_rows(rows.select(*_CELL_KEY, "t", "dur", "class"), ["rank", "step"])
    sums = compute_unions_by_class(axis, _CLASSES_BY_TIME)
    return axis.rows.filter(axis.is_first).select(_CELL_KEY).hstack(sums.select(_TIMES))


def _find_wall_times(run: Run) -> pl.DataFrame:
    """Return the wall time per step and rank from the rank's own step row."""
    rows = run.events.lazy().filter(pl.col("kind") == "step").drop_nulls(["dur", "step"])
    rows = with_rank(run, rows).drop_nulls("rank")
    return rows.group_by(_CELL_KEY).agg(wall_ns=pl.col("dur").max()).collect()


def _sum_by_op(rows: pl.LazyFrame, run: Run) -> pl.DataFrame:
    """Return the time per rank and op, of collectives apart; rows without an op count by name."""
    labels = [c for c in ("op", "name") if run.has(c)]
    sums = rows.group_by("rank", "comm", *labels).agg(pl.col("dur").sum())
    op_or_name = pl.coalesce(pl.col(c).cast(pl.String) for c in labels)
    return sums.group_by("rank", "comm", op=op_or_name).agg(total_ns=pl.col("dur").sum()).collect()


def compute_rank_table(ranks: RankTimes, look: Look) -> pl.DataFrame:
    """Return one row per rank: mean times per step, and how far it is behind the others.

    Times in collectives are null if no rank has any among its rows.
    """
    work, times = ranks.build_work_matrix(), ranks.build_own_matrix()
    ordered = np.sort(times, axis=0)
    is_longest = (times == ordered[-1]) & (ordered[-1] > ordered[-2])
    busy_ns = pl.col("busy_ns")
    per_step = ranks.cells.group_by("rank").agg(
        pl.col("wall_ns", "work_ns", "comm_ns").mean().round().cast(pl.Int64),
        steps=pl.len(),
        comm_share=pl.col("comm_ns").sum() / busy_ns.sum(),
        exposed_share=(busy_ns - pl.col("work_ns")).sum() / busy_ns.sum(),
    )
    columns = "rank", "steps", "wall_ns", "work_ns", "comm_ns", "comm_share", "exposed_share"
    if not ranks.has_collectives:
        unknown = pl.col("comm_ns", "comm_share", "exposed_share")
        per_step = per_step.with_columns(pl.when(pl.lit(False)).then(unknown))
    slowest, trend = pl.Series("slowest", is_longest.sum(axis=1)), pl.Series("trend", _compute_trends(work))
    return per_step.select(columns).sort("rank").hstack([slowest, *_compute_delay(times, look), trend])


def _compute_delay(times: Floats, look: Look) -> pl.DataFrame:
    """Return each rank's own time relative to the median of the others in the same steps, with evidence."""
    others = compute_median_of_others(times)
    base, delta = np.median(others, axis=1), np.median(times - others, axis=1)
    no_share = np.full_like(base, np.nan)
    low, high = _compute_interval(times, others, delta, base)
    p_late, p_early = compute_late_and_early_p(times)
    floor = look.terms.threshold * base
    conditions = [
        (p_late < ALPHA) & (delta >= floor),
        (p_early < ALPHA) & (delta <= -floor),
        np.maximum(np.abs(low), np.abs(high)) < floor,
    ]
    figures = {
        "behind_ns": delta,
        "behind_low_ns": low,
        "behind_high_ns": high,
        "behind_share": np.divide(delta, base, out=no_share, where=base > 0),
        "p": np.minimum(p_late, p_early),
    }
    table = pl.DataFrame(figures).with_columns(pl.all().fill_nan(None))
    verdict = pl.Series("verdict", [str(v) for v in np.select(conditions, ["slower", "faster", "same"], "~")])
    return table.with_columns(pl.col("^.*_ns$").round().cast(pl.Int64), verdict)


def _compute_interval(times: Floats, others: Floats, delta: Floats, base: Floats) -> tuple[Floats, Floats]:
    """Return the 95 % interval of each delay in ns, on the log scale; NaN for fewer than three steps.

    The ranks share one spread of steps, so that a few steps of many ranks are enough to know it.
    """
    from scipy.special import stdtrit

    ranks, steps = times.shape
    if steps < MIN_STEPS or not ((times > 0) & (others > 0)).all():
        return np.full(ranks, np.nan), np.full(ranks, np.nan)
    ratio = np.log(times / others)
    spread = np.sqrt(np.median(ratio.var(axis=1, ddof=1)))
    half_width = spread / np.sqrt(steps) * stdtrit(ranks * (steps - 1), (1 + CONFIDENCE) / 2)
    center = np.log1p(np.maximum(delta / base, -0.99))
    return base * np.expm1(center - half_width), base * np.expm1(center + half_width)


def compute_median_of_others(work: Floats) -> Floats:
    """Return for each rank and step the median of all other ranks; needs two ranks."""
    ordered = np.sort(work, axis=0)
    position = np.argsort(np.argsort(work, axis=0, kind="stable"), axis=0, kind="stable")

    def select_remaining(at: int) -> Floats:  # of the sorted values of the other ranks
        return np.asarray(np.where(position > at, ordered[at], ordered[at + 1]), dtype=float)

    others = len(work) - 1
    middle: Floats = (select_remaining((others - 1) // 2) + select_remaining(others // 2)) / 2
    return middle


def _compute_trends(work: Floats) -> list[list[float]]:
    """Return the mean work of each rank over the steps, in a few cells."""
    cells = np.array_split(work, min(_TREND_CELLS, work.shape[1]), axis=1)
    means = np.stack([cell.mean(axis=1) for cell in cells], axis=1)
    return [[float(x) for x in rank] for rank in means]


def compute_step_skews(ranks: RankTimes) -> pl.DataFrame:
    """Return one row per step: the ranks with least and most work, and their difference."""
    by_work = pl.col("rank").sort_by("work_ns", "rank")
    return (
        ranks.cells.group_by("step")
        .agg(
            fastest=by_work.first(),
            slowest=pl.col("rank").sort_by(-pl.col("work_ns"), "rank").first(),
            fastest_ns=pl.col("work_ns").min(),
            slowest_ns=pl.col("work_ns").max(),
            wall_ns=pl.col("wall_ns").max(),
            by_rank=pl.col("work_ns").sort_by("rank"),
        )
        .with_columns(skew_ns=pl.col("slowest_ns") - pl.col("fastest_ns"))
        .with_columns(skew_share=(pl.col("skew_ns") / pl.col("slowest_ns")).fill_nan(None))
        .select(_SKEW_COLUMNS)
        .sort("step")
    )


def find_largest_excess(ranks: RankTimes, rank: int) -> tuple[str, int] | None:
    """Return the op in which a rank takes most time per step above the median of the others, and that time.

    None if it takes more in no op.
    """
    return _find_largest(ranks, rank, ranks.ops.filter(~pl.col("comm")), sign=1)


def find_awaited_collective(ranks: RankTimes, rank: int) -> str | None:
    """Return the collective in which the others wait most for a rank; None if they wait in none."""
    largest = _find_largest(ranks, rank, ranks.ops.filter("comm"), sign=-1)
    return largest[0] if largest else None


def _find_largest(ranks: RankTimes, rank: int, ops: pl.DataFrame, *, sign: int) -> tuple[str, int] | None:
    own_ns = pl.col("total_ns").filter(pl.col("rank") == rank).sum()
    others = pl.col("total_ns").filter(pl.col("rank") != rank).median().fill_null(0)
    excess_ns = (sign * (own_ns - others) / ranks.step_count).round().cast(pl.Int64)
    by_op = ops.group_by("op").agg(excess_ns=excess_ns)
    largest = by_op.drop_nulls("op").sort("excess_ns", "op", descending=[True, False]).head(1).rows()
    return (str(largest[0][0]), int(largest[0][1])) if largest and largest[0][1] > 0 else None


def collect_rank_steps(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return the time of each rank of a run in each step and op; `own_rank` is the rank within the run."""
    has_several = len(list_ranks(run)) > 1
    if not has_several:
        run = Run(run.name, run.meta, move_to_rank_tracks(run, 0, 0), run.log, run.tables)
    times = compare_ranks(run, look)
    own_rank = pl.col("rank").cast(pl.Int64).alias("own_rank")
    member = pl.lit(0, pl.Int64).alias("member")
    ops = times.ops.select(member, own_rank, "op", "comm", "total_ns")
    ops = ops.sort("own_rank", "op", "comm", nulls_last=True)
    notes = [*selection.note_lens(run, look), *selection.note_folding(run)]
    facts = {
        "has_several_ranks": [has_several],
        "has_start_times": [times.has_start_times],
        "phase": pl.Series([resolve_phase(run, look)], dtype=pl.String),
        "notes": pl.Series(["\n".join(notes)]),
    }
    return {
        "cells": times.cells.select(member, own_rank, pl.exclude("rank")),
        "ops": ops,
        MEMBERS: pl.DataFrame(facts),
    }


def assign_ranks(merged: PartialResult, frame: str = "cells") -> tuple[pl.DataFrame, list[str]]:
    """Return a rank to each member, run and own rank, with notes on guesses; no rows if two are the same."""
    members = merged.members
    keys = merged.frames[frame].select(_RANK_KEY).unique().sort(_RANK_KEY)
    keys = keys.join(members.select("member", "run", "rank", "has_several_ranks"), on=["member", "run"])
    notes: list[str] = []
    single = members.filter(~pl.col("has_several_ranks"))
    if single["rank"].null_count():
        numbers = parse_ranks_from_names([s.rstrip("/").rpartition("/")[2] for s in single["source"]])
        if numbers is None:
            numbers = list(range(single.height))
            notes = ["ranks are unknown: files are numbered in order"]
        by_file = single.select("member", "run", file_rank=pl.Series(numbers, dtype=pl.Int64))
        keys = keys.join(by_file, on=["member", "run"], how="left")
    else:
        keys = keys.with_columns(file_rank="rank")
    keys = keys.select(*_RANK_KEY, rank=pl.when("has_several_ranks").then("own_rank").otherwise("file_rank"))
    return (keys, notes) if keys["rank"].n_unique() == keys.height else (keys.head(0), notes)


def locate_ranks(merged: PartialResult, keys: pl.DataFrame) -> pl.DataFrame:
    """Return the host and switch of each rank, without columns that are unknown for all."""
    members = merged.members.select("member", "run", "host", "switch")
    table = keys.select("member", "run", "rank").join(members, on=["member", "run"]).sort("rank")
    return table.select("rank", *(c for c in ("host", "switch") if table[c].count()))


def average_by_host(times: RankTimes, places: pl.DataFrame, by: str) -> tuple[list[str], RankTimes] | None:
    """Return the names of the hosts, or switches, and the ranks of each averaged as if they were one rank.

    `by` is host or switch. None unless there are several, one of them with several ranks.
    """
    if by not in places.columns:
        return None
    names = places[by].drop_nulls().unique().sort()
    if not 1 < names.len() < places.height:
        return None
    numbers = pl.DataFrame({by: names, "group": pl.Series(range(names.len()), dtype=pl.Int64)})
    group_by_rank = places.join(numbers, on=by).select("rank", "group")
    by_step = times.cells.join(group_by_rank, on="rank").drop("rank").group_by("step", rank="group")
    cells = by_step.agg(pl.exclude("step", "group").mean().round().cast(pl.Int64)).sort("step", "rank")
    ops = (
        times.ops.join(group_by_rank, on="rank")
        .group_by("op", "comm", rank="group")
        .agg(pl.col("total_ns").sum())
    )
    sizes = group_by_rank.group_by(rank="group").agg(ranks=pl.len())
    per_rank = (pl.col("total_ns") / pl.col("ranks")).round().cast(pl.Int64)
    ops = ops.join(sizes, on="rank").with_columns(total_ns=per_rank).drop("ranks")
    return names.to_list(), RankTimes(cells, ops, times.has_start_times)


def combine_ranks(merged: PartialResult, keys: pl.DataFrame) -> RankTimes:
    """Return the times of the ranks of all files in the steps that all of them have."""
    cells = merged.frames["cells"].join(keys, on=_RANK_KEY).drop(_RANK_KEY)
    cells = cells.filter(pl.len().over("step") == keys.height).sort("step", "rank")
    ops = merged.frames["ops"].join(keys, on=_RANK_KEY).drop(_RANK_KEY)
    has_start_times = bool(merged.members["has_start_times"].all())
    return RankTimes(cells.select("step", "rank", pl.exclude("step", "rank")), ops, has_start_times)
