"""Split each collective over ranks into arrival and transfer.

A collective ends on all ranks at once, so its ends align the clocks of the ranks: each rank is shifted by the
median of how much later its collectives end than their mean end. Then

    arrival   from the first rank's start to the last one's: somebody was waited for
    transfer  from the last rank's start to the end: the link

The k-th collective of a name and size on one rank is the k-th on all. Which rank is late needs no common
clock: its own time since the collective before, between end and start, is tested by permutation as that of
the steps in `ranks`.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from capture.merge_ranks import move_to_rank_tracks
from capture.native.schema import HOST_COLLECTIVE_PATTERN
from capture.run import Run
from tracetui.analysis.frames.rank_permutation import MIN_STEPS, compute_late_p
from tracetui.analysis.frames.selection import list_lenses, list_ranks
from tracetui.analysis.frames.statistics import ALPHA, Floats
from tracetui.analysis.merged.partial_results import MEMBERS
from tracetui.analysis.ranks import resolve_phase, select_rank_rows
from tracetui.analysis.time import gpu_time
from tracetui.look import Look

MOSTLY_SHARE: Final = 2 / 3  # of arrival and transfer: the larger one is the verdict, else mixed
CAUSE_MIN_SHARE: Final = 0.5  # of a delay: an op with less does not explain it
BEST_QUANTILE: Final = 0.1  # of transfers of one size: the best of the link, without its luckiest call
CLOCK_MIN_MAD: Final = (
    10.0  # of a rank's ends: a smaller offset is no other clock (5 where ranks wait for a core)
)
MIN_LATE_SHARE: Final = 0.02  # of the time of the collective: a smaller delay is no reason
CALL_KEY: Final = ("member", "run", "own_rank", "name", "message", "number")
OP_KEY: Final = ("member", "run", "own_rank", "name", "message", "op")
_GROUP: Final = ("name", "message")
UNKNOWN_SIZE: Final = "–"
_OPERATOR: Final = r"^c10d::"  # the call that starts a collective on a CPU
ARRIVAL, TRANSFER, MIXED, UNKNOWN = "arrival", "transfer", "mixed", "unknown"


def collect_calls(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return the collectives of each rank of a run, and the ops before them."""
    has_several = len(list_ranks(run)) > 1
    if not has_several:
        run = Run(run.name, run.meta, move_to_rank_tracks(run, 0, 0), run.log, run.tables)
    calls, ops = find_calls(run, look)
    ids = (pl.lit(0, pl.Int64).alias("member"), pl.col("rank").cast(pl.Int64).alias("own_rank"))
    facts = {
        "has_several_ranks": [has_several],
        "phase": pl.Series([resolve_phase(run, look)], dtype=pl.String),
    }
    return {
        "calls": calls.select(*ids, pl.exclude("rank")),
        "ops": ops.select(*ids, pl.exclude("rank")),
        MEMBERS: pl.DataFrame(facts),
    }


def find_calls(run: Run, look: Look) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the collectives of the ranks, and the time of the ops before them.

    Collectives have `rank`, `name`, `message`, `number`, `t`, `dur` and `own_ns`. The last is
    the time since the collective before ended on this rank, null for the first.
    """
    rows = select_rank_rows(run, look).drop_nulls("t").sort("rank", "t")
    is_comm = pl.col("class") == gpu_time.COMM
    comm = rows.filter(is_comm).with_columns(pl.col("name").cast(pl.String))
    calls = comm.filter(~pl.col("name").str.contains(_OPERATOR))
    if "gpu" not in list_lenses(run):
        calls = calls.filter(pl.col("name").str.contains(HOST_COLLECTIVE_PATTERN))
        calls = _join_operators(calls, comm)
    else:
        shape = pl.col("shape").cast(pl.String) if "shape" in calls.columns else pl.lit(None, pl.String)
        calls = calls.with_columns(message=shape)
    calls = calls.with_columns(pl.col("message").fill_null(UNKNOWN_SIZE))
    end = pl.col("t") + pl.col("dur")
    calls = calls.with_columns(
        number=pl.int_range(pl.len(), dtype=pl.Int64).over("rank", *_GROUP),
        own_ns=pl.col("t") - end.cum_max().shift(1).over("rank"),
    ).select("rank", *_GROUP, "number", "t", "dur", "own_ns")
    return calls, _sum_ops_before(rows.filter(~is_comm), calls)


def _join_operators(calls: pl.DataFrame, comm: pl.DataFrame) -> pl.DataFrame:
    """Return the spans of a CPU's backend with `message` and start of the calls of the process.

    The k-th span is the k-th call; a span starts when the thread of the backend gets a core, which may be
    later. Unchanged where the counts differ.
    """
    operators = comm.filter(pl.col("name").str.contains(_OPERATOR))
    number = pl.int_range(pl.len()).over("rank")
    message = pl.col("shape").cast(pl.String) if "shape" in comm.columns else pl.lit(None, pl.String)
    operators = operators.select("rank", k=number, called=pl.col("t"), message=message)
    joined = calls.with_columns(k=number).join(operators, on=["rank", "k"], how="left", maintain_order="left")
    is_same = pl.col("called").is_not_null().all().over("rank") & (
        pl.col("called") <= pl.col("t")
    ).all().over("rank")
    start = pl.when(is_same).then(pl.col("called")).otherwise(pl.col("t"))
    return joined.with_columns(t=start, dur=pl.col("t") + pl.col("dur") - start).drop("k", "called")


def _sum_ops_before(rows: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each op before the collectives of a name and size, per rank."""
    labels = [pl.col(c).cast(pl.String) for c in ("op", "name") if c in rows.columns]
    work = rows.select("rank", "t", "dur", op=pl.coalesce(labels)).sort("t")
    starts = calls.sort("t").select("rank", "t", *_GROUP)
    placed = work.join_asof(starts, on="t", by="rank", strategy="forward", check_sortedness=False)
    placed = placed.filter(pl.col("message").is_not_null())
    return placed.group_by("rank", *_GROUP, "op").agg(total_ns=pl.col("dur").sum())


