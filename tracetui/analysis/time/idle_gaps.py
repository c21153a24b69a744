"""Idle gaps of devices: where they are, and what caused each.

The cause follows from when the host launched what ran next. Host late: the launch began after the device had
run dry, or so shortly before that its own delay made the gap, or the call was still running then. If a host
call that waits for the device spans the begin of the gap, and without it the launch would have been in time,
the cause is that synchronisation. Of a launch in time, a short gap is the device's own dispatch time, a
longer one a dependency on another stream, device or event.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames.codes import map_by_code
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct
from tracetui.analysis.frames.selection import find_rank_tracks, resolve_lens, select_existing
from tracetui.analysis.frames.time_axis import TimeAxis, measure_union
from tracetui.analysis.time import gpu_time
from tracetui.analysis.time.device_time import (
    DEVICE,
    has_device_times,
    has_steps,
    measure_spans,
    select_busiest_spans,
    with_device,
    with_name_and_launch,
)
from tracetui.analysis.time.gpu_time import ROW, select_device_rows
from tracetui.analysis.time.host_waits import find_waits
from tracetui.look import Look

HOST_LATE: Final = "host late"
SYNC: Final = "synchronisation"
NOTHING_ASKED: Final = "nothing asked"
DISPATCH: Final = "dispatch"
DEPENDENCY: Final = "dependency"
LAUNCH_UNKNOWN: Final = "launch unknown"
CAUSES: Final = (HOST_LATE, SYNC, NOTHING_ASKED, DEPENDENCY, DISPATCH, LAUNCH_UNKNOWN)
CAUSE: Final = pl.Enum(CAUSES)

DISPATCH_MAX_NS: Final = 10_000  # longest gap a device needs between two kernels
NOTHING_ASKED_MIN_NS: Final = 1_000_000  # a shorter gap is never NOTHING_ASKED
DEFAULT_LAUNCH_DELAY_NS: Final = 10_000  # if no launch of the run found the device idle
IDLE_THREAD_SHARE: Final = 0.9  # of a gap, in which the launching thread must be idle

GAP_NAME: Final = "gap"
_GAP_SCHEMA: Final = {
    DEVICE: pl.Categorical(), **dict.fromkeys(("step", "begin", "end", "gap_ns"), pl.Int64()), "cause": CAUSE,
    "by": pl.Categorical(), "name": pl.Categorical(), "queued": pl.Int32(),
}  # fmt: skip
_TRACK_GAP_SCHEMA: Final = {"track": pl.Categorical(), "t": pl.Int64(), "end": pl.Int64()}


@cache_per_run
def find_gaps(run: Run) -> pl.DataFrame:
    """Return every gap inside the spans of the steps; of a run without steps, in all its time.

    Columns: `device`, `step`, `begin`, `end`, `gap_ns`, `cause`, `by` (the stack that waited, of a
    synchronisation), `name` of the row that ended it, and `queued`, the rows launched but not started when
    that was launched. Sorted by end if no launch is known. Empty if kernels have no start.
    """
    if not has_device_times(run):
        return pl.DataFrame(schema=_GAP_SCHEMA)
    gaps = with_name_and_launch(run, measure_spans(run).gaps)
    if not gaps["end"].is_sorted():
        gaps = gaps.sort("end", maintain_order=True)
    return _classify_gaps(run, gaps, inside="step" in gaps)


@cache_per_run
def find_gaps_between_steps(run: Run) -> pl.DataFrame:
    """Return the gaps between the spans of the steps, as `find_gaps`; `step` is the one that ended it."""
    if not (has_device_times(run) and has_steps(run)):
        return pl.DataFrame(schema=_GAP_SCHEMA)
    spans = measure_spans(run).spans.sort(DEVICE, "begin")
    latest_end = pl.col("end").cum_max().shift(1).over(DEVICE)
    gaps = spans.select(DEVICE, "step", ROW, begin=latest_end, end="begin")
    rows = with_name_and_launch(run, gaps.filter(pl.col("end") > pl.col("begin")))
    return _classify_gaps(run, rows.with_columns(gap_ns=pl.col("end") - pl.col("begin")), inside=False)


def sum_by_cause(gaps: pl.DataFrame) -> dict[str, int]:
    """Return the total time of gaps per cause, in the order of CAUSES."""
    sums = dict(gaps.group_by("cause").agg(pl.col("gap_ns").sum()).iter_rows())
    return {cause: int(sums[cause]) for cause in CAUSES if cause in sums}


@cache_per_run
def sum_late_gaps_by_step(run: Run) -> pl.DataFrame:
    """Return `host_late_ns` and `sync_ns` of each step's busiest device; only `step` without launches."""
    gaps = find_gaps(run)
    if not has_steps(run) or (gaps["cause"] == LAUNCH_UNKNOWN).all():
        return pl.DataFrame(schema={"step": pl.Int64})
    cause_columns = {"host_late_ns": HOST_LATE, "sync_ns": SYNC}
    busiest = select_busiest_spans(run).select("step", DEVICE)
    sums = [pl.col("gap_ns").filter(pl.col("cause") == c).sum().alias(n) for n, c in cause_columns.items()]
    joined = busiest.join(gaps, on=["step", DEVICE], how="left", nulls_equal=True)
    return joined.group_by("step").agg(sums)


