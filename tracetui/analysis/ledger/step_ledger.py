"""Split the time of a step exactly: ideal time, excess by op, layers and cause, and gaps by cause.

Each instant of a step belongs to a kernel's ideal time (the least its bytes, operations and launches take),
to that kernel's excess, to a copy or collective that nothing hides, or to a gap with a cause. So the step is
the sum of the ideal time and of everything recoverable. With several concurrent devices, the busiest one
represents a step.
"""

from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from capture.device_roofs import Roof
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.codes import group_by_packed_key, map_by_code
from tracetui.analysis.frames.display_names import map_kernel_names
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.time_axis import TimeAxis
from tracetui.analysis.layers import find_odd_layers
from tracetui.analysis.roofline import (
    COMPUTE_NS,
    build_compute_time,
    find_achievable_roof,
    find_roof,
)
from tracetui.analysis.time import device_time, gpu_time, idle_gaps
from tracetui.analysis.time.device_time import DEVICE, has_device_times, with_device
from tracetui.analysis.time.gpu_time import with_exclusive_time, work_class
from tracetui.analysis.time.idle_gaps import estimate_launch_delay, find_gaps
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

_NUMBERS: Final = {
    **dict.fromkeys(("step", "t", "count", "layer"), pl.Int64),
    **dict.fromkeys(("flops", "bytes"), pl.Float64),
}
MEMORY, COMPUTE, LAUNCH, NO_MODEL = "memory", "compute", "launch", "no model"
COPY, COMM, RANK = "copy", "communication", "another rank"
GAP: Final = "gap"
BOUND: Final = "bound"
GOOD_ROOF_SHARE: Final = 0.8  # of the roof; `low_ns` assumes that it can be reached, if nothing is known
ODD_LAYER_FACTOR: Final = 1.5  # times the median excess: from here on a layer is odd
ODD_LAYER_MIN_SHARE: Final = 0.005  # of the step: a layer whose excess differs by less is not odd
MIN_LAYERS: Final = 4  # with fewer layers none is odd
_MAX_CAUSES: Final = 1 << 8
_CAUSES_WITH_LAUNCH_DELAY: Final = (idle_gaps.HOST_LATE, idle_gaps.SYNC)  # avoidable, except for the delay
# causes of rows; gaps have others
CAUSE: Final = pl.Enum([MEMORY, COMPUTE, LAUNCH, NO_MODEL, COPY, COMM, RANK])
_ITEM_SCHEMA: Final = {
    "op": pl.String(), "layers": pl.String(), "cause": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(),
    "recoverable_ns": pl.Int64(), "low_ns": pl.Int64(), "by": pl.String(), "begin": pl.Int64(),
    "longest_ns": pl.Int64(), "after": pl.String(), "odd": pl.Int64(), "odd_ns": pl.Int64(),
    "usual_ns": pl.Float64(), "queued": pl.Float64(),
}  # fmt: skip
_EXPOSED_CAUSE: Final = (  # of a collective or copy that nothing hides
    pl.when("is_rank_wait").then(pl.lit(RANK, CAUSE))
    .when(pl.col("class") == gpu_time.COMM).then(pl.lit(COMM, CAUSE))
    .when(pl.col("class") == gpu_time.TRANSFER).then(pl.lit(COPY, CAUSE))
)  # fmt: skip


def select_ledger_rows(run: Run, look: Look) -> pl.LazyFrame:
    """Return the rows of a phase and step range under one lens; only those of steps, if there are any.

    Columns: step, t, dur, count, layer, op (else the short name), flops, bytes, class, track; `device` on a
    GPU's timeline, limited to the busiest device of each step; `is_requested` by filter and focus.
    """
    rows = _mark_requested(run, look)
    numbers = [pl.col(c) if run.has(c) else pl.lit(None, t).alias(c) for c, t in _NUMBERS.items()]
    numbers += [pl.col("dtype")] * run.has("dtype")
    event_columns = selection.select_existing(run, ("track", *gpu_time.LAUNCH_COLUMNS))
    on_gpu = selection.resolve_lens(run, look) == "gpu" and has_device_times(run)
    labels = _op_or_name(run).alias("op"), work_class(run).alias("class")
    rows = rows.select("dur", "is_requested", *labels, *numbers, *event_columns)
    rows = rows.with_columns(pl.col("count").fill_null(1))
    if device_time.has_steps(run):
        rows = rows.filter(pl.col("step").is_not_null())  # rows between steps belong to none
    return select_busiest_device(run, with_device(run, rows)) if on_gpu else rows


