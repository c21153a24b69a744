"""What the devices of a run did: busy and idle in each step, between steps, and outside of them.

A step's span on a device is from the first start to the last end of the kernels it launched, without stray
kernels. With several concurrent devices, the busiest one represents a step.

A kernel is stray if it would stretch its step's span: at either end, what lies beyond a gap longer than half
of the span and holds less than a hundredth of the step's kernel time.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from capture.devices import parse_device
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.codes import map_by_code
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct
from tracetui.analysis.frames.time_axis import TimeAxis
from tracetui.analysis.time import gpu_time
from tracetui.analysis.time.gpu_time import ROW, compute_span_breakdown, select_device_rows

STRAY_GAP_SHARE: Final = 0.5  # of the span: a longer gap may cut off strays
STRAY_TIME_SHARE: Final = 0.01  # of the kernel time, which strays stay below

MEASURES: Final = ("busy_ns", "idle_ns", "comm_exposed_ns", "transfer_exposed_ns")
NAMED_IDLE_SHARE: Final = 0.95  # of the idle time, which the named gaps make up
MAX_NAMED_GAPS: Final = 9  # of more gaps, none is named
SIDES: Final = ("early", "late", "before", "between", "after")
SUMMED_FIELDS: Final = (
    "span_ns", "busy_ns", "compute_ns", "transfer_ns", "comm_ns", "comm_exposed_ns", "transfer_exposed_ns",
    "gaps", "in_gaps_ns",
)  # fmt: skip
_SPAN_COLUMNS: Final = ("begin", "end", "span_ns", *MEASURES)
DEVICE: Final = "device"
_NO_SPANS: Final = pl.DataFrame(schema={"step": pl.Int64, **dict.fromkeys(_SPAN_COLUMNS, pl.Int64)})


def with_is_stray(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows (`t`, `dur`, the groups) by group and start, with `is_stray`."""
    axis = TimeAxis.from_rows(rows, by)
    return axis.rows.with_columns(flag_strays(axis))


def flag_strays(axis: TimeAxis) -> pl.Series:
    """Return for each row of an axis whether it is far from the rest of its group."""
    span_ns = pl.select(pl.max_horizontal(axis.span_ns, 1)).to_series()
    is_cut = axis.gap_ns > STRAY_GAP_SHARE * span_ns.gather(axis.group)
    split_groups = axis.group.filter(is_cut).unique()
    if split_groups.is_empty():
        return pl.repeat(value=False, n=axis.rows.height, eager=True).rename("is_stray")
    numbered = axis.rows.select("dur", axis.group, is_cut.alias("is_cut")).with_row_index("row")
    split = numbered.filter(pl.col("group").is_in(split_groups.implode()))
    side = pl.col("is_cut").cast(pl.Int32).cum_sum().over("group")  # at most one cut each
    sides = split.with_columns(side=side).with_columns(side_ns=pl.col("dur").sum().over("group", "side"))
    is_far = pl.col("side_ns") < STRAY_TIME_SHARE * pl.col("dur").sum().over("group")
    index = pl.int_range(axis.rows.height, dtype=pl.UInt32)
    return pl.select(is_stray=index.is_in(sides.filter(is_far)["row"].implode())).to_series()


class DeviceUsage(Struct, frozen=True):
    """What one device did in the selected time."""

    device: str
    span_ns: int
    busy_ns: int
    compute_ns: int
    transfer_ns: int
    comm_ns: int
    comm_exposed_ns: int
    transfer_exposed_ns: int
    steps: int  # whose spans make up the time; 0 if it is the full extent of the device's rows
    gaps: int  # the few that make up nearly all of the idle time, else all
    in_gaps_ns: int

    @property
    def idle_ns(self) -> int:
        """Time in which nothing ran."""
        return self.span_ns - self.busy_ns


class StrayKernels(Struct, frozen=True):
    """Kernels outside all spans on one side of the steps, or far from the rest of their own step."""

    side: str  # one of SIDES: of the steps, or early or late in their own step
    count: int
    dur_ns: int
    distance_ns: int  # the largest distance to the first or last step, or to the rest of its own


class DeviceSpans(Struct, frozen=True, eq=False):
    """Spans of devices, each with the row that opens it (ROW); all gaps inside, with `begin`, `end`
    and the row that ends each; and stray rows, which are in no span.
    """

    spans: pl.DataFrame
    gaps: pl.DataFrame
    stray_rows: pl.DataFrame