def _classify_gaps(run: Run, rows: pl.DataFrame, *, inside: bool) -> pl.DataFrame:
    """Return gaps with their causes; gaps `inside` a step were all requested."""
    if rows.is_empty():
        return pl.DataFrame(schema=_GAP_SCHEMA)
    if any(c not in rows.columns for c in gpu_time.LAUNCH_COLUMNS):
        return _fill_schema(rows.with_columns(cause=pl.lit(LAUNCH_UNKNOWN, CAUSE)))
    begin, launch = pl.col("begin"), pl.col("launch")
    is_launched_late = launch >= begin - estimate_launch_delay(run)
    is_short = pl.col("gap_ns") <= DISPATCH_MAX_NS
    is_still_launching = (launch < begin) & (launch + pl.col("launch_dur") > begin) & ~is_short
    is_late = is_launched_late | is_still_launching.fill_null(value=False)
    rows = _with_waiting_stack(run, rows.with_columns(_count_queued(run, rows), is_late=is_late))
    rows = rows.with_columns(
        cause=pl.when(launch.is_null()).then(pl.lit(LAUNCH_UNKNOWN, CAUSE))
        .when(pl.col("is_late") & pl.col("by").is_not_null()).then(pl.lit(SYNC, CAUSE))
        .when(pl.col("is_late")).then(pl.lit(HOST_LATE, CAUSE))
        .when(is_short).then(pl.lit(DISPATCH, CAUSE))
        .otherwise(pl.lit(DEPENDENCY, CAUSE)),
        by=pl.when(pl.col("is_late")).then("by"),
    )  # fmt: skip
    return _fill_schema(rows if inside else _mark_nothing_asked(run, rows))


def _count_queued(run: Run, rows: pl.DataFrame) -> pl.Series:
    """Return for each gap the rows launched but not started when the row that ends it was launched.

    Null if that launch is unknown.
    """
    kernels = with_device(run, select_device_rows(run)).select(DEVICE, "t", "launch")
    launched = kernels.filter(pl.col("launch").is_not_null()).collect()
    launches = rows.select(DEVICE, "launch").with_row_index("row").filter(pl.col("launch").is_not_null())
    queued = pl.Series("queued", [None], dtype=pl.Int32).new_from_index(0, rows.height).alias("queued")
    if not launches["launch"].is_sorted():
        launches = launches.sort("launch", maintain_order=True)
    for (device,), gaps in launches.group_by(DEVICE, maintain_order=True):
        of_device = launched.filter(pl.col(DEVICE).eq_missing(pl.lit(device)))
        launched_before = _count_before(of_device["launch"], gaps["launch"], equal=False)
        started_before = _count_before(of_device["t"], gaps["launch"], equal=True)
        queued = queued.scatter(gaps["row"], (launched_before - started_before).clip(lower_bound=0))
    return queued


