"""Where the time of a step went, as a ledger: what the device needs at best, and what lies above that.

Every instant of a step has one owner: a kernel's bound (the least time that its bytes, its operations and
its launches take), the time of that kernel above its bound, or a gap. So the step is exactly the sum of the
bound and of all that could be recovered.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.classify.short_names import short_names
from capture.roofs import Roof
from capture.run import Run
from tracetui.analysis import roofline, select, steps
from tracetui.analysis.stray_rows import with_strays
from tracetui.look import Look

GOOD: Final = 0.8  # of the roof, which well-tuned kernels reach: the careful end of what is recoverable
GAP: Final = "gap"
BOUND: Final = "bound"
MEMORY, COMPUTE, LAUNCH, UNKNOWN = "memory", "compute", "launch", "no model"


@dataclass(frozen=True, eq=False)
class Ledger:
    """The ledger of some steps, in ns over all of them.

    `items` has a row an op and cause: `op`, `cause`, `count`, `own_ns` (the time of its kernels, or of the
    gap), `recoverable_ns` (its part above the bound), `low_ns` (what is left to recover down to GOOD of the
    roof). `step_ns` is `bound_ns` and the sum of `recoverable_ns`; `unmodelled_ns` is the part of the bound
    of which no work is known: it was taken as it is.
    """

    items: pl.DataFrame
    steps: int
    step_ns: int
    bound_ns: int
    unmodelled_ns: int
    strays: int  # kernels that ran far from the rest of their step, and are left out
    phase: str | None


def ledger(run: Run, look: Look) -> Ledger | None:
    """Return the ledger of the phase asked for, else of the one with most steps; None without timed rows."""
    phase = look.phase or main_phase(run)
    chosen = Look(phase=phase, window=look.window, lens=look.lens, focus=look.focus, filter=look.filter)
    judged = with_strays(_timed_rows(run, chosen), ["step"])
    rows = _owned(judged.filter(~pl.col("stray")))
    if rows.is_empty():
        return None
    roof = roofline.roof_of(run)
    rows = rows.with_columns(_limits(rows, roof, roofline.dtype_of(run)))
    bound = pl.min_horizontal("own", "least").round().cast(pl.Int64)
    rows = rows.with_columns(bound=pl.when(pl.col("cause") == UNKNOWN).then("own").otherwise(bound))
    items = pl.concat([_above(rows), _gaps(rows)]).sort("recoverable_ns", "op", descending=[True, False])
    own, gaps = int(rows["own"].sum()), int(rows["gap"].sum())
    return Ledger(
        items=items,
        steps=max(1, rows["step"].n_unique()),
        step_ns=own + gaps,
        bound_ns=int(rows["bound"].sum()),
        unmodelled_ns=int(rows.filter(pl.col("cause") == UNKNOWN)["own"].sum()),
        strays=int(judged["stray"].sum()),
        phase=phase,
    )


def main_phase(run: Run) -> str | None:
    """Return the phase of most steps; None where no step has one."""
    phases = steps.marks(run)["phase"].drop_nulls()
    if phases.is_empty():
        return None
    counts = phases.value_counts().sort("count", "phase", descending=[True, False])
    return str(counts["phase"][0])


def _timed_rows(run: Run, look: Look) -> pl.DataFrame:
    """Return the rows under one lens: step, t, dur, count, op (else the short name), flops, bytes."""
    rows = select.timed(run, look).filter(pl.col("dur") > 0)
    names = run.events["name"].unique().cast(pl.String).drop_nulls().to_list()
    name = pl.col("name").cast(pl.String).replace(short_names(names))
    op = pl.coalesce(pl.col("op").cast(pl.String), name) if run.has("op") else name
    ints = [(pl.col(c) if run.has(c) else pl.lit(None, pl.Int64)).alias(c) for c in ("step", "t", "count")]
    work = [(pl.col(c) if run.has(c) else pl.lit(None, pl.Float64)).alias(c) for c in ("flops", "bytes")]
    table = rows.select("dur", op.alias("op"), *ints, *work).collect()
    if run.has("step") and table["step"].null_count() < table.height:
        table = table.filter(pl.col("step").is_not_null())  # what lies between steps is no part of one
    return table.with_columns(pl.col("count").fill_null(1), pl.col("step").fill_null(0))


def _owned(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by start with `own`, the time that no earlier row has, and the `gap` before each.

    A row without a start owns its whole duration.
    """
    ordered = rows.sort("step", "t", nulls_last=True).with_columns(end=pl.col("t") + pl.col("dur"))
    before = pl.col("end").cum_max().shift(1).over("step")
    ordered = ordered.with_columns(before=before.fill_null(strategy="forward").over("step"))
    start = pl.max_horizontal("t", "before")
    own = pl.when(pl.col("t").is_null()).then("dur").otherwise((pl.col("end") - start).clip(0))
    gap = (pl.col("t") - pl.col("before")).clip(0).fill_null(0)
    return ordered.with_columns(own=own, gap=gap)


def _limits(rows: pl.DataFrame, roof: Roof | None, dtype: str | None) -> list[pl.Expr]:
    """Return expressions of the least ns that each row's work takes, and of what sets that limit."""
    if roof is None:
        return [pl.lit(0.0).alias("least"), pl.lit(UNKNOWN).alias("cause")]
    memory, compute = roof.memory, roof.compute(dtype)
    zero = pl.lit(0.0)
    by_bytes = (pl.col("bytes") / memory * 1e9).fill_null(0.0) if memory else zero
    by_flops = (pl.col("flops") / compute * 1e9).fill_null(0.0) if compute else zero
    floor = pl.col("count") * roof.floor_ns
    best = pl.max_horizontal(by_bytes, by_flops)
    cause = (
        pl.when(best <= 0).then(pl.lit(UNKNOWN))
        .when(floor >= best).then(pl.lit(LAUNCH))
        .when(by_flops > by_bytes).then(pl.lit(COMPUTE))
        .otherwise(pl.lit(MEMORY))
    )  # fmt: skip
    return [pl.max_horizontal(best, floor).alias("least"), cause.alias("cause")]


def _above(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a row an op and cause: what its kernels took, and what of that lies above their bounds."""
    low = (pl.col("own") - (pl.col("bound") / GOOD)).clip(0).sum().round().cast(pl.Int64)
    return (
        rows.group_by("op", "cause")
        .agg(
            pl.col("count").sum(),
            own_ns=pl.col("own").sum(),
            recoverable_ns=(pl.col("own") - pl.col("bound")).sum(),
            low_ns=low,
        )
        .with_columns(low_ns=pl.min_horizontal("low_ns", "recoverable_ns"))
        .select(*_ITEM)
    )


def _gaps(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row for the gaps inside steps, none where there are none."""
    gaps = rows.filter(pl.col("gap") > 0)
    total = int(gaps["gap"].sum())
    row = {"op": GAP, "cause": GAP, "count": gaps.height, "own_ns": total, "low_ns": 0}
    row["recoverable_ns"] = total
    return pl.DataFrame([row] if total else [], schema=_ITEM)


_ITEM: Final = {
    "op": pl.String(), "cause": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(),
    "recoverable_ns": pl.Int64(), "low_ns": pl.Int64(),
}  # fmt: skip
