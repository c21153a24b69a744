"""GPU time as a union of intervals: each instant of a device counted once.

Streams run concurrently, so durations must not be added. An instant counts as computation if any kernel
computes, else as communication, else as a copy between memories; the rest of a span is idle.

Exclusive time attributes each instant of a step to one row or to a gap. Among rows of a class, those on the
step's critical path get an instant, followed from its last row back through start dependencies; then the row
that began first. A row's start dependency is what allowed it to start: its predecessor on the same stream if
it began as soon after that as is typical, else whatever ended last before it, on any stream. If the launch
reaches the device after that end, the host was late and is the dependency.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames.run_memo import list_distinct
from tracetui.analysis.frames.time_axis import TimeAxis

COMPUTE: Final = "compute"
COMM: Final = "comm"
TRANSFER: Final = "transfer"
CLASSES: Final = (COMPUTE, COMM, TRANSFER)  # by priority: the first one that runs gets the instant
LAUNCH_COLUMNS: Final = ("launch", "launch_dur", "launcher")  # the host's call: start, duration, thread
ROW: Final = "row"  # index of a row in the events
EVENT_COLUMNS: Final = ("step", "track", "name", *LAUNCH_COLUMNS)
CLASS: Final = pl.Enum(CLASSES)
_SUBSETS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": CLASSES, "c": (COMPUTE,), "cm": (COMPUTE, COMM), "m": (COMM,), "k": (TRANSFER,),
}  # fmt: skip
_TRANSFER_NAMES: Final = (
    r"^(?:Memcpy|Memset|\[CUDA mem|hipMemcpy|hipMemset|CopyHostTo|CopyDeviceTo|FillBuffer)"
)
NO_ROW: Final = -1  # index of a row that does not exist
DIRECT_START_FACTOR: Final = 2  # times the median gap on a stream: a direct start
MAX_DISPATCH_NS: Final = 10_000  # longest gap a device needs between two rows


def select_device_rows(run: Run, columns: Sequence[str] = EVENT_COLUMNS) -> pl.LazyFrame:
    """Return the device's work: `t`, `dur`, `class`, and those of `columns` (or ROW) that the run has.

    Covers (annotations, synchronisation, launches) are left out. Empty if kernels have no start, or the GPU
    was not recorded.
    """
    if not (run.has("t") and run.has("lens") and run.has("dur")):
        no_rows = pl.DataFrame(schema={"t": pl.Int64, "dur": pl.Int64, "class": CLASS})
        return (no_rows.with_row_index(ROW) if ROW in columns else no_rows).lazy()
    columns = [c for c in columns if c == ROW or run.has(c)]
    rows = run.events.lazy().with_row_index(ROW) if ROW in columns else run.events.lazy()
    is_timed = pl.col("t").is_not_null() & (pl.col("dur") > 0)
    rows = rows.filter(pl.col("kind") == "kernel", pl.col("lens") == "gpu", is_timed)
    return rows.select("t", "dur", *columns, work_class(run).alias("class"))


def work_class(run: Run) -> pl.Expr:
    """Return the class of each row from its category; memory kernels named like a copy are transfers."""
    if not run.has("category"):
        return pl.lit(COMPUTE, CLASS)
    names = list_distinct(run, "name").cast(pl.String)
    transfers = names.filter(names.str.contains(_TRANSFER_NAMES)).cast(pl.Categorical())
    category = pl.col("category")
    is_transfer = ((category == "memory") | (category == "copy")) & pl.col("name").is_in(transfers.implode())
    return (
        pl.when(is_transfer).then(pl.lit(TRANSFER, CLASS))
        .when(category == "comm").then(pl.lit(COMM, CLASS))
        .otherwise(pl.lit(COMPUTE, CLASS))
    )  # fmt: skip


def compute_span_breakdown(
    axis: TimeAxis, by: Sequence[str] = (), first_columns: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the time of each group's span by class, each instant counted once; sorted by group.

    `span_ns` is exactly `compute_ns + comm_exposed_ns + transfer_exposed_ns + idle_ns`. `comm_ns` and
    `transfer_ns` are the full unions of their classes, `overlap_ns` the part of both during computation,
    `total_ns` the sum of all durations. `first_columns` are taken from the first row of each group.
    """
    first_rows = axis.rows.filter(axis.is_first).select(*by, *first_columns, begin="t")
    sums = compute_unions_by_class(axis, _SUBSETS)
    unions = first_rows.with_columns(sums, end=pl.col("begin") + axis.span_ns)
    span = (pl.col("end") - pl.col("begin")).fill_null(0)
    breakdown = unions.select(
        *by,
        *first_columns,
        "begin",
        "end",
        span_ns=span,
        busy_ns="all",
        compute_ns="c",
        comm_exposed_ns=pl.col("cm") - pl.col("c"),
        transfer_exposed_ns=pl.col("all") - pl.col("cm"),
        idle_ns=span - pl.col("all"),
        comm_ns="m",
        transfer_ns="k",
        overlap_ns=pl.col("m") + pl.col("k") - (pl.col("all") - pl.col("c")),
        total_ns="total_ns",
    )
    return breakdown.sort(*by) if by else breakdown