def _count_before(times: pl.Series, until: pl.Series, *, equal: bool) -> pl.Series:
    """Return the number of times before each of the sorted `until`; `equal` counts those at it, too."""
    numbered = times.sort().rename("at").to_frame().with_row_index("count", offset=1)
    until_frame = until.rename("at").set_sorted().to_frame()
    counts = until_frame.join_asof(numbered, on="at", allow_exact_matches=equal)["count"]
    return counts.fill_null(0).cast(pl.Int32)


def _fill_schema(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with all columns of the schema, null if missing."""
    missing = [pl.lit(None, dtype).alias(c) for c, dtype in _GAP_SCHEMA.items() if c not in rows.columns]
    return rows.with_columns(missing).select(pl.col(c).cast(dtype) for c, dtype in _GAP_SCHEMA.items())


@cache_per_run
def estimate_launch_delay(run: Run) -> int:
    """Return the median time in ns from a launch to its start on an idle device."""
    if not run.has("launch"):
        return DEFAULT_LAUNCH_DELAY_NS
    gaps = measure_spans(run).gaps
    gaps = gaps.with_columns(run.events["launch"].gather(gaps[ROW]))
    found_idle = gaps.filter(pl.col("launch") >= pl.col("begin"))
    median = (found_idle["end"] - found_idle["launch"]).median()
    return int(median) if isinstance(median, int | float) else DEFAULT_LAUNCH_DELAY_NS


def _with_waiting_stack(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with `by`, the stack in which the launching thread waited as they began.

    Null if the launch would have been late without the wait, too.
    """
    calls = find_waits(run).select("launcher", "since", "until", "stack").sort("since")
    rows = rows.sort("begin")
    if calls.is_empty():
        return rows.with_columns(by=pl.lit(None, pl.Categorical))
    calls = calls.with_columns(pl.col("stack").cast(pl.Categorical))
    joined = rows.join_asof(calls, left_on="begin", right_on="since", by="launcher", check_sortedness=False)
    is_cause = (pl.col("until") >= pl.col("begin")) & (pl.col("until") <= pl.col("launch"))
    is_cause &= pl.col("until") - pl.col("since") >= pl.col("launch") - pl.col("begin")
    return joined.with_columns(by=pl.when(is_cause).then("stack")).drop("since", "until", "stack")


def _mark_nothing_asked(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with NOTHING_ASKED as the cause of long late ones whose thread was idle."""
    is_long_late = (pl.col("cause") == HOST_LATE) & (pl.col("gap_ns") >= NOTHING_ASKED_MIN_NS)
    long_late = rows.filter(is_long_late)
    if long_late.is_empty():
        return rows
    calls = _select_calls_by_thread(run)
    idle_ends = [row["end"] for row in long_late.iter_rows(named=True) if _is_thread_idle(calls, row)]
    is_nothing_asked = is_long_late & pl.col("end").is_in(idle_ends)
    cause = pl.when(is_nothing_asked).then(pl.lit(NOTHING_ASKED, CAUSE)).otherwise("cause")
    return rows.with_columns(cause=cause)


def _select_calls_by_thread(run: Run) -> Mapping[str, pl.DataFrame]:
    """Return the calls and operators of each launching thread, by start."""
    threads = run.events["launcher"].unique().drop_nulls()
    is_host_span = (pl.col("kind") == "span") & pl.col("track").is_in(threads.implode())
    names = list_distinct(run, "name").cast(pl.String)
    is_python = names.str.contains(r"\.py\(\d+\): |^<built-in|^nn\.Module: ")
    python_frames = names.filter(is_python).cast(pl.Categorical())
    rows = run.events.filter(is_host_span & ~pl.col("name").is_in(python_frames.implode()))
    rows = rows.select("track", "t", end=pl.col("t") + pl.col("dur")).drop_nulls().sort("t")
    return {str(track): calls for (track,), calls in rows.group_by("track")}


def _is_thread_idle(calls: Mapping[str, pl.DataFrame], gap: Mapping[str, int]) -> bool:
    """True if the launching thread was idle for most of a gap, before the launch that ended it."""
    of_thread = calls.get(str(gap["launcher"]))
    until = min(gap["launch"], gap["end"])
    if of_thread is None or until <= gap["begin"]:
        return False
    overlapping = of_thread.filter((pl.col("t") < until) & (pl.col("end") > gap["begin"]))
    begin, end = overlapping.select(pl.col("t", "end").clip(gap["begin"], until))
    return until - gap["begin"] - measure_union(begin, end) >= IDLE_THREAD_SHARE * gap["gap_ns"]


def find_track_gaps(run: Run, look: Look, min_ns: float, window: tuple[int, int] | None) -> pl.DataFrame:
    """Return every gap of `min_ns` or more that reaches into a window, else of the whole run, by start.

    Columns `t`, `end`, and `track`, the one of its device with most kernels. Streams of one device fill each
    other's gaps.
    """
    lens = resolve_lens(run, look)
    gaps = _find_gaps_of_run(run) if look.lens is None else _find_gaps_under_lens(run, lens)
    gaps = gaps.filter(pl.col("end") - pl.col("t") >= min_ns)
    if window is not None:
        gaps = gaps.filter((pl.col("t") < window[1]) & (pl.col("end") > window[0]))
    return gaps.sort("t", "end", "track")


def with_cause_names(run: Run, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with `name`, which includes the cause if known, and `by`, the stack that waited."""
    extremes = (gaps["end"] - gaps["t"]).min(), gaps["t"].min(), gaps["t"].max()
    least, lowest, highest = (pl.lit(x, pl.Int64) for x in extremes)
    is_near = (pl.col("gap_ns") >= least) & pl.col("begin").is_between(lowest, highest)  # a few of millions
    classified = pl.concat([find_gaps(run).filter(is_near), find_gaps_between_steps(run).filter(is_near)])
    cause = pl.when(pl.col("cause") != LAUNCH_UNKNOWN).then(pl.col("cause").cast(pl.String))
    causes = classified.select("end", pl.col("by").cast(pl.String), t="begin", cause=cause)
    causes = causes.unique(["t", "end"], keep="first", maintain_order=True)
    joined = gaps.join(causes, on=["t", "end"], how="left", maintain_order="left")
    name = pl.concat_str(pl.lit(GAP_NAME), "cause", separator=": ", ignore_nulls=True)
    return joined.with_columns(name=name)


@cache_per_run
def _find_gaps_of_run(run: Run) -> pl.DataFrame:
    return _find_gaps_under_lens(run, resolve_lens(run, Look()))


def _find_gaps_under_lens(run: Run, lens: str | None) -> pl.DataFrame:
    """Return every gap under a lens, device by device."""
    if not (run.has("t") and run.has("dur")):
        return pl.DataFrame(schema=_TRACK_GAP_SCHEMA)
    is_kernel = (pl.col("kind") == "kernel") & (pl.col("dur") > 0) & pl.col("t").is_not_null()
    if lens:
        is_kernel &= pl.col("lens") == lens if run.has("lens") else pl.lit(value=False)
    rows = run.events.lazy().filter(is_kernel)
    track = pl.coalesce(*select_existing(run, ("track", "lens")), "kind").cast(pl.Categorical())
    rows = rows.select("t", "dur", track=track)
    sizes = rows.group_by("track").agg(pl.len()).with_columns(name=pl.col("track").cast(pl.String))
    table = sizes.sort("len", "name", descending=[True, False]).collect()
    largest: dict[str, str] = {}
    main_tracks = [largest.setdefault(_resolve_device(run, name), name) for name in table["name"]]
    names = pl.Series("track", main_tracks, dtype=pl.String)
    main_track = map_by_code("track", table["track"], names.cast(pl.Categorical()))
    axis = TimeAxis.from_rows(rows.with_columns(main_track).collect(), ["track"])
    gaps = axis.rows.select("track", axis.gap_ns, end="t").filter(pl.col("gap_ns") > 0)
    return gaps.select("track", t=pl.col("end") - pl.col("gap_ns"), end="end")


def _resolve_device(run: Run, track: str) -> str:
    """Return the device of a track: a rank, or the part before the stream."""
    ranks = find_rank_tracks(run)
    if track in ranks:
        return f"rank {ranks[track]}"
    return track.rpartition("/stream")[0] or track.partition("/")[0]
