"""Where the time of a step went, as a ledger: what the device needs at best, and what lies above that.

Every instant of a step has one owner: a kernel's bound (the least time that its bytes, its operations and
its launches take), the time of that kernel above its bound, a copy or a collective that nothing hides, or a
gap with its cause. So the step is exactly the sum of the bound and of all that could be recovered. Of several
devices, which run at once, the busiest stands for a step.
"""

from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from capture.roofs import Roof
from capture.run import Run
from tracetui.analysis import gap_causes, gpu_time, ledger_items, rank_waits, roofline, select, steps
from tracetui.analysis.laid_out import Axis
from tracetui.analysis.ledger_items import CAUSE, COMM, COMPUTE, COPY, LAUNCH, MEMORY, RANK, UNKNOWN
from tracetui.analysis.ledger_rows import of_the_busiest, timed_rows
from tracetui.analysis.own_time import with_own
from tracetui.analysis.stray_rows import strays
from tracetui.look import Look

_EXPOSED: Final = (  # a collective or a copy that nothing hides
    pl.when(pl.col("class") == gpu_time.COMM).then(pl.lit(COMM, CAUSE))
    .when(pl.col("class") == gpu_time.TRANSFER).then(pl.lit(COPY, CAUSE))
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Ledger:
    """The ledger of some steps, in ns over all of them.

    `items` are those of `ledger_items.items`. `step_ns` is `bound_ns` and the sum of their `recoverable_ns`;
    `unmodelled_ns` is the part of the bound of which no work is known: it was taken as it is.
    """

    items: pl.DataFrame
    steps: int
    step_ns: int
    bound_ns: int
    unmodelled_ns: int
    strays: int  # kernels that ran far from the rest of their step, and are left out
    phase: str | None
    part: bool = False  # only the rows that a filter or focus asks for, without gaps


def ledger(run: Run, look: Look) -> Ledger | None:
    """Return the ledger of the phase asked for, else of the one with most steps; None without timed rows."""
    asked = replace(
        Look(phase=look.phase, window=look.window, lens=look.lens, focus=look.focus, filter=look.filter),
        where=look.where,
    )
    if look.group == "layer":
        return _ledger(run, replace(asked, group="layer"))
    return _whole(run) if asked == Look() else _ledger(run, asked)


@select.once
def _whole(run: Run) -> Ledger | None:
    return _ledger(run, Look())


def _ledger(run: Run, look: Look) -> Ledger | None:
    phase = look.phase or main_phase(run)
    chosen = replace(look, phase=phase, group=None)
    rows = timed_rows(run, chosen).with_columns(pl.col("step").fill_null(0)).collect()
    axis = Axis.of(rows, ["step"])
    far = strays(axis)
    rows = with_own(Axis.of(axis.rows.filter(~far), ["step"]) if far.any() else axis)
    count = max(1, rows["step"].n_unique())
    part = look.partial
    if part:
        rows = rows.filter("asked").with_columns(gap=pl.lit(0, pl.Int64))
    if rows.is_empty():
        return None
    rows = _bounded(run, rows)
    own, gaps = int(rows["own"].sum()), int(rows["gap"].sum())
    idle = _gaps(run, rows.filter(pl.col("gap") > 0), on_gpu="device" in rows.columns)
    return Ledger(
        items=ledger_items.items(rows, idle, own + gaps, by_layer=look.group == "layer"),
        steps=count,
        step_ns=own + gaps,
        bound_ns=int(rows["bound"].sum()),
        unmodelled_ns=int(rows.filter(pl.col("cause") == UNKNOWN)["own"].sum()),
        strays=int(far.sum()),
        phase=phase,
        part=part,
    )


def main_phase(run: Run) -> str | None:
    """Return the phase of most steps; None where no step has one."""
    phases = steps.marks(run)["phase"].drop_nulls()
    if phases.is_empty():
        return None
    counts = phases.value_counts().sort("count", "phase", descending=[True, False])
    return str(counts["phase"][0])


def _bounded(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the `cause` of their time, and `bound`, what of it they need at best."""
    roof = roofline.roof_of(run)
    rows = rows.with_columns(_limits(rows, roof, roofline.dtype_of(run)))
    rows = _with_rank_waits(run, rows.with_columns(cause=_EXPOSED.otherwise(pl.col("cause"))))
    bound = pl.min_horizontal("own", "least").round().cast(pl.Int64)
    return rows.with_columns(
        bound=pl.when(pl.col("cause") == UNKNOWN).then("own")
        .when(pl.col("cause").is_in([COMM, COPY, RANK])).then(0)
        .otherwise(bound)
    )  # fmt: skip


def _with_rank_waits(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the cause of those collectives that mostly wait for another rank."""
    waits = rank_waits.waiting(run)
    if waits.is_empty() or "device" not in rows.columns:
        return rows
    found = rows.join(
        waits.unique().with_columns(waits=True), on=waits.columns, how="left", maintain_order="left"
    )
    cause = pl.when(pl.col("waits") & (pl.col("cause") == COMM)).then(pl.lit(RANK, CAUSE)).otherwise("cause")
    return found.with_columns(cause=cause).drop("waits")


def _limits(rows: pl.DataFrame, roof: Roof | None, dtype: str | None) -> list[pl.Expr]:
    """Return expressions of the least ns that each row's work takes, and of what sets that limit."""
    if roof is None:
        return [pl.lit(0.0).alias("least"), pl.lit(UNKNOWN, CAUSE).alias("cause")]
    memory, compute = roof.memory, roof.compute(dtype)
    zero = pl.lit(0.0)
    by_bytes = (pl.col("bytes") / memory * 1e9).fill_null(0.0) if memory else zero
    by_flops = (pl.col("flops") / compute * 1e9).fill_null(0.0) if compute else zero
    floor = pl.col("count") * roof.floor_ns
    best = pl.max_horizontal(by_bytes, by_flops)
    cause = (
        pl.when(best <= 0).then(pl.lit(UNKNOWN, CAUSE))
        .when(floor >= best).then(pl.lit(LAUNCH, CAUSE))
        .when(by_flops > by_bytes).then(pl.lit(COMPUTE, CAUSE))
        .otherwise(pl.lit(MEMORY, CAUSE))
    )  # fmt: skip
    return [pl.max_horizontal(best, floor).alias("least"), cause.alias("cause")]


def _gaps(run: Run, rows: pl.DataFrame, *, on_gpu: bool) -> pl.DataFrame:
    """Return the gaps that these rows end: `gap_ns`, `cause`, `by`, `begin`, `queued`, and `delay_ns`, which
    launches take on this device.
    """
    gaps = rows.select("step", end="t", gap_ns="gap", begin=pl.col("t") - pl.col("gap"), after="op")
    if not on_gpu:
        gap, nothing = pl.lit(ledger_items.GAP, pl.Enum([ledger_items.GAP])), pl.lit(None, pl.Categorical)
        queued = pl.lit(None, pl.Int32)
        return gaps.with_columns(cause=gap, by=nothing, delay_ns=pl.lit(0, pl.Int64), queued=queued)
    known = of_the_busiest(run, gap_causes.gaps(run).lazy()).with_columns(pl.col("step").fill_null(0))
    gaps = _with_known(gaps, known.select("step", "end", "gap_ns", "cause", "by", "queued").collect())
    delay = pl.lit(gap_causes.usual_delay(run), pl.Int64)
    cause = pl.col("cause").fill_null(pl.lit(gap_causes.UNKNOWN, gap_causes.CAUSE))
    return gaps.with_columns(cause, delay_ns=delay)


def _with_known(gaps: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with the columns of those known of the same step, end and length; else null."""
    key = ["step", "end", "gap_ns"]
    if not (gaps["end"].is_sorted() and known["end"].is_sorted() and known["end"].n_unique() == known.height):
        known = known.unique(key, maintain_order=True)
        return gaps.join(known, on=key, how="left", maintain_order="left")
    if all(gaps[c].equals(known[c]) for c in key):
        return gaps.with_columns(known.drop(key))
    found = gaps.join_asof(known.rename({"step": "in", "gap_ns": "long"}), on="end", tolerance=0)
    same = (pl.col("in") == pl.col("step")) & (pl.col("long") == pl.col("gap_ns"))
    told = [pl.when(same).then(c).alias(c) for c in known.columns if c not in key]
    return found.with_columns(told).drop("in", "long")