@cache_per_run
def compute_step_spans(run: Run) -> pl.DataFrame:
    """Return one row per step whose kernels all have a start: its span on the device and MEASURES."""
    if not has_device_times(run) or not has_steps(run):
        return _NO_SPANS
    table = select_busiest_spans(run).select("step", *_SPAN_COLUMNS)
    return table.join(_find_incomplete_steps(run), on="step", how="anti").sort("step")


@cache_per_run
def select_busiest_spans(run: Run) -> pl.DataFrame:
    """Return the span of each step on its busiest device; one row in all without steps."""
    table = measure_spans(run).spans.sort("busy_ns", descending=True, maintain_order=True)
    return table.group_by("step", maintain_order=True).first() if "step" in table.columns else table.head(1)


def has_overlap_or_idle(table: pl.DataFrame, total: str) -> bool:
    """True if spans say more than a sum of durations: something overlapped, waited or was copied."""
    is_idle_or_exposed = pl.sum_horizontal("idle_ns", "transfer_exposed_ns", "comm_exposed_ns") > 0
    return bool(table.select(((pl.col("busy_ns") != pl.col(total)) | is_idle_or_exposed).any()).item())


@cache_per_run
def compute_usages(run: Run) -> tuple[DeviceUsage, ...]:
    """Return the use of each device in the spans of the steps; over all its time without steps.

    Empty if some kernels have no start, or if nothing overlapped or waited.
    """
    if not has_device_times(run) or selection.is_folded(run) or _find_incomplete_steps(run).height:
        return ()
    measured = measure_spans(run)
    if measured.spans.is_empty() or not has_overlap_or_idle(measured.spans, "total_ns"):
        return ()
    gaps = measured.gaps.select(DEVICE, "gap_ns").group_by(DEVICE)
    idle = {device: rows["gap_ns"] for (device,), rows in gaps}
    return tuple(
        _build_usage(str(device or "GPU"), spans, idle.get(device, pl.Series([0])))
        for (device,), spans in measured.spans.group_by(DEVICE, maintain_order=True)
    )


def _build_usage(device: str, spans: pl.DataFrame, gaps: pl.Series) -> DeviceUsage:
    sums = {c: int(spans[c].sum()) for c in SUMMED_FIELDS if c in spans.columns}
    largest_gaps, idle = gaps.top_k(MAX_NAMED_GAPS).sort(descending=True), int(gaps.sum())
    count = int((largest_gaps.cum_sum() < NAMED_IDLE_SHARE * idle).sum()) + 1 if idle else 0
    is_few = count <= MAX_NAMED_GAPS
    steps = spans.height if "step" in spans.columns else 0
    named_ns = int(largest_gaps.head(count).sum()) if is_few else idle
    return DeviceUsage(device, **sums, steps=steps, gaps=count if is_few else gaps.len(), in_gaps_ns=named_ns)


def compute_between_spans_ns(spans: pl.DataFrame) -> int:
    """Return the time outside all spans, from the first to the last of them."""
    ordered = spans.sort("begin")
    latest_end = ordered["end"].cum_max().shift(1)
    return int((ordered["begin"] - latest_end).clip(lower_bound=0).sum())


def find_stray_kernels(run: Run) -> list[StrayKernels]:
    """Return kernels that no step launched, by side of the steps, and kernels far from their own step."""
    spans = compute_step_spans(run)
    if spans.is_empty():
        return []
    first, last = spans["begin"].min(), spans["end"].max()
    begin, end = pl.col("t"), pl.col("t") + pl.col("dur")
    side = pl.when(end <= first).then(pl.lit("before")).when(begin >= last).then(pl.lit("after"))
    stepless = select_device_rows(run).filter(pl.col("step").is_null()).select(
        "dur", side=side.otherwise(pl.lit("between")), distance=pl.max_horizontal(first - end, begin - last)
    )  # fmt: skip
    before, after = pl.col("begin") - end, begin - pl.col("end")
    of_step = measure_spans(run).stray_rows.join(spans, on="step").select(
        "dur", distance=pl.max_horizontal(before, after),
        side=pl.when(before > after).then(pl.lit("early")).otherwise(pl.lit("late")),
    )  # fmt: skip
    rows = pl.concat([stepless, of_step.lazy()], how="diagonal").group_by("side")
    sums = rows.agg(count=pl.len(), dur_ns=pl.col("dur").sum(), distance_ns=pl.col("distance").max())
    strays = [StrayKernels(**row) for row in sums.collect().iter_rows(named=True)]
    return sorted(strays, key=lambda s: SIDES.index(s.side))


