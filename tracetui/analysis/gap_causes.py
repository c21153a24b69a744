"""Why a device idled: every gap has one cause, from when the host launched what ran next.

Host late: the launch began after the device had run dry, or so shortly before that its own delay made the
gap, or the call was still at work then. Where a call of the host that waits for the device spans the begin of
the gap, and without it the launch would have been in time, that synchronisation is the cause. Launched in
good time, a short gap is the device's own time from one kernel to the next, a longer one a dependency on
another stream, device or event.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import device_time, facts, gpu_time, select
from tracetui.analysis.device_time import DEVICE
from tracetui.analysis.gpu_time import ROW
from tracetui.analysis.host_waits import waits

HOST: Final = "host late"
SYNC: Final = "synchronisation"
NOTHING: Final = "nothing asked"
DISPATCH: Final = "dispatch"
DEPENDENCY: Final = "dependency"
UNKNOWN: Final = "launch unknown"
CAUSES: Final = (HOST, SYNC, NOTHING, DEPENDENCY, DISPATCH, UNKNOWN)
CAUSE: Final = pl.Enum(CAUSES)

SHORT_NS: Final = 10_000  # a gap that a device needs from one kernel to the next, at most
LONG_NS: Final = 1_000_000  # a gap that is long enough for nothing to have been asked
DELAY_NS: Final = 10_000  # from a launch to its start, where no launch of the run tells
QUIET: Final = 0.9  # of a gap without any call or operator of the launching thread: nothing was asked

_GAP: Final = {
    DEVICE: pl.Categorical(), "step": pl.Int64(), "begin": pl.Int64(), "end": pl.Int64(),
    "gap_ns": pl.Int64(), "cause": CAUSE, "by": pl.Categorical(), "name": pl.Categorical(),
    "queued": pl.Int32(),
}  # fmt: skip


@select.once
def gaps(run: Run) -> pl.DataFrame:
    """Return every gap inside the windows of the steps, of a run without steps in all its time: `device`,
    `step`, `begin`, `end`, `gap_ns`, `cause`, `by` (the stack that waited, of a synchronisation), `name`, the
    row that ended it, and `queued`, how many others were launched and had not begun when that was launched;
    by their ends where no launch is known. No rows where kernels have no start.
    """
    if not device_time.watched(run):
        return pl.DataFrame(schema=_GAP)
    found = device_time.told(run, device_time.measured(run).gaps)
    if not found["end"].is_sorted():
        found = found.sort("end", maintain_order=True)
    return _judged(run, found, inside="step" in found)


@select.once
def between(run: Run) -> pl.DataFrame:
    """Return the gaps between the windows of the steps, as `gaps` does; `step` is the one that ended it."""
    if not (device_time.watched(run) and run.has("step")):
        return pl.DataFrame(schema=_GAP)
    windows = device_time.measured(run).windows.sort(DEVICE, "begin")
    if "step" not in windows.columns:
        return pl.DataFrame(schema=_GAP)
    reach = pl.col("end").cum_max().shift(1).over(DEVICE)
    apart = windows.select(DEVICE, "step", ROW, begin=reach, end="begin")
    rows = device_time.told(run, apart.filter(pl.col("end") > pl.col("begin")))
    return _judged(run, rows.with_columns(gap_ns=pl.col("end") - pl.col("begin")), inside=False)


def totals(gaps: pl.DataFrame) -> dict[str, int]:
    """Return how long the gaps of each cause are together, in the order of CAUSES."""
    sums = dict(gaps.group_by("cause").agg(pl.col("gap_ns").sum()).iter_rows())
    return {cause: int(sums[cause]) for cause in CAUSES if cause in sums}


@select.once
def by_step(run: Run) -> pl.DataFrame:
    """Return step → `host_late_ns` and `sync_ns` of the device that stands for it; no more than the step
    where the source tells no launches.
    """
    found = gaps(run)
    if not device_time.has_steps(run) or (found["cause"] == UNKNOWN).all():
        return pl.DataFrame(schema={"step": pl.Int64})
    shown = {"host_late_ns": HOST, "sync_ns": SYNC}
    stands = device_time.busiest(run).select("step", DEVICE)
    sums = [
        pl.col("gap_ns").filter(pl.col("cause") == cause).sum().alias(name) for name, cause in shown.items()
    ]
    own = stands.join(found, on=["step", DEVICE], how="left", nulls_equal=True)
    return own.group_by("step").agg(sums)


def waited(gaps: pl.DataFrame) -> tuple[str, int] | None:
    """Return the stack of the host that the longest gaps waited for, and for how long; None without."""
    stacks = gaps.filter(pl.col("by").is_not_null()).group_by("by").agg(pl.col("gap_ns").sum())
    longest = stacks.sort("gap_ns", pl.col("by").cast(pl.String), descending=[True, False]).head(1).rows()
    return (str(longest[0][0]), int(longest[0][1])) if longest else None


def _judged(run: Run, rows: pl.DataFrame, *, inside: bool) -> pl.DataFrame:
    """Return gaps with their causes; those `inside` steps were all asked for."""
    if rows.is_empty():
        return pl.DataFrame(schema=_GAP)
    if any(c not in rows.columns for c in gpu_time.LAUNCH):
        return _shaped(rows.with_columns(cause=pl.lit(UNKNOWN, CAUSE)))
    begin, launch = pl.col("begin"), pl.col("launch")
    called = launch >= begin - usual_delay(run)
    short = pl.col("gap_ns") <= SHORT_NS
    working = (launch < begin) & (launch + pl.col("launch_dur") > begin) & ~short
    late = called | working.fill_null(value=False)
    rows = _with_waits(run, rows.with_columns(_queued(run, rows), late=late))
    rows = rows.with_columns(
        cause=pl.when(launch.is_null()).then(pl.lit(UNKNOWN, CAUSE))
        .when(pl.col("late") & pl.col("by").is_not_null()).then(pl.lit(SYNC, CAUSE))
        .when(pl.col("late")).then(pl.lit(HOST, CAUSE))
        .when(short).then(pl.lit(DISPATCH, CAUSE))
        .otherwise(pl.lit(DEPENDENCY, CAUSE)),
        by=pl.when(pl.col("late")).then("by"),
    )  # fmt: skip
    return _shaped(rows if inside else _with_nothing_asked(run, rows))


def _queued(run: Run, rows: pl.DataFrame) -> pl.Series:
    """Return of each gap how many rows of its device had been launched and had not begun when the row that
    ends it was launched; null where its launch is not known.
    """
    kernels = device_time.with_device(run, gpu_time.device_rows(run)).select(DEVICE, "t", "launch")
    launched = kernels.filter(pl.col("launch").is_not_null()).collect()
    asked = rows.select(DEVICE, "launch").with_row_index("row").filter(pl.col("launch").is_not_null())
    queued = pl.Series("queued", [None], dtype=pl.Int32).new_from_index(0, rows.height).alias("queued")
    if not asked["launch"].is_sorted():
        asked = asked.sort("launch", maintain_order=True)
    for (device,), gaps in asked.group_by(DEVICE, maintain_order=True):
        own = launched.filter(pl.col(DEVICE).eq_missing(pl.lit(device)))
        before = _counted(own["launch"], gaps["launch"], equal=False)
        begun = _counted(own["t"], gaps["launch"], equal=True)
        queued = queued.scatter(gaps["row"], (before - begun).clip(lower_bound=0))
    return queued


def _counted(moments: pl.Series, until: pl.Series, *, equal: bool) -> pl.Series:
    """Return how many moments lie before each of those in `until`, which are in order, or at it where equal
    ones count; both are gone through once, side by side.
    """
    known = moments.sort().rename("at").to_frame().with_row_index("count", offset=1)
    asked = until.rename("at").set_sorted().to_frame()
    found = asked.join_asof(known, on="at", allow_exact_matches=equal)["count"]
    return found.fill_null(0).cast(pl.Int32)


def _shaped(rows: pl.DataFrame) -> pl.DataFrame:
    missing = [pl.lit(None, dtype).alias(c) for c, dtype in _GAP.items() if c not in rows.columns]
    return rows.with_columns(missing).select(pl.col(c).cast(dtype) for c, dtype in _GAP.items())


@select.once
def usual_delay(run: Run) -> int:
    """Return how long a launch takes from its call to its start where nothing stands before it, in ns: the
    median over the launches that found the device idle.
    """
    if not run.has("launch"):
        return DELAY_NS
    rows = device_time.measured(run).gaps
    rows = rows.with_columns(run.events["launch"].gather(rows[ROW]))
    idle = rows.filter(pl.col("launch") >= pl.col("begin"))
    median = (idle["end"] - idle["launch"]).median()
    return int(median) if isinstance(median, int | float) else DELAY_NS


def _with_waits(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with `by`, the stack of the launching thread that waited for the device as they began,
    where the launch would have been in time without the wait.
    """
    calls = waits(run).select("launcher", "since", "until", "stack").sort("since")
    rows = rows.sort("begin")
    if calls.is_empty():
        return rows.with_columns(by=pl.lit(None, pl.Categorical))
    calls = calls.with_columns(pl.col("stack").cast(pl.Categorical))
    found = rows.join_asof(calls, left_on="begin", right_on="since", by="launcher", check_sortedness=False)
    spans = (pl.col("until") >= pl.col("begin")) & (pl.col("until") <= pl.col("launch"))
    spans &= pl.col("until") - pl.col("since") >= pl.col("launch") - pl.col("begin")
    return found.with_columns(by=pl.when(spans).then("stack")).drop("since", "until", "stack")


