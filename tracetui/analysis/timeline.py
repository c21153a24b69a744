"""The timeline: lanes of slices in a time window, at the resolution of a screen."""

from dataclasses import replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui.analysis.frames.name_filter import find_matching_names, match_names
from tracetui.analysis.frames.selection import filter_rows, select_existing
from tracetui.analysis.frames.time_axis import uncovered_ns
from tracetui.analysis.time.device_time import compute_step_spans
from tracetui.analysis.time.idle_gaps import find_track_gaps, with_cause_names
from tracetui.analysis.time.steady import find_steady_state
from tracetui.analysis.time.step_table import compute_step_durations
from tracetui.look import Look

STEP_MARGIN_PARTS: Final = 50  # the margin before and after a step is its time divided by this
_MAX_HOST_FACTOR: Final = 2  # times the device time: a longer host step includes other work

CELLS: Final = 480  # finer than any screen
MAX_WIDE_SLICES: Final = 20_000  # the longest slices, placed one by one
MAX_LAYER_SLICES: Final = 100_000  # with more slices, single layers are invisible
STEPS, LAYERS = "steps", "layers"  # names of lanes that are not tracks
_STEP, _COVER, _LAYER, _KERNEL, _WAIT, _HOST = range(6)  # groups of lanes, in drawing order
_KINDS: Final = ("step", "span", "layer", "kernel", "wait", "span")
_MAX_LANE_ROWS: Final = 1 << 20  # more rows than any lane has
_SLICE_COLUMNS: Final = ("category", "op", "layer", "step", "phase", "launch", "launcher", "line")