def split_collectives(calls: pl.DataFrame, ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return a row per collective and message size, the longest first, and how many calls some ranks lack.

    Both frames have `rank`.
    """
    ranks = calls["rank"].n_unique()
    complete = _select_complete(calls)
    left_out = calls.height - complete.height
    if complete.is_empty() or ranks < 2:
        return pl.DataFrame(), left_out
    aligned = complete.with_columns(t=pl.col("t") - _measure_clock_shift(complete))
    rows = [_split_group(group, ops) for group in _iter_groups(aligned)]
    table = pl.DataFrame(rows, infer_schema_length=None)
    return table.sort("total_ns", "name", descending=[True, False]), left_out


def find_arrivals(run: Run, phase: str | None) -> pl.DataFrame:
    """Return the calls of a phase: `rank`, `t`, `end`, and when the `last` rank came to them.

    Times are those of the rank's own clock. Calls that not all ranks have, and those whose ends lie too far
    apart for a split, are left out.
    """
    calls, _ = find_calls(run, Look(phase=phase))
    complete = _select_complete(calls)
    if complete.is_empty() or complete["rank"].n_unique() < 2:
        return pl.DataFrame(schema={"rank": pl.Int64, "t": pl.Int64, "end": pl.Int64, "last": pl.Int64})
    complete = complete.with_columns(shift=_measure_clock_shift(complete))
    call, start, end = (*_GROUP, "number"), pl.col("t") - pl.col("shift"), pl.col("t") + pl.col("dur")
    own_end = end - pl.col("shift")
    spread, split = own_end.max() - own_end.min(), own_end.median() - start.min()
    table = complete.with_columns(
        end=end,
        last=start.max().over(call) + pl.col("shift"),
        spread=spread.over(call),
        split=split.over(call),
    )
    is_aligned = (pl.col("spread").median() <= pl.col("split").median() / 2).over(_GROUP)
    return table.filter(is_aligned).select("rank", "t", "end", "last")


def _select_complete(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives that all ranks ran equally often: of others, the k-th need not be the k-th."""
    of_rank = calls.group_by(*_GROUP, "rank").len().group_by(_GROUP)
    has_all = pl.len() == calls["rank"].n_unique()
    equal = of_rank.agg(has_all=has_all, is_equal=pl.col("len").n_unique() == 1)
    return calls.join(equal.filter("has_all", "is_equal"), on=_GROUP, how="semi")


def _measure_clock_shift(calls: pl.DataFrame) -> pl.Series:
    """Return for each call how much later the clock of its rank is: collectives end together.

    A rank whose ends scatter by as much as they are off has no other clock: it waited for a core.
    """
    first = pl.lit(calls["t"].min())  # times relative to it keep their digits in a mean
    end = (pl.col("t") + pl.col("dur") - first).cast(pl.Float64)
    off = calls.select("rank", off=end - end.mean().over(*_GROUP, "number"))
    median = pl.col("off").median()
    by_rank = off.group_by("rank").agg(offset=median, scatter=(pl.col("off") - median).abs().median())
    is_clock = pl.col("offset").abs() > CLOCK_MIN_MAD * pl.col("scatter")
    shift = pl.when(is_clock).then(pl.col("offset").round().cast(pl.Int64)).otherwise(0)
    shifts = by_rank.select("rank", shift=shift)
    return calls.join(shifts, on="rank", how="left", maintain_order="left")["shift"]


def _iter_groups(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    ordered = calls.sort("rank", "number")
    for _, group in ordered.group_by(_GROUP, maintain_order=True):
        yield group


def _split_group(group: pl.DataFrame, ops: pl.DataFrame) -> dict[str, Any]:
    """Return the row of the collectives of one name and size; times are means per call, as those of steps."""
    ranks = group["rank"].unique().sort().to_list()
    starts, durations = (group[c].to_numpy().astype(float).reshape(len(ranks), -1) for c in ("t", "dur"))
    base = starts.min()
    starts = starts - base
    ends = np.median(starts + durations, axis=0)
    last = starts.max(axis=0)
    arrival, transfer = last - starts.min(axis=0), np.maximum(ends - last, 0.0)
    best = float(np.quantile(transfer, BEST_QUANTILE))
    share = np.median(arrival / np.maximum(arrival + transfer, 1.0))
    late = _find_late_rank(group, ranks, starts, float(np.median(arrival + transfer)))
    name, message = group.select(_GROUP).row(0)
    cause = _find_cause(ops, name, message, late, starts.shape[1]) if late else None
    verdict = ARRIVAL if share >= MOSTLY_SHARE else TRANSFER if share <= 1 - MOSTLY_SHARE else MIXED
    is_unknown = starts.shape[1] < MIN_STEPS or not _is_aligned(starts, durations, arrival + transfer)
    return {
        "name": name,
        "message": message,
        "calls": starts.shape[1],
        "verdict": UNKNOWN if is_unknown else verdict,
        "arrival_ns": round(float(arrival.mean())),
        "transfer_ns": round(float(transfer.mean())),
        "best_ns": round(best),
        "arrival_share": float(share),
        "rank": late[0] if late else None,
        "late_ns": round(late[1]) if late else None,
        "late_calls": late[2] if late else None,
        "p": late[3] if late else None,
        "cause": cause,
        "total_ns": round(float((arrival + transfer).sum())),
    }


def _is_aligned(starts: Floats, durations: Floats, split_ns: Floats) -> bool:
    """Return whether the ends lie together within half of what is split."""
    ends = starts + durations
    return float(np.median(np.ptp(ends, axis=0))) <= float(np.median(split_ns)) / 2


def _find_late_rank(
    group: pl.DataFrame, ranks: list[int], starts: Floats, call_ns: float
) -> tuple[int, float, int, float] | None:
    """Return the late rank, its delay, how often it was last, and p; None if no rank is late evidently.

    The delay is the mean, over the calls in which it was last, of its start less the median of the others.
    """
    before = group["own_ns"].to_numpy().astype(float).reshape(len(ranks), -1)
    has_previous = ~np.isnan(before).any(axis=0)
    p = compute_late_p(np.maximum(before[:, has_previous], 1.0))
    if np.isnan(p).all():
        return None
    at = int(np.lexsort((-np.nanmean(before, axis=1), p))[0])
    others = np.median(np.delete(starts, at, axis=0), axis=0)
    delays, is_last = starts[at] - others, starts.argmax(axis=0) == at
    if p[at] >= ALPHA or np.median(delays) < MIN_LATE_SHARE * call_ns:
        return None
    return ranks[at], float(delays[is_last].mean()), int(is_last.sum()), float(p[at])


def _find_cause(
    ops: pl.DataFrame, name: str, message: str, late: tuple[int, float, int, float], count: int
) -> str:
    """Return the op that makes up most of the delay of the late rank, else `no kernel`."""
    rank, delay, *_ = late
    before = ops.filter(pl.col("name") == name, pl.col("message") == message)
    others = max(1, ops["rank"].n_unique() - 1)
    is_late = pl.col("rank") == rank
    by_op = before.group_by("op").agg(
        excess=pl.col("total_ns").filter(is_late).sum() - pl.col("total_ns").filter(~is_late).sum() / others
    )
    largest = by_op.drop_nulls().sort("excess", descending=True).head(1).rows()
    if largest and largest[0][1] / count >= CAUSE_MIN_SHARE * delay:
        return str(largest[0][0])
    return "no kernel"