def _mark_requested(run: Run, look: Look) -> pl.LazyFrame:
    """Return all rows of the phase and step range, with `is_requested` by filter and focus."""
    unfiltered = Look(phase=look.phase, window=look.window, lens=look.lens)
    rows = selection.select_timed(run, unfiltered).filter(pl.col("dur") > 0)
    if not look.is_partial:
        return rows.with_columns(is_requested=pl.lit(value=True))
    rows = rows.with_row_index("row")
    requested = selection.filter_rows(rows, run, look).select("row", is_requested=pl.lit(value=True))
    rows = rows.join(requested, on="row", how="left")
    return rows.with_columns(pl.col("is_requested").fill_null(value=False))


def _op_or_name(run: Run) -> pl.Expr:
    """Return the op of each row, else its short name."""
    table = _rank_names(run)
    if run.has("op") and not table["lacks_op"].any():
        return pl.col("op")
    names = table["name"].cast(pl.String).to_list()
    short = map_kernel_names([run])
    display_names = pl.Series("op", [short.get(name, name) for name in names], dtype=pl.String)
    name = map_by_code("name", table["name"], display_names.cast(pl.Categorical()))
    return pl.coalesce("op", name) if run.has("op") else name


@cache_per_run
def _rank_names(run: Run) -> pl.DataFrame:
    """Return each `name` and whether some of its rows `lacks_op`: those first, the longest first."""
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & (pl.col("dur") > 0))
    lacks_op = pl.col("op").is_null().any() if run.has("op") else pl.lit(value=True)
    sums = rows.group_by("name").agg(pl.col("dur").sum(), lacks_op=lacks_op).collect().drop_nulls("name")
    return sums.sort("lacks_op", "dur", "name", descending=[True, True, False]).select("name", "lacks_op")