def describe_stray_kernels(kernels: StrayKernels) -> str:
    """Describe stray kernels in a sentence."""
    is_single = kernels.count == 1
    dur, distance = units.format_duration(kernels.dur_ns), units.format_duration(kernels.distance_ns)
    count, possessive = ("one kernel", "its") if is_single else (f"{kernels.count:,} kernels", "their")
    if kernels.side in ("early", "late"):
        where = f"{'before' if kernels.side == 'early' else 'after'} the rest of {possessive} step"
        return f"{count}, {dur}, ran {distance} {where}: left out of busy and idle time"
    subject = f"{count} of no step, {dur}"
    if kernels.side == "between":
        return f"{subject}, between the first and the last step"
    side = "before the first" if kernels.side == "before" else "after the last"
    return f"{subject}, {distance} {side} step"


def has_device_times(run: Run) -> bool:
    """True if kernels of a device have a start and a duration."""
    return run.has("dur") and "gpu" in selection.list_lenses(run) and selection.has_start_times(run)


def _select_rows_with_device(run: Run) -> pl.LazyFrame:
    """Return the device's work, each row with ROW, step and `device`."""
    rows = select_device_rows(run, (ROW, "step", "track"))
    return with_device(run, rows).drop("track", strict=False)


def with_name_and_launch(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with name and launch of the event at their ROW."""
    columns = selection.select_existing(run, ("name", *gpu_time.LAUNCH_COLUMNS))
    return rows.drop(ROW).hstack(run.events[rows[ROW], columns])


def with_device(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows with `device`: the rank, else the first part of the `track`, if the run has tracks."""
    if not run.has("track"):
        return rows.with_columns(pl.lit("GPU").cast(pl.Categorical()).alias(DEVICE))
    tracks = list_distinct(run, "track")
    names = [parse_device(track) for track in tracks.cast(pl.String)]
    device = pl.Series(DEVICE, names, dtype=pl.String).cast(pl.Categorical())
    return rows.with_columns(map_by_code("track", tracks, device))


@cache_per_run
def measure_spans(run: Run) -> DeviceSpans:
    """Return the spans of the steps on each device, without stray rows; without steps, of all time."""
    rows, by = _select_rows_with_device(run), [DEVICE]
    if not has_steps(run):
        return _build_spans(TimeAxis.from_rows(rows.collect(), by), by)
    return _measure_steps(rows.filter(pl.col("step").is_not_null()).collect(), [DEVICE, "step"])


@cache_per_run
def find_only_device(run: Run) -> str | None:
    """Return the device if it is the only one and all its rows have a start, else None."""
    devices = measure_spans(run).spans[DEVICE].unique()
    if devices.len() != 1 or devices.has_nulls() or _find_incomplete_steps(run).height:
        return None
    return str(devices[0])


def has_steps(run: Run) -> bool:
    """True if any row belongs to a step."""
    return run.has("step") and run.events["step"].null_count() < run.events.height


def _measure_steps(rows: pl.DataFrame, by: list[str]) -> DeviceSpans:
    axis = TimeAxis.from_rows(rows, by)
    measured = _build_spans(axis, by)
    is_cut = axis.gap_ns > STRAY_GAP_SHARE * axis.span_ns.gather(axis.group)
    split_groups = axis.rows.filter(is_cut).select(by).unique()
    if split_groups.is_empty():
        return measured
    flagged = with_is_stray(rows.join(split_groups, on=by, how="semi", nulls_equal=True), by)
    remaining = flagged.filter(~pl.col("is_stray")).select(rows.columns)
    unsplit = rows.join(split_groups, on=by, how="anti", nulls_equal=True)
    axis = TimeAxis.from_rows(pl.concat([unsplit, remaining]), by)
    return replace(_build_spans(axis, by), stray_rows=flagged.filter("is_stray"))


def _build_spans(axis: TimeAxis, by: list[str]) -> DeviceSpans:
    """Measure the spans and gaps of each group of an axis."""
    ends = axis.rows.select(*by, ROW, end="t", gap_ns=axis.gap_ns)
    gaps = ends.filter(pl.col("gap_ns") > 0).with_columns(begin=pl.col("end") - pl.col("gap_ns"))
    return DeviceSpans(compute_span_breakdown(axis, by, (ROW,)), gaps, axis.rows.head(0))


def _find_incomplete_steps(run: Run) -> pl.DataFrame:
    """Return the steps with a kernel that has no start or represents several launches."""
    is_incomplete = pl.col("t").is_null() | (selection.launch_count(run) > 1)
    is_gpu_kernel = (pl.col("kind") == "kernel") & (pl.col("lens") == "gpu") & pl.col("dur").is_not_null()
    rows = run.events.lazy().filter(is_gpu_kernel & is_incomplete)
    if not run.has("step"):
        rows = rows.with_columns(step=pl.lit(None, pl.Int64))
    return rows.select("step").unique().collect()
