"""Ranks beside each other: what each works and waits in a step, how far apart they are, and who is behind.

Ranks that decode together end each step together: who has less to do waits in a collective for who has more.
So the skew of a step is that of the work outside of collectives, and a straggler is the rank that the others
wait for. Time is found as for the summary: unions of intervals, by the class of their rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis import gpu_time, select, steps
from tracetui.analysis.laid_out import Axis
from tracetui.analysis.statistics import Floats, paired, verdicts
from tracetui.look import Look

_CELL: Final = ("step", "rank")
_TIMES: Final = ("busy_ns", "work_ns", "comm_ns")
_SPENT: Final = {  # on which classes of rows
    "busy_ns": gpu_time.CLASSES, "work_ns": (gpu_time.COMPUTE, gpu_time.TRANSFER), "comm_ns": (gpu_time.COMM,)
}  # fmt: skip
_NO_CELLS: Final = pl.DataFrame(schema=dict.fromkeys((*_CELL, *_TIMES), pl.Int64))
_TREND: Final = 48  # cells at most


@dataclass(frozen=True, eq=False)
class Ranks:
    """Every rank in every step that all of them have."""

    cells: pl.DataFrame  # step, rank, wall_ns, work_ns, comm_ns, busy_ns
    ops: pl.DataFrame  # rank, op, total_ns: of the work
    overlaps: bool  # whether moments are known, so that what overlaps counts once

    @property
    def numbers(self) -> list[int]:
        """Return the ranks in order."""
        return [int(n) for n in self.cells["rank"].unique().sort()]

    @property
    def steps(self) -> int:
        """Return how many steps all ranks have."""
        return self.cells["step"].n_unique()

    def work(self) -> Floats:
        """Return ranks × steps, in ns."""
        ordered = self.cells.sort("rank", "step")["work_ns"]
        return ordered.to_numpy().astype(float).reshape(len(self.numbers), -1)


def compared(run: Run, look: Look) -> Ranks:
    """Return the ranks of a run in the steps looked at; a step that a rank lacks is left out."""
    rows = _rows(run, look)
    timed = run.has("t") and rows["t"].null_count() == 0
    rows = rows.with_columns(comm=pl.col("class") == gpu_time.COMM)
    cells = _cells(rows, timed) if rows.height else _NO_CELLS
    cells = cells.filter(pl.len().over("step") == pl.col("rank").n_unique())
    cells = cells.join(_walls(run), on=_CELL, how="left").sort(*_CELL)
    kept = pl.col("step").is_in(cells["step"].unique().implode())
    return Ranks(cells, _by_role(rows.lazy().filter(~pl.col("comm") & kept), run), timed)


def phase_of(run: Run, look: Look) -> str | None:
    """Return the phase looked at: the one chosen, else decode; None where the run has no decode."""
    return look.phase or ("decode" if "decode" in select.phases(run) else None)


def _rows(run: Run, look: Look) -> pl.DataFrame:
    """Return what ranks do in steps, with the rank; waits for the device are neither work nor comm."""
    kept = [c for c in ("name", "op", "category", "t", "dur", "step", "track") if run.has(c)]
    rows = select.timed(run, look).filter(pl.col("step").is_not_null())
    rows = rows.select(*kept, gpu_time.class_of(run).alias("class"))
    if run.has("category"):
        rows = rows.filter(pl.col("category").ne_missing("wait"))
    phase = phase_of(run, look)
    if phase is not None:
        asked = steps.marks(run).filter(pl.col("phase") == phase).select("step")
        rows = rows.join(asked.lazy(), on="step", how="semi")
    return select.with_rank(run, rows).drop_nulls("rank").collect()


def _cells(rows: pl.DataFrame, timed: bool) -> pl.DataFrame:
    """Return step, rank → busy_ns, work_ns, comm_ns; where moments are known, what overlaps counts once."""
    if not timed:
        dur, comm = pl.col("dur"), pl.col("comm")
        spent = {"busy_ns": dur, "work_ns": dur.filter(~comm), "comm_ns": dur.filter(comm)}
        return rows.group_by(_CELL).agg(**{name: part.sum() for name, part in spent.items()})
    axis = Axis.of(rows.select(*_CELL, "t", "dur", "class"), ["rank", "step"])
    sums = gpu_time.covered(axis, _SPENT)
    return axis.rows.filter(axis.first).select(_CELL).hstack(sums.select(_TIMES))


def _walls(run: Run) -> pl.DataFrame:
    """Return step, rank → the wall time that the rank's own step row tells."""
    rows = run.events.lazy().filter(
        (pl.col("kind") == "step") & pl.col("dur").is_not_null() & pl.col("step").is_not_null()
    )
    return (
        select.with_rank(run, rows)
        .drop_nulls("rank")
        .group_by(_CELL)
        .agg(wall_ns=pl.col("dur").max())
        .collect()
    )


