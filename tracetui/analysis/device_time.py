"""What the devices of a run did: busy and idle in each step, between the steps, and outside of them.

A step's window on a device is from the first start to the last end of the kernels that it launched, without
those that ran far from the rest (`stray_rows`). Of several devices, which run at once, the busiest stands for
a step.
"""

from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.devices import device_of
from capture.run import Run
from tracetui import units
from tracetui.analysis import gpu_time, select
from tracetui.analysis.facts import distinct
from tracetui.analysis.gpu_time import ROW
from tracetui.analysis.laid_out import Axis
from tracetui.analysis.lookup import looked_up
from tracetui.analysis.stray_rows import FAR, with_strays

MEASURES: Final = ("busy_ns", "idle_ns", "comm_exposed_ns", "transfer_exposed_ns")
MOSTLY: Final = 0.95  # of the idle time: so much of it lies in the gaps that are named
FEW: Final = 9  # gaps that are worth a word of their own

SIDES: Final = ("early", "late", "before", "between", "after")
SUMMED: Final = (
    "span_ns",
    "busy_ns",
    "compute_ns",
    "transfer_ns",
    "comm_ns",
    "comm_exposed_ns",
    "transfer_exposed_ns",
    "gaps",
    "in_gaps_ns",
)

_WINDOW: Final = ("begin", "end", "span_ns", *MEASURES)
DEVICE: Final = "device"

_NO_WINDOWS: Final = pl.DataFrame(schema={"step": pl.Int64, **dict.fromkeys(_WINDOW, pl.Int64)})


@dataclass(frozen=True)
class Usage:
    """What one device did in the time looked at."""

    device: str
    span_ns: int
    busy_ns: int
    compute_ns: int
    transfer_ns: int
    comm_ns: int
    comm_exposed_ns: int
    transfer_exposed_ns: int
    steps: int  # whose windows make up the time; 0 where it is the whole extent of the device's rows
    gaps: int  # the few that make up nearly all of the idle time, else all of them
    in_gaps_ns: int

    @property
    def idle_ns(self) -> int:
        """Return the time in which nothing ran."""
        return self.span_ns - self.busy_ns


class Strays(Struct, frozen=True):
    """Kernels outside of all windows, on one side of the steps, or far from the rest of their own step."""

    side: str  # before, between or after the steps; early or late in their own step
    count: int
    dur_ns: int
    away_ns: int  # the longest way from one of them to the first or last step, or to the rest of its own


@select.once
def by_step(run: Run) -> pl.DataFrame:
    """Return one row a step, whose kernels all have a start: its window on the device and MEASURES."""
    if not watched(run) or not has_steps(run):
        return _NO_WINDOWS
    table = busiest(run).select("step", *_WINDOW)
    return table.join(_incomplete(run), on="step", how="anti").sort("step")


@select.once
def busiest(run: Run) -> pl.DataFrame:
    """Return the window of the device that stands for each step, the busiest; without steps one in all."""
    table = measured(run).windows.sort("busy_ns", descending=True, maintain_order=True)
    return table.group_by("step", maintain_order=True).first() if "step" in table.columns else table.head(1)


def speaks(table: pl.DataFrame, total: str) -> bool:
    """Tell whether windows say more than a sum of durations: something overlapped, waited or was copied."""
    apart = pl.sum_horizontal("idle_ns", "transfer_exposed_ns", "comm_exposed_ns") > 0
    return bool(table.select(((pl.col("busy_ns") != pl.col(total)) | apart).any()).item())


@select.once
def usages(run: Run) -> tuple[Usage, ...]:
    """Return what each device did in the windows of the steps; of a run without steps, in all its time.

    Nothing where some kernels have no start, and where durations say it all.
    """
    if not watched(run) or select.folded(run) or _incomplete(run).height:
        return ()
    facts = measured(run)
    if facts.windows.is_empty() or not speaks(facts.windows, "total_ns"):
        return ()
    idle = {
        device: gaps["gap_ns"] for (device,), gaps in facts.gaps.select(DEVICE, "gap_ns").group_by(DEVICE)
    }
    return tuple(
        _usage(str(device or "GPU"), part, idle[device] if device in idle else pl.Series([0]))
        for (device,), part in facts.windows.group_by(DEVICE, maintain_order=True)
    )


