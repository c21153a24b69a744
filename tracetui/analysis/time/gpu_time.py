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