def _by_role(rows: pl.LazyFrame, run: Run) -> pl.DataFrame:
    """Return rank, op → time; rows without a role go by their name."""
    labels = [c for c in ("op", "name") if run.has(c)]
    sums = rows.group_by("rank", *labels).agg(pl.col("dur").sum())
    role = pl.coalesce(pl.col(c).cast(pl.String) for c in labels)
    return sums.group_by("rank", op=role).agg(total_ns=pl.col("dur").sum()).collect()


def rank_table(ranks: Ranks, look: Look) -> pl.DataFrame:
    """Return one row a rank: its means of a step, and how far its work is behind that of the others."""
    work = ranks.work()
    order = np.sort(work, axis=0)
    longest = (work == order[-1]) & (order[-1] > order[-2])
    per_step = (
        ranks.cells.group_by("rank")
        .agg(
            steps=pl.len(),
            wall_ns=_mean("wall_ns"),
            work_ns=_mean("work_ns"),
            comm_ns=_mean("comm_ns"),
            comm_share=pl.col("comm_ns").sum() / pl.col("busy_ns").sum(),
            exposed_share=(pl.col("busy_ns") - pl.col("work_ns")).sum() / pl.col("busy_ns").sum(),
        )
        .sort("rank")
    )
    return (
        per_step.hstack([pl.Series("slowest", longest.sum(axis=1))])
        .hstack(_behind(work, look))
        .hstack([pl.Series("trend", _trends(work))])
    )


def _mean(column: str) -> pl.Expr:
    return pl.col(column).mean().round().cast(pl.Int64)


def _behind(work: Floats, look: Look) -> pl.DataFrame:
    """Return each rank's work against the median of the others in the same steps, with evidence."""
    others = median_of_others(work)
    seen = paired(others, work)
    floor = look.terms.threshold * seen.median_a
    figures = {"behind_ns": seen.delta, "behind_low_ns": seen.low, "behind_high_ns": seen.high}
    columns = [pl.Series(k, v).fill_nan(None).round().cast(pl.Int64) for k, v in figures.items()]
    share = np.divide(
        seen.delta, seen.median_a, out=np.full_like(seen.delta, np.nan), where=seen.median_a > 0
    )
    return pl.DataFrame(
        [
            *columns,
            pl.Series("behind_share", share).fill_nan(None),
            pl.Series("p", seen.p_adjusted).fill_nan(None),
            pl.Series("verdict", verdicts(seen, floor)),
        ]
    )


def median_of_others(work: Floats) -> Floats:
    """Return of each rank and step the median of all other ranks in the step; there are two ranks or more."""
    order = np.sort(work, axis=0)
    place = np.argsort(np.argsort(work, axis=0, kind="stable"), axis=0, kind="stable")

    def remaining(at: int) -> Floats:
        """Return what stands at a place of the order once a rank itself is taken out of it."""
        return np.asarray(np.where(place > at, order[at], order[at + 1]), dtype=float)

    others = len(work) - 1
    middle: Floats = (remaining((others - 1) // 2) + remaining(others // 2)) / 2
    return middle


def _trends(work: Floats) -> list[list[float]]:
    """Return the work of each rank over the steps, in a few cells."""
    cells = np.array_split(work, min(_TREND, work.shape[1]), axis=1)
    means = np.stack([cell.mean(axis=1) for cell in cells], axis=1)
    return [[float(x) for x in rank] for rank in means]


def step_skews(ranks: Ranks) -> pl.DataFrame:
    """Return one row a step: which ranks worked least and most, and how far they are apart."""
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
        .sort("step")
        .select(
            "step",
            "fastest",
            "slowest",
            "fastest_ns",
            "slowest_ns",
            "skew_ns",
            "skew_share",
            "wall_ns",
            "by_rank",
        )
    )


def excess(ranks: Ranks, rank: int) -> tuple[str, int] | None:
    """Return the role in which a rank takes the most time a step beyond the median of the others, and this
    time; None where there is none.
    """
    own = pl.col("total_ns").filter(pl.col("rank") == rank).sum()
    others = pl.col("total_ns").filter(pl.col("rank") != rank).median().fill_null(0)
    by_op = ranks.ops.group_by("op").agg(over=((own - others) / ranks.steps).round().cast(pl.Int64))
    most = by_op.drop_nulls("op").sort("over", "op", descending=[True, False]).head(1).rows()
    return (str(most[0][0]), int(most[0][1])) if most and most[0][1] > 0 else None