def select_busiest_device(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows (`step`, `device`) of their step's busiest device; all rows of a step without spans."""
    chosen = device_time.select_busiest_spans(run)
    if "step" not in chosen.columns:
        device = pl.lit(chosen["device"][0]) if chosen.height else pl.col("device")
        return rows.filter(pl.col("device").eq_missing(device))
    if (only := device_time.find_only_device(run)) is not None:
        return rows.filter(pl.col("device") == only)
    busiest = chosen.lazy().select("step", busiest="device")
    rows = rows.join(busiest, on="step", how="left", maintain_order="left")
    is_selected = pl.col("busiest").is_null() | pl.col("busiest").eq_missing(pl.col("device"))
    return rows.filter(is_selected).drop("busiest")


def build_items(
    rows: pl.DataFrame, gaps: pl.DataFrame, step_ns: int, compute_ns: int, *, by_layer: bool = False
) -> pl.DataFrame:
    """Return one row per op, layers and cause, and one per cause of gaps, by falling `recoverable_ns`.

    `own_ns` is the time of its rows or gaps, `recoverable_ns` the part above the bound, `low_ns` a careful
    estimate of that. For gaps, `by` is the stack waited in, `begin` and `longest_ns` locate the longest gap,
    `after` is what ended it, `queued` the mean number of kernels waiting at the launch that ended a gap. For
    ops, `odd` is the layer with the most excess, if much above the median `usual_ns`. `by_layer` lists each
    layer separately. `step_ns` and `compute_ns` are of all rows, also if `rows` are a part of them.
    """
    rows = rows.with_columns(pl.col("layer").cast(pl.Int64))
    parts = [_sum_excess(rows, step_ns, compute_ns, by_layer=by_layer), _sum_gaps(gaps)]
    table = pl.concat([pl.DataFrame(schema=_ITEM_SCHEMA), *parts], how="diagonal")
    order = ["recoverable_ns", "own_ns", "op", "layers"]
    return table.sort(order, descending=[True, True, False, False], maintain_order=True)


def _sum_excess(rows: pl.DataFrame, step_ns: int, compute_ns: int, *, by_layer: bool) -> pl.DataFrame:
    """Return a row per op, layers and cause: the time of its rows and their excess over the bound."""
    own_ns, bound_ns = pl.col("exclusive_ns"), pl.col("bound_ns")
    is_work = pl.col("cause").is_in([MEMORY, COMPUTE, LAUNCH])
    least_ns = pl.when(is_work).then("reachable_ns").otherwise(bound_ns)
    low_ns = (own_ns - least_ns).clip(0).sum().round().cast(pl.Int64).alias("low_ns")
    excess_ns = (own_ns - bound_ns).sum().alias("recoverable_ns")
    sums = pl.col("count").sum(), own_ns.sum().alias("own_ns"), excess_ns, low_ns
    by_layer_sums = group_by_packed_key(rows.lazy(), ("op", "cause", "layer"), sums)
    excess, has_layer = pl.col("recoverable_ns"), pl.col("layer").is_not_null()
    is_odd = has_layer & (excess > ODD_LAYER_FACTOR * excess.median())
    is_odd &= excess - excess.median() > ODD_LAYER_MIN_SHARE * step_ns
    odd = pl.col("layer").filter(is_odd & (excess == excess.max())).first()
    table = by_layer_sums.group_by("op", "cause", *(["layer"] if by_layer else [])).agg(
        pl.col("count", "own_ns", "recoverable_ns", "low_ns").sum(),
        each=pl.col("layer").drop_nulls().sort(),
        odd=pl.when(has_layer.sum() >= MIN_LAYERS).then(odd),
        odd_ns=excess.max(),
        usual_ns=excess.median(),
    )
    is_hideable = pl.col("cause").is_in([COPY, COMM, RANK])  # can hide at most behind all computation
    low = pl.when(is_hideable).then(pl.min_horizontal("own_ns", pl.lit(compute_ns))).otherwise("low_ns")
    layers = [units.format_ranges(each) or None for each in table["each"].to_list()]
    return table.with_columns(
        pl.col("op", "cause").cast(pl.String),
        layers=pl.Series(layers, dtype=pl.String),
        low_ns=pl.min_horizontal(low, "recoverable_ns"),
    ).drop("each", "layer", strict=False)


def _sum_gaps(gaps: pl.DataFrame) -> pl.DataFrame:
    """Return a row per cause of gaps; of synchronisation, a row per stack."""
    is_placed = pl.col("begin").is_not_null()  # what is left of a step may be several gaps
    longest_row = pl.when(is_placed).then("gap_ns").arg_max()
    avoidable_ns = (pl.col("gap_ns") - pl.col("delay_ns")).clip(0).sum()
    cause, by = (pl.col(c).to_physical().cast(pl.Int64) for c in ("cause", "by"))
    number = (by.fill_null(-1) + 1) * _MAX_CAUSES + cause  # one integer key is faster than two
    has_delay = pl.col("cause").first().is_in(_CAUSES_WITH_LAUNCH_DELAY)
    sums = gaps.group_by(number=number).agg(
        pl.col("cause", "by").first().cast(pl.String),
        count=pl.len().cast(pl.Int64),
        own_ns=pl.col("gap_ns").sum(),
        recoverable_ns=pl.col("gap_ns").sum(),
        low_ns=pl.when(has_delay).then(avoidable_ns).otherwise(0),
        begin=pl.col("begin").get(longest_row),
        longest_ns=pl.coalesce(pl.col("gap_ns").filter(is_placed).max(), pl.col("gap_ns").max()),
        after=pl.col("after").get(longest_row).cast(pl.String),
        queued=pl.col("queued").mean(),
    )
    return sums.drop("number").with_columns(op=pl.lit(GAP))


@dataclass(frozen=True, eq=False)
class Ledger:
    """The time of some steps split into items, in ns over all of them.

    `items` are those of `build_items`. `step_ns` is `bound_ns` plus the sum of their `recoverable_ns`;
    `unmodelled_ns` is the part of the bound whose work is unknown, taken as measured.
    """

    items: pl.DataFrame
    steps: int
    step_ns: int
    whole_ns: int  # of all rows and gaps, also if only some are asked for
    bound_ns: int
    unmodelled_ns: int
    stray_count: int  # kernels far from the rest of their step, left out
    phase: str | None
    is_partial: bool = False  # only the rows of a filter or focus, without gaps
    is_on_device: bool = False  # a step is the time from a device's first kernel to its last, else its wall


def compute_ledger(run: Run, look: Look) -> Ledger | None:
    """Return the ledger of the requested phase, else of the one with most steps; None without timed rows."""
    group = "layer" if look.group == "layer" else None
    relevant = Look(phase=look.phase, window=look.window, lens=look.lens, focus=look.focus, group=group)
    relevant = replace(relevant, filter=look.filter, where=look.where)
    return _compute_run_ledger(run) if relevant == Look() else _build_ledger(run, relevant)


@cache_per_run
def _compute_run_ledger(run: Run) -> Ledger | None:
    return _build_ledger(run, Look())


def _build_ledger(run: Run, look: Look) -> Ledger | None:
    phase = look.phase or find_main_phase(run)
    chosen = replace(look, phase=phase, group=None)
    rows = select_ledger_rows(run, chosen).with_columns(pl.col("step").fill_null(0)).collect()
    rows = _split_rank_waits(run, rows, phase)
    axis = TimeAxis.from_rows(rows, ["step"])
    is_stray = device_time.flag_strays(axis)
    if is_stray.any():
        axis = TimeAxis.from_rows(axis.rows.filter(~is_stray), ["step"])
    rows = with_exclusive_time(axis)
    count = max(1, rows["step"].n_unique())
    on_gpu = DEVICE in rows.columns
    outer = _find_outer_gaps(run, rows.head(0) if on_gpu else rows)
    whole_ns = sum(int(column.sum()) for column in (rows["exclusive_ns"], rows["gap_ns"], outer["gap_ns"]))
    compute_ns = int(rows.filter(pl.col("class") == "compute")["exclusive_ns"].sum())
    if look.is_partial:
        rows = rows.filter("is_requested").with_columns(gap_ns=pl.lit(0, pl.Int64))
    if rows.is_empty():
        return None
    rows = _with_bound(run, rows)
    gaps = _select_gaps(run, rows.filter(pl.col("gap_ns") > 0), on_gpu=on_gpu)
    if not (on_gpu or look.is_partial):
        gaps = pl.concat([gaps, outer.select(c for c in gaps.columns if c in outer.columns)], how="diagonal")
    items = build_items(rows, gaps, whole_ns, compute_ns, by_layer=look.group == "layer")
    return Ledger(
        items=_clear_odd_by_chance(run, items, phase),
        steps=count,
        step_ns=int(rows["exclusive_ns"].sum()) + int(gaps["gap_ns"].sum()),
        whole_ns=whole_ns,
        bound_ns=int(rows["bound_ns"].sum()),
        unmodelled_ns=int(rows.filter(pl.col("cause") == NO_MODEL)["exclusive_ns"].sum()),
        stray_count=int(is_stray.sum()),
        phase=phase,
        is_partial=look.is_partial,
        is_on_device=on_gpu and run.has("step"),
    )


def _find_outer_gaps(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the gap before the first row and after the last of each step, up to its wall time.

    Rows without a start lie in the gaps between others: so much less is gap, and the outer one may be
    negative. Of a step whose wall time is unknown, or shorter than its rows, only that is counted.
    """
    facts = build_step_facts(run).filter(pl.col("steps") == 1).select("step", "wall_ns")
    untimed_ns = pl.col("exclusive_ns").filter(pl.col("t").is_null()).sum().alias("untimed_ns")
    steps = rows.group_by("step").agg(pl.col("exclusive_ns", "gap_ns").sum(), untimed_ns)
    steps = steps.join(facts, on="step", how="left").sort("step")
    outer = pl.col("wall_ns") - pl.col("exclusive_ns") - pl.col("gap_ns")
    is_whole = pl.col("wall_ns").fill_null(0) >= pl.col("exclusive_ns")
    inner = -pl.min_horizontal("untimed_ns", "gap_ns")
    steps = steps.with_columns(gap_ns=pl.when(is_whole).then(outer).otherwise(inner))
    return steps.with_columns(cause=pl.lit(GAP, pl.Enum([GAP]))).filter(pl.col("gap_ns") != 0)


def _clear_odd_by_chance(run: Run, items: pl.DataFrame, phase: str | None) -> pl.DataFrame:
    """Return the items without an odd layer where it is odd in its sum alone, by a few slow launches."""
    if items["odd"].null_count() == items.height:
        return items
    odd_layers = find_odd_layers(run, phase)
    is_odd = [pair in odd_layers for pair in items.select("odd", "op").iter_rows()]
    return items.with_columns(odd=pl.when(pl.Series(is_odd, dtype=pl.Boolean)).then("odd"))


def find_main_phase(run: Run) -> str | None:
    """Return the phase of most steps; None if no step has one."""
    phases = build_step_facts(run)["phase"].drop_nulls()
    if phases.is_empty():
        return None
    counts = phases.value_counts().sort("count", "phase", descending=[True, False])
    return str(counts["phase"][0])


def _with_bound(run: Run, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the `cause` of their time, and `bound_ns`, the ideal part of it."""
    roof = find_roof(run)
    if roof is not None:
        rows = rows.with_columns(build_compute_time(run, roof))
    rows = rows.with_columns(_build_limits(rows, roof))
    rows = rows.with_columns(_build_reachable_time(run, roof))
    rows = rows.with_columns(cause=_EXPOSED_CAUSE.otherwise(pl.col("cause")))
    bound = pl.min_horizontal("exclusive_ns", "ideal_ns").round().cast(pl.Int64)
    return rows.with_columns(
        bound_ns=pl.when(pl.col("cause") == NO_MODEL).then("exclusive_ns")
        .when(pl.col("cause").is_in([COMM, COPY, RANK])).then(0)
        .otherwise(bound)
    )  # fmt: skip


def _split_rank_waits(run: Run, rows: pl.DataFrame, phase: str | None) -> pl.DataFrame:
    """Return rows with collectives split where the last rank arrives; `is_rank_wait` is true before.

    A call of the host within a collective counts as no collective.
    """
    no_wait = rows.with_columns(is_rank_wait=pl.lit(value=False))
    needed = ("t", "dur", "step", "track")
    if len(selection.list_ranks(run)) < 2 or not all(run.has(column) for column in needed):
        return no_wait
    from tracetui.analysis.collective_times import find_arrivals  # numpy loads for several ranks only

    arrivals = find_arrivals(run, phase).sort("t").rename({"t": "called"})
    if arrivals.is_empty():
        return no_wait
    is_comm = (pl.col("class") == gpu_time.COMM) & pl.col("t").is_not_null()
    comm = selection.with_rank(run, rows.filter(is_comm).lazy()).collect().sort("t")
    comm = comm.join_asof(
        arrivals, left_on="t", right_on="called", by="rank", strategy="backward", check_sortedness=False
    )
    end, until = pl.col("t") + pl.col("dur"), pl.min_horizontal("last", pl.col("t") + pl.col("dur"))
    is_wait = (pl.col("t") < pl.col("last")).fill_null(value=False)
    is_inner = (end < pl.col("end")).fill_null(value=False)
    comm = comm.with_columns(count=pl.when(is_inner).then(0).otherwise("count"))
    waits = comm.filter(is_wait).with_columns(dur=until - pl.col("t"), is_rank_wait=pl.lit(value=True))
    rest = comm.filter(is_wait & (end > pl.col("last"))).with_columns(t="last", dur=end - pl.col("last"))
    parts = [rows.filter(~is_comm), comm.filter(~is_wait), rest, waits]
    table = pl.concat([part.select(c for c in (*rows.columns, "is_rank_wait") if c in part.columns)
                       for part in parts], how="diagonal")  # fmt: skip
    return table.with_columns(pl.col("is_rank_wait").fill_null(value=False))


def _build_limits(rows: pl.DataFrame, roof: Roof | None) -> list[pl.Expr]:
    """Return expressions of the ideal time of each row's work, and of what limits it."""
    if roof is None:
        return [pl.lit(0.0).alias("ideal_ns"), pl.lit(NO_MODEL, CAUSE).alias("cause")]
    memory, by_flops = roof.memory_bytes_per_s, pl.col(COMPUTE_NS).fill_null(0.0)
    by_bytes = (pl.col("bytes") / memory * 1e9).fill_null(0.0) if memory else pl.lit(0.0)
    floor = pl.col("count") * roof.floor_ns
    best = pl.max_horizontal(by_bytes, by_flops)
    cause = (
        pl.when(best <= 0).then(pl.lit(NO_MODEL, CAUSE))
        .when(floor >= best).then(pl.lit(LAUNCH, CAUSE))
        .when(by_flops > by_bytes).then(pl.lit(COMPUTE, CAUSE))
        .otherwise(pl.lit(MEMORY, CAUSE))
    )  # fmt: skip
    return [pl.max_horizontal(best, floor).alias("ideal_ns"), cause.alias("cause")]


def _build_reachable_time(run: Run, roof: Roof | None) -> pl.Expr:
    """Return `reachable_ns`, the time of each row's work at the rates that someone reached on the device.

    Where nobody did, at GOOD_ROOF_SHARE of the roof.
    """
    careful = pl.col("ideal_ns") / GOOD_ROOF_SHARE
    reached = find_achievable_roof(run)
    if roof is None or reached is None:
        return careful.alias("reachable_ns")
    compute = pl.coalesce(build_compute_time(run, reached), pl.col(COMPUTE_NS) / GOOD_ROOF_SHARE)
    peak = reached.memory_bytes_per_s or roof.memory_bytes_per_s * GOOD_ROOF_SHARE
    memory = pl.col("bytes") / peak * 1e9 if peak else pl.lit(0.0)
    floor = pl.col("count") * roof.floor_ns / GOOD_ROOF_SHARE
    best = pl.max_horizontal(compute.fill_null(0.0), memory.fill_null(0.0), floor)
    return pl.max_horizontal(best, "ideal_ns").alias("reachable_ns")


def _select_gaps(run: Run, rows: pl.DataFrame, *, on_gpu: bool) -> pl.DataFrame:
    """Return the gaps that these rows end: `gap_ns`, `cause`, `by`, `begin`, `queued`, `delay_ns`.

    `delay_ns` is the launch delay of the device.
    """
    gaps = rows.select("step", "gap_ns", end="t", begin=pl.col("t") - pl.col("gap_ns"), after="op")
    if not on_gpu:
        gap_cause, no_stack = pl.lit(GAP, pl.Enum([GAP])), pl.lit(None, pl.Categorical)
        queued = pl.lit(None, pl.Int32)
        return gaps.with_columns(cause=gap_cause, by=no_stack, delay_ns=pl.lit(0, pl.Int64), queued=queued)
    classified = select_busiest_device(run, find_gaps(run).lazy())
    classified = classified.select(pl.col("step").fill_null(0), "end", "gap_ns", "cause", "by", "queued")
    cause = pl.col("cause").fill_null(pl.lit(idle_gaps.LAUNCH_UNKNOWN, idle_gaps.CAUSE))
    delay = pl.lit(estimate_launch_delay(run), pl.Int64)
    return _join_known_gaps(gaps, classified.collect()).with_columns(cause, delay_ns=delay)


def _join_known_gaps(gaps: pl.DataFrame, classified: pl.DataFrame) -> pl.DataFrame:
    """Return gaps with the columns of the known gaps of the same step, end and length; else null."""
    key = ["step", "end", "gap_ns"]
    are_sorted = gaps["end"].is_sorted() and classified["end"].is_sorted()
    if not are_sorted or classified["end"].n_unique() < classified.height:
        classified = classified.unique(key, maintain_order=True)
        return gaps.join(classified, on=key, how="left", maintain_order="left")
    if all(gaps[c].equals(classified[c]) for c in key):
        return gaps.with_columns(classified.drop(key))
    joined = gaps.join_asof(classified.rename({"step": "in", "gap_ns": "long"}), on="end", tolerance=0)
    is_same = (pl.col("in") == pl.col("step")) & (pl.col("long") == pl.col("gap_ns"))
    columns = [pl.when(is_same).then(c).alias(c) for c in classified.columns if c not in key]
    return joined.with_columns(columns).drop("in", "long")