def _usage(device: str, windows: pl.DataFrame, gaps: pl.Series) -> Usage:
    sums = {c: int(windows[c].sum()) for c in SUMMED if c in windows.columns}
    largest, idle = gaps.top_k(FEW).sort(descending=True), int(gaps.sum())
    count = int((largest.cum_sum() < MOSTLY * idle).sum()) + 1 if idle else 0
    few = count <= FEW
    steps = windows.height if "step" in windows.columns else 0
    named = int(largest.head(count).sum()) if few else idle
    return Usage(device, **sums, steps=steps, gaps=count if few else gaps.len(), in_gaps_ns=named)


def between_ns(windows: pl.DataFrame) -> int:
    """Return the time that lies in no step's window, from the first to the last of them."""
    ordered = windows.sort("begin")
    reach = ordered["end"].cum_max().shift(1)
    return int((ordered["begin"] - reach).clip(lower_bound=0).sum())


def strays(run: Run) -> list[Strays]:
    """Return the kernels that no step launched: before the first step, between steps, after the last; and
    those that ran far from the rest of their step.
    """
    windows = by_step(run)
    if windows.is_empty():
        return []
    first, last = windows["begin"].min(), windows["end"].max()
    end = pl.col("t") + pl.col("dur")
    side = pl.when(end <= first).then(pl.lit("before")).when(pl.col("t") >= last).then(pl.lit("after"))
    away = pl.max_horizontal((first - end).max(), (pl.col("t") - last).max())
    loose = gpu_time.device_rows(run).filter(pl.col("step").is_null())
    table = (
        loose.with_columns(side=side.otherwise(pl.lit("between")))
        .group_by("side")
        .agg(count=pl.len(), dur_ns=pl.col("dur").sum(), away_ns=away)
        .collect()
    )
    parts = [table, _far(_in_steps(run).far, windows)]
    found = [Strays(**row) for part in parts for row in part.iter_rows(named=True)]
    return sorted(found, key=lambda s: SIDES.index(s.side))