def find_typical_step(run: Run, phase: str | None = None) -> tuple[int, int] | None:
    """Return the first and last ns around the step of median duration; None if no step has a time.

    It is a step of the requested phase, else of the most frequent one, of the steady state if there is one.
    With device times, the kernels say when a step was: a host may launch long before.
    """
    table = _compute_step_extents(run)
    if phase is not None:
        table = table.filter(phase=phase)
    if table.is_empty():
        return None
    sizes = table.group_by("phase").agg(count=pl.len(), time=pl.col("dur").sum())
    main_phase = sizes.sort("count", "time", "phase", descending=[True, True, False])["phase"][0]
    of_main = table.filter(pl.col("phase").eq_missing(pl.lit(main_phase, pl.String)))
    steady = find_steady_state(run)
    steady_steps = of_main.filter(pl.col("step").is_between(steady.first, steady.last)) if steady else of_main
    ordered = (steady_steps if steady_steps.height else of_main).sort("dur", "step")
    low, high = ordered[(ordered.height - 1) // 2, ["low", "high"]].row(0)
    margin = (high - low) // STEP_MARGIN_PARTS
    return low - margin, high + margin


def _compute_step_extents(run: Run) -> pl.DataFrame:
    """Return one row per step with its phase, duration, first and last ns."""
    durations = compute_step_durations(run).filter(pl.col("steps") == 1)
    table = durations.join(compute_step_spans(run).select("step", "begin", "end"), on="step", how="left")
    host_end = pl.col("t") + pl.col("wall_ns")
    span = pl.col("end") - pl.col("begin")
    is_host_near = pl.when((host_end - pl.col("t")) <= _MAX_HOST_FACTOR * span)
    return table.select(
        "step",
        "phase",
        dur=pl.coalesce("took_ns", span),
        low=is_host_near.then(pl.min_horizontal("t", "begin")).otherwise(pl.coalesce("begin", "t")),
        high=is_host_near.then(pl.max_horizontal(host_end, "end")).otherwise(pl.coalesce("end", host_end)),
    ).drop_nulls(["low", "high"])


class Timeline(Struct, frozen=True, eq=False):
    """Lanes and their contents: wide slices (of a cell and more) one by one, shorter ones as busy time."""

    lanes: pl.DataFrame  # lane, kind, count, busy_ns, busy_share, first_ns, last_ns; the number is the index
    slices: pl.DataFrame  # all in the window: lane number, row in it, t, end, name, wide …
    cells: pl.DataFrame  # of slices that are not wide: lane, row, cell, category, busy_ns
    gaps: pl.DataFrame  # idle gaps of a cell and more: lane, t, end, name, by, fits
    names: pl.DataFrame  # name, category, count, total_ns in the window, of kernels by falling time
    window: tuple[int, int]  # requested, inside the extent
    extent: tuple[int, int]


def build_timeline(run: Run, look: Look) -> Timeline | None:
    """Return lanes, slices and gaps of the window; None if nothing on a timeline is selected.

    A filter leaves out nothing: slices have `fits`, and lanes count those that match.
    """
    rows = select_timeline_rows(run, look)
    lanes = build_lanes(run, rows)
    first, last = rows.select(pl.col("t").min(), pl.col("end").max()).collect().row(0)
    if first is None:
        return None
    low, high = look.zoom or _choose_window(run, look, (first, last))
    high = max(high, low + 1)
    slices_in_window = select_slices(run, rows, lanes, low, high)
    gaps = find_gap_slices(run, look, lanes, (high - low) / CELLS, (low, high))
    if not slices_in_window["fits"].any() and not gaps["fits"].any():
        return None
    slices = _place_slices(slices_in_window, high - low)
    return Timeline(
        lanes=_with_lane_load(lanes, slices, low, high),
        slices=slices,
        cells=_sum_by_cell(slices, low, high),
        gaps=gaps,
        names=_sum_by_name(slices, low, high),
        window=(low, high),
        extent=(first, last),
    )


def _choose_window(run: Run, look: Look, extent: tuple[int, int]) -> tuple[int, int]:
    """Return the initial window: the requested steps, else a typical step, else everything."""
    if look.window is not None or look.focus:
        return extent
    low, high = find_typical_step(run, look.phase) or extent
    return (max(low, extent[0]), min(high, extent[1])) if low < extent[1] and high > extent[0] else extent


def select_timeline_rows(run: Run, look: Look) -> pl.LazyFrame:
    """Return everything with a start and a duration, whether or not its name matches the filter."""
    cols = [pl.col(c).is_not_null() for c in ("t", "dur")]
    rows = run.events.lazy().filter(pl.col("kind").is_in(["step", "span", "kernel"]), *cols)
    if look.lens is not None and run.has("lens"):
        rows = rows.filter((pl.col("lens") == look.lens) | (pl.col("kind") == "step"))
    rows = filter_rows(rows, run, replace(look, filter=""))
    track = pl.coalesce(*select_existing(run, ("track", "lens")), "kind")
    is_wait = (pl.col("lens") == "wait").fill_null(False) if run.has("lens") else pl.lit(False)
    group = (
        pl.when(pl.col("kind") == "step").then(_STEP)
        .when(pl.col("kind") == "span").then(_HOST)
        .when(is_wait).then(_WAIT)
        .otherwise(_KERNEL)
    )  # fmt: skip
    names = find_matching_names(run, look.filter) if look.filter else None
    fits = pl.lit(True) if names is None else pl.col("name").is_in(names.implode())
    rows = rows.with_columns(
        end=pl.col("t") + pl.col("dur"),
        track=pl.when(pl.col("kind") != "step").then(track),
        group=group.cast(pl.Int8),
        fits=fits,
    )
    code = pl.col("track").to_physical().cast(pl.Int64).fill_null(-1) * len(_KINDS) + pl.col("group")
    columns = select_existing(run, _SLICE_COLUMNS)
    return rows.select("name", "t", *columns, "end", "track", "group", "fits", code=code + len(_KINDS))


def build_lanes(run: Run, rows: pl.LazyFrame) -> pl.DataFrame:
    """Return one row per lane of the whole run: steps, device tracks with covers and layers, threads.

    Threads come by their number of slices.
    """
    has_layers = pl.col("layer").is_not_null().any() if run.has("layer") else pl.lit(False)
    sizes = rows.group_by("track", "group", "code").agg(pl.len(), layered=has_layers)
    table = sizes.collect().with_columns(pl.col("track").cast(pl.String))
    kernels = table.filter(group=_KERNEL)["track"].implode()
    is_cover = (pl.col("group") == _HOST) & pl.col("track").is_in(kernels, nulls_equal=True)
    group = pl.when(is_cover).then(_COVER).otherwise("group").cast(pl.Int8)
    table = table.with_columns(group=group)
    layers = table.filter("layered", group=_KERNEL)
    table = pl.concat([table, layers.with_columns(group=pl.lit(_LAYER, pl.Int8))])
    is_device = pl.col("group").is_between(_COVER, _KERNEL)
    on_device = pl.when(is_device)
    table = table.sort(
        pl.when(pl.col("group") == _STEP).then(0).when(is_device).then(1).otherwise("group"),
        on_device.then("track"), on_device.then("group"), on_device.then(0).otherwise("len"), "track",
        descending=[False, False, False, True, False],
    )  # fmt: skip
    label = pl.col("group").cast(pl.Int64).replace_strict(
        {_STEP: STEPS, _LAYER: LAYERS}, default=pl.col("track"), return_dtype=pl.String
    )  # fmt: skip
    kind = pl.col("group").replace_strict(dict(enumerate(_KINDS)), return_dtype=pl.String)
    return table.select("track", "code", lane=label, kind=kind)


def select_slices(run: Run, rows: pl.LazyFrame, lanes: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the slices that reach into a window, with their lane number."""
    inside = rows.filter((pl.col("t") < high) & (pl.col("end") >= low)).collect()
    numbered = lanes.with_row_index("number").with_columns(pl.col("number").cast(pl.Int32))
    tracks = numbered.filter(pl.col("kind") != "layer")
    last = max(tracks["code"], default=0)
    lane_of = pl.Series("lane", [None], dtype=pl.Int32).extend_constant(None, last)
    lane_of = lane_of.scatter(tracks["code"], tracks["number"])
    inside = inside.with_columns(lane_of.gather(inside["code"]))
    if run.has("layer") and inside.height <= MAX_LAYER_SLICES:
        layers = numbered.filter(kind="layer").select("code", lane="number")
        inside = pl.concat([inside, _build_layer_slices(inside, layers)], how="diagonal")
    is_nested, is_kernel = (pl.col("group").is_in(groups) for groups in ([_STEP, _HOST], [_KERNEL]))
    return inside.with_columns(nests=is_nested, kernel=is_kernel).drop("code", "track", "group")


def _build_layer_slices(inside: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """Return a slice for each run of kernels on one track that share layer and step."""
    rows = inside.filter(group=_KERNEL).sort("code", "t", maintain_order=True)
    key = [pl.col("code"), pl.col("layer"), *([pl.col("step")] if "step" in rows.columns else [])]
    is_start = pl.any_horizontal(c.ne_missing(c.shift()) for c in key)
    with_segment = rows.with_columns(segment=is_start.cum_sum()).filter(pl.col("layer").is_not_null())
    columns = [c for c in ("layer", "step", "phase") if c in rows.columns]
    table = with_segment.group_by("segment", maintain_order=True).agg(
        pl.col("t").min(), pl.col("end").max(), pl.col("fits").any(), pl.col("code", *columns).first()
    )
    name = pl.format("layer {}", "layer").cast(pl.Categorical())
    joined = table.join(numbers, on="code", how="left", maintain_order="left")
    return joined.select("t", "end", "fits", "lane", *columns, name=name, group=pl.lit(_LAYER, pl.Int8))


def find_gap_slices(
    run: Run, look: Look, lanes: pl.DataFrame, min_ns: float, window: tuple[int, int] | None = None
) -> pl.DataFrame:
    """Return device gaps of `min_ns` or more that reach into a window, else of the whole run.

    Each is in a kernel lane of its device.
    """
    gaps = find_track_gaps(run, look, min_ns, window)
    gaps = with_cause_names(run, gaps.with_columns(pl.col("track").cast(pl.String)))
    kernels = lanes.with_row_index("lane_number").filter(kind="kernel")
    numbers = kernels.select("track", lane=pl.col("lane_number").cast(pl.Int32))
    fits = match_names(gaps["name"], look.filter) if look.filter else pl.lit(True)
    table = gaps.with_columns(fits=fits).join(numbers, on="track", maintain_order="left")
    return table.select("lane", "t", "end", "name", "by", "fits")


def _place_slices(inside: pl.DataFrame, window: int) -> pl.DataFrame:
    """Return the slices with `wide` for those of a cell and more, and the `row` of their lane."""
    from tracetui.analysis.frames import nesting  # numpy loads with the first question

    length = inside["end"] - inside["t"]
    is_wide = length >= -(-window // CELLS)
    if is_wide.sum() > MAX_WIDE_SLICES:
        is_wide &= length > length.filter(is_wide).top_k(MAX_WIDE_SLICES).min()
    return inside.with_columns(nesting.stack_slices(inside, is_wide), wide=is_wide)


def _with_lane_load(lanes: pl.DataFrame, slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the lanes with count and busy time of matching slices in the window."""
    clipped = (
        slices.lazy().filter("fits").select("lane", pl.col("t", "end").clip(low, high)).sort("lane", "t")
    )
    loads = clipped.with_columns(added=uncovered_ns(pl.col("end"), "lane")).group_by("lane").agg(
        count=pl.len().cast(pl.Int64), busy_ns=pl.col("added").sum(), first_ns=pl.col("t").min(),
        last_ns=pl.col("end").max(),
    )  # fmt: skip
    numbered = lanes.lazy().with_columns(number=pl.int_range(pl.len()).cast(slices.schema["lane"]))
    joined = numbered.join(loads, left_on="number", right_on="lane", how="left", maintain_order="left")
    busy = pl.col("count", "busy_ns").fill_null(0)
    share = (pl.col("busy_ns") / (high - low)).alias("busy_share")
    return (
        joined.with_columns(busy)
        .select(*lanes.columns, "count", "busy_ns", share, "first_ns", "last_ns")
        .collect()
    )


def _sum_by_cell(slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the busy time per cell, row and category of slices that are not wide.

    Such a slice is shorter than a cell, so it lies in one or two of them.
    """
    width = (high - low) / CELLS
    category = pl.col("category") if "category" in slices.columns else pl.lit(None, pl.Categorical())
    short = slices.lazy().filter(~pl.col("wide"))
    # from the window's start: as a float, a time since 1970 is exact to 256 ns only
    ends = {"a": pl.col("t"), "b": pl.col("end")}
    short = short.with_columns(**{c: time.clip(low, high) - low for c, time in ends.items()})
    first, last = ((pl.col(c) / width).floor().cast(pl.Int64).clip(0, CELLS - 1) for c in "ab")
    # one integer for lane, row and cell
    place = (pl.col("lane").cast(pl.Int64) * _MAX_LANE_ROWS + pl.col("row")) * CELLS
    placed = short.select("a", "b", category=category, first=place + first, last=place + last)
    edge = (pl.col("last") % CELLS) * width
    is_split = pl.col("first") < pl.col("last")
    in_first = pl.when(is_split).then(edge).otherwise("b") - pl.col("a")
    key, busy_ns = ("place", "category"), pl.col("busy_ns")
    parts = [
        placed.select("category", place="first", busy_ns=in_first),
        placed.filter(is_split).select("category", place="last", busy_ns=pl.col("b") - edge),
    ]
    sums = [part.group_by(key).agg(busy_ns.sum()).select(*key, "busy_ns") for part in parts]
    table = pl.concat(sums).group_by(key).agg(busy_ns.sum()).sort(key).collect()
    row, cell = pl.col("place") // CELLS, pl.col("place") % CELLS
    numbers = {"lane": row // _MAX_LANE_ROWS, "row": row % _MAX_LANE_ROWS, "cell": cell}
    columns = [e.cast(pl.Int32).alias(c) for c, e in numbers.items()]
    return table.select(*columns, "category", "busy_ns")


def _sum_by_name(slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the time of each kernel name in the window, the largest first."""
    in_window = pl.col("end").clip(low, high) - pl.col("t").clip(low, high)
    category = pl.col("category") if "category" in slices.columns else pl.lit(None, pl.Categorical())
    kernels = slices.lazy().filter("fits", "kernel")
    sums = kernels.group_by("name").agg(category=category.first(), count=pl.len(), total_ns=in_window.sum())
    table = sums.collect().with_columns(pl.col("name", "category").cast(pl.String))
    return table.sort("total_ns", "name", descending=[True, False])
