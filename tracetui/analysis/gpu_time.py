"""GPU time as a union of intervals: what a device did at each instant, each instant owned once.

Streams run at once, so durations must not be added up. An instant belongs to computation if any kernel
computes, else to communication, else to a copy between memories; what is left of a span is idle.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.facts import names as distinct_names
from tracetui.analysis.laid_out import Axis

COMPUTE: Final = "compute"
COMM: Final = "comm"
TRANSFER: Final = "transfer"
CLASSES: Final = (COMPUTE, COMM, TRANSFER)  # the order in which they own an instant
LAUNCH: Final = ("launch", "launch_dur", "launcher")  # the host's call: its start, its length, its thread
ROW: Final = "row"  # where a row stands among the events
KEPT: Final = ("step", "track", "name", *LAUNCH)
CLASS: Final = pl.Enum(CLASSES)
_SUBSETS: Final[Mapping[str, tuple[str, ...]]] = {
    "all": CLASSES, "c": (COMPUTE,), "cm": (COMPUTE, COMM), "m": (COMM,), "k": (TRANSFER,),
}  # fmt: skip

_TRANSFERS: Final = r"^(?:Memcpy|Memset|\[CUDA mem|hipMemcpy|hipMemset|CopyHostTo|CopyDeviceTo|FillBuffer)"


def device_rows(run: Run, kept: Sequence[str] = KEPT) -> pl.LazyFrame:
    """Return the device's own work: `t`, `dur`, `class`, and those of `kept` (or ROW) that the run has.

    Covers (annotations, synchronisation, launches) are no work and stay out. A run whose kernels have no
    start, or whose GPU was not watched, gives no rows.
    """
    if not (run.has("t") and run.has("lens") and run.has("dur")):
        nothing = pl.DataFrame(schema={"t": pl.Int64, "dur": pl.Int64, "class": CLASS})
        return (nothing.with_row_index(ROW) if ROW in kept else nothing).lazy()
    kept = [c for c in kept if c == ROW or run.has(c)]
    rows = run.events.lazy().with_row_index(ROW) if ROW in kept else run.events.lazy()
    rows = rows.filter(
        pl.col("kind") == "kernel", pl.col("lens") == "gpu", pl.col("t").is_not_null(), pl.col("dur") > 0
    )
    return rows.select("t", "dur", *kept, class_of(run).alias("class"))


def class_of(run: Run) -> pl.Expr:
    """Return the class of each row: by its category, copies told from copy kernels by their names."""
    if not run.has("category"):
        return pl.lit(COMPUTE, CLASS)
    names = distinct_names(run).cast(pl.String)
    transfers = names.filter(names.str.contains(_TRANSFERS)).cast(pl.Categorical())
    category = pl.col("category")
    transfer = ((category == "memory") | (category == "copy")) & pl.col("name").is_in(transfers.implode())
    return (
        pl.when(transfer).then(pl.lit(TRANSFER, CLASS))
        .when(category == "comm").then(pl.lit(COMM, CLASS))
        .otherwise(pl.lit(COMPUTE, CLASS))
    )  # fmt: skip


def unions(rows: pl.LazyFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the first start, the last end and the covered time of each group: `begin`, `end`, `busy_ns`.

    Without `by` there is one row for all; groups come sorted.
    """
    covered, end = _reach(rows, by), pl.col("reach").max()
    begin = pl.col("t").min()
    facts = [begin.alias("begin"), end.alias("end"), (end - begin - pl.col("gap").sum()).alias("busy_ns")]
    return (covered.group_by(*by).agg(facts).sort(*by) if by else covered.select(facts)).collect()


def _reach(rows: pl.LazyFrame, by: Sequence[str]) -> pl.LazyFrame:
    """Return the rows by start with `reach`, the latest end so far, and `gap`, the idle time before each."""
    ordered = rows.sort(*by, "t")
    end = (pl.col("t") + pl.col("dur")).cum_max()
    ordered = ordered.with_columns(reach=end.over(by) if by else end)
    before = pl.col("reach").shift(1)
    before = before.over(by) if by else before
    return ordered.with_columns(gap=(pl.col("t") - before).clip(0).fill_null(0))


def owned(axis: Axis, by: Sequence[str] = (), kept: Sequence[str] = ()) -> pl.DataFrame:
    """Return what each group's span was spent on, every instant owned once; groups come sorted. `kept` are
    columns that stay, as in the first row of the group.

    `span_ns` is exactly `compute_ns + comm_exposed_ns + transfer_exposed_ns + idle_ns`. `comm_ns` and
    `transfer_ns` are the whole unions of their classes, `overlap_ns` the part of both under computation, and
    `total_ns` the sum of all durations.
    """
    table = _unions_of_classes(axis, by, kept)
    span = (pl.col("end") - pl.col("begin")).fill_null(0)
    return table.select(
        *by,
        *kept,
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


def _unions_of_classes(axis: Axis, by: Sequence[str], kept: Sequence[str]) -> pl.DataFrame:
    """Return for each group begin, end, the sum of durations, and the union of each of _SUBSETS."""
    opening = axis.rows.filter(axis.first).select(*by, *kept, begin="t")
    table = opening.with_columns(covered(axis, _SUBSETS), end=pl.col("begin") + axis.spans)
    return table.sort(*by) if by else table


def covered(axis: Axis, subsets: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return for each group of an axis (`class`), in their order, the sum of durations as `total_ns`, and
    under its name what the rows of each subset of classes cover together.
    """
    present = [c for c in CLASSES if (axis.rows["class"] == c).any()]
    kept = {name: [c for c in present if c in classes] for name, classes in subsets.items()}
    of_subsets = {name: pl.col("+".join(c)) if c else pl.lit(0, pl.Int64) for name, c in kept.items()}
    sums = [axis.sums(axis.rows["dur"]).alias("total_ns")]
    for name, classes in {"+".join(c): c for c in kept.values() if c}.items():  # many are the same
        every = len(classes) == len(present)
        union = axis.spans - axis.sums(axis.gaps) if every else axis.covered(_of(axis.rows, classes))
        sums.append(union.alias(name))
    return pl.DataFrame(sums).select("total_ns", **of_subsets)


def _of(rows: pl.DataFrame, classes: Sequence[str]) -> pl.Series:
    """Return the durations of the rows of some classes, 0 for all others."""
    mine = pl.any_horizontal(pl.col("class") == c for c in classes)
    return rows.select(pl.when(mine).then("dur").otherwise(0))[:, 0]