def _far(rows: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return a row for the kernels that ran far before the rest of their step, and one for those after it."""
    rows = rows.join(windows, on="step")
    before, after = pl.col("begin") - pl.col("t") - pl.col("dur"), pl.col("t") - pl.col("end")
    rows = rows.with_columns(
        side=pl.when(before > after).then(pl.lit("early")).otherwise(pl.lit("late")),
        away=pl.max_horizontal(before, after),
    )
    return rows.group_by("side").agg(count=pl.len(), dur_ns=pl.col("dur").sum(), away_ns=pl.col("away").max())


def sentence(kernels: Strays) -> str:
    """Return in words which kernels no step launched."""
    alone = kernels.count == 1
    count, whose = ("one kernel", "its") if alone else (f"{kernels.count:,} kernels", "their")
    if kernels.side in ("early", "late"):
        where = f"{'before' if kernels.side == 'early' else 'after'} the rest of {whose} step"
        ran = f"{units.duration(kernels.dur_ns)}, ran {units.duration(kernels.away_ns)} {where}"
        return f"{count}, {ran}: left out of busy and idle time"
    what = f"{count} of no step, {units.duration(kernels.dur_ns)}"
    if kernels.side == "between":
        return f"{what}, between the first and the last step"
    side = "before the first" if kernels.side == "before" else "after the last"
    return f"{what}, {units.duration(kernels.away_ns)} {side} step"


def watched(run: Run) -> bool:
    """Tell whether kernels of a device have a start and a duration."""
    return run.has("dur") and "gpu" in select.lenses(run) and select.on_timeline(run)


def _rows(run: Run) -> pl.LazyFrame:
    """Return the device's own work, each with its ROW, step and `device`: a rank, or the first part of its
    track.
    """
    rows = gpu_time.device_rows(run, (ROW, "step", "track"))
    return with_device(run, rows).drop("track", strict=False)


def told(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with what the run tells of the event that each of them is (ROW): name and launch."""
    known = select.have(run, ("name", *gpu_time.LAUNCH))
    return rows.drop(ROW).hstack(run.events[rows[ROW], known])


def with_device(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows (with `track`, where the run has it) with the device of each: its rank, else the first part
    of its track.
    """
    if not run.has("track"):
        return rows.with_columns(pl.lit("GPU").cast(pl.Categorical()).alias(DEVICE))
    tracks = distinct(run, "track")
    names = [device_of(track) for track in tracks.cast(pl.String)]
    device = pl.Series(DEVICE, names, dtype=pl.String).cast(pl.Categorical())
    return rows.with_columns(looked_up("track", tracks, device))


def measured(run: Run) -> "Facts":
    """Return the facts of the steps; of a run without steps, of all its time."""
    return _in_steps(run) if has_steps(run) else _in_all(run)


@select.once
def only_device(run: Run) -> str | None:
    """Return the one device on which all of the device's rows have a start; None of several, or where some
    have none.
    """
    devices = measured(run).windows[DEVICE].unique()
    if devices.len() != 1 or devices.has_nulls() or _incomplete(run).height:
        return None
    return str(devices[0])


def has_steps(run: Run) -> bool:
    """Tell whether any row belongs to a step."""
    return run.has("step") and run.events["step"].null_count() < run.events.height


@select.once
def _in_all(run: Run) -> "Facts":
    return _measured(Axis.of(_rows(run).collect(), [DEVICE]), [DEVICE])


@select.once
def _in_steps(run: Run) -> "Facts":
    """Return the windows of the steps on each device, without rows far from the rest of their step."""
    rows, by = _rows(run).filter(pl.col("step").is_not_null()).collect(), [DEVICE, "step"]
    axis = Axis.of(rows, by)
    facts = _measured(axis, by)
    split = axis.rows.filter(axis.gaps > FAR * axis.spans.gather(axis.group)).select(by).unique()
    if split.is_empty():
        return facts
    judged = with_strays(rows.join(split, on=by, how="semi", nulls_equal=True), by)
    kept = judged.filter(~pl.col("stray")).select(rows.columns)
    rest = rows.join(split, on=by, how="anti", nulls_equal=True)
    return replace(_measured(Axis.of(pl.concat([rest, kept]), by), by), far=judged.filter("stray"))


@dataclass(frozen=True, eq=False)
class Facts:
    """What devices did in their windows, one each with the row that opens it (ROW); all gaps, each with
    `begin`, `end` and the row that ends it; and rows that are in no window.
    """

    windows: pl.DataFrame
    gaps: pl.DataFrame
    far: pl.DataFrame


def _measured(axis: Axis, by: list[str]) -> Facts:
    """Return the facts of rows in groups."""
    ends = axis.rows.select(*by, ROW, end="t", gap_ns=axis.gaps)
    gaps = ends.filter(pl.col("gap_ns") > 0).with_columns(begin=pl.col("end") - pl.col("gap_ns"))
    return Facts(gpu_time.owned(axis, by, (ROW,)), gaps, axis.rows.head(0))


def _incomplete(run: Run) -> pl.DataFrame:
    """Return the steps of which a kernel has no start, or stands for several launches."""
    loose = pl.col("t").is_null() | (select.standing_for(run) > 1)
    kernel = (pl.col("kind") == "kernel") & (pl.col("lens") == "gpu") & pl.col("dur").is_not_null()
    rows = run.events.lazy().filter(kernel & loose)
    if not run.has("step"):
        rows = rows.with_columns(step=pl.lit(None, pl.Int64))
    return rows.select("step").unique().collect()
