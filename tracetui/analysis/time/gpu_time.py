"""GPU time as a union of intervals: each instant of a device counted once.

Streams run concurrently, so durations must not be added. An instant counts as computation if any kernel
computes, else as communication, else as a copy between memories; the rest of a span is idle.
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
LAUNCH_COLUMNS: Final = (
    "launch",
    "launch_dur",
    "launcher",
)  # the host's call: start, duration, thread
ROW: Final = "row"  # index of a row in the events
EVENT_COLUMNS: Final = ("step", "track", "name", *LAUNCH_COLUMNS)
CLASS: Final = pl.Enum(CLASSES)
_SUBSETS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": CLASSES, "c": (COMPUTE,), "cm": (COMPUTE, COMM), "m": (COMM,), "k": (TRANSFER,),
}  # fmt: skip

_TRANSFER_NAMES: Final = (
    r"^(?:Memcpy|Memset|\[CUDA mem|hipMemcpy|hipMemset|CopyHostTo|CopyDeviceTo|FillBuffer)"
)


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
    rows = rows.filter(
        pl.col("kind") == "kernel", pl.col("lens") == "gpu", pl.col("t").is_not_null(), pl.col("dur") > 0
    )
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


def compute_unions(rows: pl.LazyFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return `begin`, `end` and covered time `busy_ns` of each group, sorted; of all rows without `by`."""
    rows_with_gaps, end = _with_reach(rows, by), pl.col("reach").max()
    begin = pl.col("t").min()
    measures = [begin.alias("begin"), end.alias("end"), (end - begin - pl.col("gap").sum()).alias("busy_ns")]
    if not by:
        return rows_with_gaps.select(measures).collect()
    return rows_with_gaps.group_by(*by).agg(measures).sort(*by).collect()


def _with_reach(rows: pl.LazyFrame, by: Sequence[str]) -> pl.LazyFrame:
    """Return the rows by start with `reach`, the latest end so far, and `gap`, the idle time before each."""
    ordered = rows.sort(*by, "t")
    end = (pl.col("t") + pl.col("dur")).cum_max()
    ordered = ordered.with_columns(reach=end.over(by) if by else end)
    before = pl.col("reach").shift(1)
    before = before.over(by) if by else before
    return ordered.with_columns(gap=(pl.col("t") - before).clip(0).fill_null(0))


def compute_span_breakdown(
    axis: TimeAxis, by: Sequence[str] = (), first_columns: Sequence[str] = ()
) -> pl.DataFrame:
    """Return the time of each group's span by class, each instant counted once; sorted by group.

    `span_ns` is exactly `compute_ns + comm_exposed_ns + transfer_exposed_ns + idle_ns`. `comm_ns` and
    `transfer_ns` are the full unions of their classes, `overlap_ns` the part of both during computation,
    `total_ns` the sum of all durations. `first_columns` are taken from the first row of each group.
    """
    unions = _compute_class_unions(axis, by, first_columns)
    span = (pl.col("end") - pl.col("begin")).fill_null(0)
    return unions.select(
        *by,
        *first_columns,
        "begin",
        "end",
        span_ns=span,
        busy_ns=pl.col("all"),
        compute_ns=pl.col("c"),
        comm_exposed_ns=pl.col("cm") - pl.col("c"),
        transfer_exposed_ns=pl.col("all") - pl.col("cm"),
        idle_ns=span - pl.col("all"),
        comm_ns=pl.col("m"),
        transfer_ns=pl.col("k"),
        overlap_ns=pl.col("m") + pl.col("k") - (pl.col("all") - pl.col("c")),
        total_ns="total_ns",
    )


def _compute_class_unions(axis: TimeAxis, by: Sequence[str], first_columns: Sequence[str]) -> pl.DataFrame:
    """Return for each group begin, end, the sum of durations, and the union of each of _SUBSETS."""
    first_rows = axis.rows.filter(axis.is_first).select(*by, *first_columns, begin="t")
    sums = compute_unions_by_class(axis, _SUBSETS)
    unions = first_rows.with_columns(sums, end=pl.col("begin") + axis.span_ns)
    return unions.sort(*by) if by else unions


def compute_unions_by_class(axis: TimeAxis, subsets: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return for each group of an axis with `class`: `total_ns`, and the union of each subset of classes."""
    present = [c for c in CLASSES if (axis.rows["class"] == c).any()]
    classes_by_subset = {name: [c for c in present if c in classes] for name, classes in subsets.items()}
    columns = {
        name: pl.col("+".join(c)) if c else pl.lit(0, pl.Int64) for name, c in classes_by_subset.items()
    }
    sums = [axis.sum_by_group(axis.rows["dur"]).alias("total_ns")]
    busy_ns = axis.span_ns - axis.sum_by_group(axis.gap_ns)
    distinct_sets = {"+".join(c): c for c in classes_by_subset.values() if c}
    for name, classes in distinct_sets.items():
        is_all = len(classes) == len(present)
        union = busy_ns if is_all else axis.measure_union(_mask_durations(axis.rows, classes))
        sums.append(union.alias(name))
    return pl.DataFrame(sums).select("total_ns", **columns)


def _mask_durations(rows: pl.DataFrame, classes: Sequence[str]) -> pl.Series:
    """Return the durations of rows of these classes, 0 for all others."""
    is_included = pl.any_horizontal(pl.col("class") == c for c in classes)
    return rows.select(pl.when(is_included).then("dur").otherwise(0))[:, 0]