def compute_unions_by_class(axis: TimeAxis, subsets: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return for each group of an axis with `class`: `total_ns`, and the union of each subset of classes."""
    present = [c for c in CLASSES if (axis.rows["class"] == c).any()]
    present_by_subset = {name: tuple(c for c in present if c in classes) for name, classes in subsets.items()}
    total_ns = axis.sum_by_group(axis.rows["dur"]).alias("total_ns")
    unions = {
        tuple(present): axis.span_ns - axis.sum_by_group(axis.gap_ns),
        (): pl.zeros(total_ns.len(), pl.Int64, eager=True),
    }
    for classes in present_by_subset.values():
        if classes not in unions:
            is_included = pl.any_horizontal(pl.col("class") == c for c in classes)
            masked = axis.rows.select(pl.when(is_included).then("dur").otherwise(0)).to_series()
            unions[classes] = axis.measure_union(masked)
    columns = [unions[classes].alias(name) for name, classes in present_by_subset.items()]
    return pl.DataFrame([total_ns, *columns])


def find_start_dependencies(rows: pl.DataFrame, delay: int) -> pl.DataFrame:
    """Return for rows by start (`t`, `dur`, perhaps `track`, `launch`): `previous`, `predecessor`, `is_late`.

    `previous` is the row before on the same stream, of overlapping rows the one that ends last; `predecessor`
    the row whose end allowed the start; `is_late` whether the launch came so late that the host delayed it.
    Rows are indices, NO_ROW without one. A launch takes `delay` ns to reach the device.
    """
    stream = pl.col("track").to_physical() if "track" in rows.columns else pl.lit(0)
    end = pl.col("t") + pl.col("dur")
    table = rows.select("t", end=end, stream=stream).with_row_index("row")
    table = table.with_columns(pl.col("row").cast(pl.Int64))
    latest = pl.when(pl.col("end") >= pl.col("end").cum_max()).then("row")
    table = table.with_columns(previous=latest.forward_fill().shift(1).over("stream"))
    ends = table.select("end", any="row").sort("end", maintain_order=True)
    ended = table.select("t").join_asof(ends, left_on="t", right_on="end", check_sortedness=False)
    free = table["end"].gather(table["previous"])
    table = table.with_columns(pl.col("previous").fill_null(NO_ROW), ended["any"], free=free)
    gap = pl.col("t") - pl.col("free")
    typical_gap = table.filter(gap.is_between(1, MAX_DISPATCH_NS)).select(gap.median()).item() or 0
    is_direct = (gap <= DIRECT_START_FACTOR * typical_gap) | (pl.col("free") > pl.col("t"))
    predecessor = pl.when(is_direct).then("previous").otherwise("any").fill_null(NO_ROW)
    table = table.with_columns(predecessor=predecessor)
    if "launch" not in rows.columns:
        return table.select("previous", "predecessor", is_late=pl.lit(value=False))
    released_at = table["end"].gather(table["predecessor"].replace(NO_ROW, None))
    is_late = (rows["launch"] + delay > released_at).fill_null(value=False)
    is_late |= released_at.is_null() & rows["launch"].is_not_null()
    return table.select("previous", "predecessor", is_late=is_late)


def with_exclusive_time(axis: TimeAxis) -> pl.DataFrame:
    """Return the rows of an axis of steps with `exclusive_ns`, and `gap_ns`, the idle time before each row.

    Rows have `step`, `t`, `dur`, `class`, perhaps `track`. A row without a start gets its whole duration,
    and comes last.
    """
    rows = axis.rows
    if rows["t"].has_nulls():
        axis = TimeAxis.from_rows(rows.filter(pl.col("t").is_not_null()), ["step"])
    started = axis.rows.with_columns(axis.axis_ns)
    end, is_critical = pl.col("axis_ns") + pl.col("dur"), _is_on_critical_path(started)
    ends = started.select("class", "axis_ns", end=end, is_critical=is_critical)
    started = axis.rows.with_columns(_compute_exclusive(ends), axis.gap_ns)
    unplaced = rows.filter(pl.col("t").is_null()).with_columns(exclusive_ns="dur", gap_ns=pl.lit(0, pl.Int64))
    return pl.concat([started, unplaced], how="vertical_relaxed") if unplaced.height else started


def _is_on_critical_path(rows: pl.DataFrame) -> pl.Series:
    """True for rows on their step's critical path; for all if no streams overlap.

    Rows come by axis time. Each round doubles the distance followed back.
    """
    if "track" not in rows.columns or rows["track"].n_unique() < 2 or not _has_concurrent_streams(rows):
        return pl.repeat(value=True, n=rows.height, eager=True)
    import numpy as np  # most runs do not need it

    dependencies = find_start_dependencies(rows.select("track", "dur", t="axis_ns"), 0)
    predecessor = dependencies["predecessor"].to_numpy()
    no_row = rows.height
    jumps = np.append(np.where(predecessor == NO_ROW, no_row, predecessor), no_row)
    ends = rows.select("step", end=pl.col("axis_ns") + pl.col("dur")).with_row_index("row")
    steps = ends.group_by("step").agg(pl.len(), last=pl.col("row").get(pl.col("end").arg_max()))
    is_critical = np.zeros(no_row + 1, dtype=bool)
    is_critical[steps["last"].to_numpy()] = True
    for _ in range(int(steps["len"].max() or 0).bit_length()):  # type: ignore[arg-type]
        is_critical[jumps[is_critical]] = True
        jumps = jumps[jumps]
    return pl.Series("is_critical", is_critical[:no_row])


def _has_concurrent_streams(rows: pl.DataFrame) -> bool:
    """True if rows of one class overlap on several streams."""
    classes = rows["class"].unique()
    return any(_has_overlapping_streams(rows.filter(pl.col("class") == c)) for c in classes)


def _has_overlapping_streams(rows: pl.DataFrame) -> bool:
    rows = rows.select("axis_ns", "track", end=pl.col("axis_ns") + pl.col("dur"))
    latest_end = pl.col("end").cum_max().shift(1)
    if not rows.select((pl.col("axis_ns") < latest_end).any()).item():
        return False
    own_end = latest_end.over("track").fill_null(0)
    is_other_stream = pl.col("axis_ns").is_between(own_end, latest_end, closed="left")
    return bool(rows.select(is_other_stream.any()).item())


def _compute_exclusive(rows: pl.DataFrame) -> pl.Series:
    """Return the exclusive time of rows by start, with `axis_ns`, `end`, `class`, `is_critical`."""
    rank_of_class = {name: 2 * i for i, name in enumerate(CLASSES)}
    default = rank_of_class[COMPUTE]
    rank = pl.col("class").replace_strict(rank_of_class, default=default, return_dtype=pl.Int64)
    rows = rows.select("axis_ns", "end", rank=rank + ~pl.col("is_critical")).with_row_index("row")
    exclusive_by_row = pl.zeros(rows.height, pl.Int64, eager=True).alias("exclusive_ns")
    begin = pl.max_horizontal("axis_ns", pl.col("end").cum_max().shift(1))
    for priority in rows["rank"].unique().sort():
        of_rank = rows.filter(pl.col("rank") == priority)
        remainders = of_rank.select("row", begin=begin, until=pl.max_horizontal("end", begin))
        exclusive_ns = remainders["until"] - remainders["begin"]
        higher = _merge_intervals(rows.filter(pl.col("rank") < priority))
        if higher.height:
            hidden_until, hidden_before = (
                _measure_union_before(higher, remainders[c]) for c in ("until", "begin")
            )
            exclusive_ns -= hidden_until - hidden_before
        exclusive_by_row.scatter(remainders["row"], exclusive_ns)
    return exclusive_by_row


def _merge_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the union of intervals that come by start: `first`, `length`, and the length `before` each."""
    latest_end = pl.col("end").cum_max()
    rows = rows.select(first="axis_ns", until=latest_end)
    is_start = (pl.col("first") > pl.col("until").shift(1)).fill_null(value=True)
    is_end = is_start.shift(-1, fill_value=True)
    first, until = pl.col("first").filter(is_start), pl.col("until").filter(is_end)
    union = rows.select(first, length=until - first)
    return union.with_columns(before=pl.col("length").cum_sum() - pl.col("length"))


def _measure_union_before(union: pl.DataFrame, times: pl.Series) -> pl.Series:
    """Return the time that a union covers before each of some sorted times."""
    joined = times.to_frame("axis_ns").join_asof(union, left_on="axis_ns", right_on="first")
    covered = pl.min_horizontal(pl.col("axis_ns") - pl.col("first"), "length") + pl.col("before")
    return joined.select(covered.fill_null(0)).to_series()