def _with_nothing_asked(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return gaps, of those long ones for which the host was late with NOTHING where its thread did nothing:
    no call and no operator of it, for nearly all of the gap, before the launch.
    """
    long = rows.filter((pl.col("cause") == HOST) & (pl.col("gap_ns") >= LONG_NS))
    if long.is_empty():
        return rows
    calls = _calls(run)
    quiet = [row["end"] for row in long.iter_rows(named=True) if _quiet(calls, row)]
    nothing = (pl.col("cause") == HOST) & (pl.col("gap_ns") >= LONG_NS) & pl.col("end").is_in(quiet)
    return rows.with_columns(cause=pl.when(nothing).then(pl.lit(NOTHING, CAUSE)).otherwise("cause"))


def _calls(run: Run) -> Mapping[str, pl.DataFrame]:
    """Return the calls and operators of each thread that launches, in the order of their starts."""
    threads = run.events["launcher"].unique().drop_nulls()
    frame = (pl.col("kind") == "span") & pl.col("track").is_in(threads.implode())
    names = facts.names(run).cast(pl.String)
    python = names.filter(names.str.contains(r"\.py\(\d+\): |^<built-in|^nn\.Module: ")).cast(
        pl.Categorical()
    )
    rows = run.events.filter(frame & ~pl.col("name").is_in(python.implode()))
    rows = rows.select("track", "t", end=pl.col("t") + pl.col("dur")).drop_nulls().sort("t")
    return {str(track): part for (track,), part in rows.group_by("track")}


def _quiet(calls: Mapping[str, pl.DataFrame], gap: Mapping[str, int]) -> bool:
    """Tell whether the launching thread did nothing for most of a gap before it launched what ended it."""
    own = calls.get(str(gap["launcher"]))
    until = min(gap["launch"], gap["end"])
    if own is None or until <= gap["begin"]:
        return False
    near = own.filter((pl.col("t") < until) & (pl.col("end") > gap["begin"]))
    clipped = near.select(pl.col("t", "end").clip(gap["begin"], until))
    busy = gpu_time.unions(clipped.lazy().select("t", dur=pl.col("end") - pl.col("t")))["busy_ns"][0] or 0
    return bool(until - gap["begin"] - busy >= QUIET * gap["gap_ns"])
