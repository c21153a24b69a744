"""The timeline: lanes of slices between two moments, at the resolution of a screen."""

from dataclasses import replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui.analysis import idle_gaps, matching, select, typical_step
from tracetui.look import Look

CELLS: Final = 480  # finer than any screen; a drawing squeezes them
PLACED: Final = 20_000  # slices at most that are placed one by one, the longest
FEW: Final = 100_000  # slices among which single layers can be seen

STEPS, LAYERS = "steps", "layers"  # the names of lanes that are no tracks
_STEP, _COVER, _LAYER, _KERNEL, _WAIT, _HOST = range(6)  # groups of lanes, in the order of a chart of devices
_KINDS: Final = ("step", "span", "layer", "kernel", "wait", "span")
_ROWS: Final = 1 << 20  # more rows than a lane has
_TOLD: Final = ("category", "op", "layer", "step", "phase", "launch", "launcher", "line")  # of a slice


class Timeline(Struct, frozen=True, eq=False):
    """Lanes and what lies in them: slices of a cell and more one by one, shorter ones as busy time."""

    lanes: pl.DataFrame  # lane, kind, count, busy_ns, busy_share, first_ns, last_ns; number is the place
    slices: pl.DataFrame  # all in the window: number of the lane, row in it, t, end, name, wide …
    cells: pl.DataFrame  # of those that are not wide: lane, row, cell, category, busy_ns
    gaps: pl.DataFrame  # where nothing of a device ran, of a cell and more: lane, t, end, name, by, fits
    names: pl.DataFrame  # name, category, count, total_ns in the window, of kernels by falling time
    window: tuple[int, int]  # of the look, within
    whole: tuple[int, int]


def timeline(run: Run, look: Look) -> Timeline | None:
    """Return what ran in the window; None where nothing on a timeline fits the look.

    A filter leaves out nothing: it says of each slice whether it `fits`, and lanes count those that do.
    """
    rows = timed_rows(run, look)
    lanes = lanes_of(run, rows)
    whole = _extent(rows)
    if whole is None:
        return None
    low, high = look.zoom or _opening(run, look, whole)
    high = max(high, low + 1)
    inside = in_window(run, rows, lanes, low, high)
    gaps = gaps_of(run, look, lanes, (high - low) / CELLS, (low, high))
    if not inside["fits"].any() and not gaps["fits"].any():
        return None
    slices = _placed(inside, high - low)
    return Timeline(
        lanes=_measured(lanes, slices, low, high),
        slices=slices,
        cells=_cells(slices, low, high),
        gaps=gaps,
        names=_names(slices, low, high),
        window=(low, high),
        whole=whole,
    )


def _opening(run: Run, look: Look, whole: tuple[int, int]) -> tuple[int, int]:
    """Return where a timeline opens: on the steps asked for, else on a typical step, else on everything."""
    if look.window is not None or look.focus:
        return whole
    low, high = typical_step.typical_step(run, look.phase) or whole
    return (max(low, whole[0]), min(high, whole[1])) if low < whole[1] and high > whole[0] else whole


def timed_rows(run: Run, look: Look) -> pl.LazyFrame:
    """Return everything with a start and a duration, whether or not its name fits the filter."""
    cols = [pl.col(c).is_not_null() for c in ("t", "dur")]
    rows = run.events.lazy().filter(pl.col("kind").is_in(["step", "span", "kernel"]), *cols)
    if look.lens is not None and run.has("lens"):
        rows = rows.filter((pl.col("lens") == look.lens) | (pl.col("kind") == "step"))
    rows = select.narrowed(rows, run, replace(look, filter=""))
    track = pl.coalesce(*select.have(run, ("track", "lens")), "kind")
    waits = (pl.col("lens") == "wait").fill_null(False) if run.has("lens") else pl.lit(False)
    group = (
        pl.when(pl.col("kind") == "step").then(_STEP)
        .when(pl.col("kind") == "span").then(_HOST)
        .when(waits).then(_WAIT)
        .otherwise(_KERNEL)
    )  # fmt: skip
    names = matching.matching_names(run, look.filter) if look.filter else None
    fits = pl.lit(True) if names is None else pl.col("name").is_in(names.implode())
    rows = rows.with_columns(
        end=pl.col("t") + pl.col("dur"),
        track=pl.when(pl.col("kind") != "step").then(track),
        group=group.cast(pl.Int8),
        fits=fits,
    )
    code = pl.col("track").to_physical().cast(pl.Int64).fill_null(-1) * len(_KINDS) + pl.col("group")
    told = select.have(run, _TOLD)
    return rows.select("name", "t", *told, "end", "track", "group", "fits", code=code + len(_KINDS))


def lanes_of(run: Run, rows: pl.LazyFrame) -> pl.DataFrame:
    """Return one row a lane of all the time: steps, each device track with its covers and layers, threads.

    Threads stand in the order of how many slices they have.
    """
    layered = pl.col("layer").is_not_null().any() if run.has("layer") else pl.lit(False)
    sizes = rows.group_by("track", "group", "code").agg(pl.len(), layered=layered)
    table = sizes.collect().with_columns(pl.col("track").cast(pl.String))
    kernels = table.filter(group=_KERNEL)["track"].implode()
    cover = (pl.col("group") == _HOST) & pl.col("track").is_in(kernels, nulls_equal=True)
    group = pl.when(cover).then(_COVER).otherwise("group").cast(pl.Int8)
    table = table.with_columns(group=group)
    layers = table.filter("layered", group=_KERNEL)
    table = pl.concat([table, layers.with_columns(group=pl.lit(_LAYER, pl.Int8))])
    device = pl.col("group").is_between(_COVER, _KERNEL)
    table = table.sort(
        pl.when(pl.col("group") == _STEP).then(0).when(device).then(1).otherwise("group"),
        pl.when(device).then("track"),
        pl.when(device).then("group"),
        pl.when(device).then(0).otherwise("len"),
        "track",
        descending=[False, False, False, True, False],
    )  # fmt: skip
    named = {_STEP: STEPS, _LAYER: LAYERS}
    group = pl.col("group").cast(pl.Int64)
    label = group.replace_strict(named, default=pl.col("track"), return_dtype=pl.String)
    kind = pl.col("group").replace_strict(dict(enumerate(_KINDS)), return_dtype=pl.String)
    return table.select("track", "code", lane=label, kind=kind)


def _extent(rows: pl.LazyFrame) -> tuple[int, int] | None:
    low, high = rows.select(pl.col("t").min(), pl.col("end").max()).collect().row(0)
    return None if low is None else (low, high)


def in_window(run: Run, rows: pl.LazyFrame, lanes: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the slices that reach into a window, with the number of their lane."""
    inside = rows.filter((pl.col("t") < high) & (pl.col("end") >= low)).collect()
    numbered = lanes.with_row_index("number").with_columns(pl.col("number").cast(pl.Int32))
    tracks = numbered.filter(pl.col("kind") != "layer")
    last = max(tracks["code"], default=0)
    lane_of = pl.Series("lane", [None], dtype=pl.Int32).extend_constant(None, last)
    lane_of = lane_of.scatter(tracks["code"], tracks["number"])
    inside = inside.with_columns(lane_of.gather(inside["code"]))
    if run.has("layer") and inside.height <= FEW:
        layers = numbered.filter(kind="layer").select("code", lane="number")
        inside = pl.concat([inside, _layers(inside, layers)], how="diagonal")
    nests, kernel = (pl.col("group").is_in(groups) for groups in ([_STEP, _HOST], [_KERNEL]))
    return inside.with_columns(nests=nests, kernel=kernel).drop("code", "track", "group")


def _layers(inside: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """Return a slice for each stretch of kernels of one track that are of one layer and step."""
    rows = inside.filter(group=_KERNEL).sort("code", "t", maintain_order=True)
    key = [pl.col("code"), pl.col("layer"), *([pl.col("step")] if "step" in rows.columns else [])]
    begins = pl.any_horizontal(c.ne_missing(c.shift()) for c in key)
    stretches = rows.with_columns(stretch=begins.cum_sum()).filter(pl.col("layer").is_not_null())
    told = [c for c in ("layer", "step", "phase") if c in rows.columns]
    table = stretches.group_by("stretch", maintain_order=True).agg(
        pl.col("t").min(), pl.col("end").max(), pl.col("fits").any(), pl.col("code", *told).first()
    )
    name = pl.format("layer {}", "layer").cast(pl.Categorical())
    joined = table.join(numbers, on="code", how="left", maintain_order="left")
    return joined.select("t", "end", "fits", "lane", *told, name=name, group=pl.lit(_LAYER, pl.Int8))


def gaps_of(
    run: Run, look: Look, lanes: pl.DataFrame, least: float, window: tuple[int, int] | None = None
) -> pl.DataFrame:
    """Return the gaps of devices of a length or more that reach into a window, else of the whole run, each in
    a lane of kernels of its device.
    """
    found = idle_gaps.idle_gaps(run, look, least, window)
    found = idle_gaps.with_causes(run, found.with_columns(pl.col("track").cast(pl.String)))
    kernels = lanes.with_row_index("lane_number").filter(kind="kernel")
    numbers = kernels.select("track", lane=pl.col("lane_number").cast(pl.Int32))
    fits = matching.fitting(found["name"], look.filter) if look.filter else pl.lit(True)
    table = found.with_columns(fits=fits).join(numbers, on="track", maintain_order="left")
    return table.select("lane", "t", "end", "name", "by", "fits")


def _placed(inside: pl.DataFrame, window: int) -> pl.DataFrame:
    """Return the slices with `wide` for those of a cell and more, and the `row` of their lane they lie in."""
    from tracetui.analysis import lane_rows  # numpy loads with the first question

    length = inside["end"] - inside["t"]
    wide = length >= -(-window // CELLS)
    if wide.sum() > PLACED:
        wide &= length > length.filter(wide).top_k(PLACED).min()
    return inside.with_columns(lane_rows.with_rows(inside, wide), wide=wide)


def _measured(lanes: pl.DataFrame, slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the lanes with what fits the filter in the part of the window in which they were busy."""
    seen = slices.filter("fits").select(
        "lane", a=pl.col("t").clip(low, high), b=pl.col("end").clip(low, high)
    )
    parts = {lane: own for (lane,), own in seen.partition_by("lane", as_dict=True).items()}
    facts = [_facts(parts.get(i), high - low) for i in range(lanes.height)]
    names = ("count", "busy_ns", "busy_share", "first_ns", "last_ns")
    types = dict.fromkeys(names, pl.Int64) | {"busy_share": pl.Float64}
    return pl.concat([lanes, pl.DataFrame(facts, schema=types, orient="row")], how="horizontal")


def _facts(own: pl.DataFrame | None, window: int) -> tuple[object, ...]:
    if own is None:
        return 0, 0, 0.0, None, None
    own = own if own["a"].is_sorted() else own.sort("a")
    busy = _union(own["a"], own["b"])
    return own.height, busy, busy / window, own["a"].min(), own["b"].max()


def _union(starts: pl.Series, ends: pl.Series) -> int:
    """Return the time covered by intervals in the order of their starts: what overlaps counts once."""
    before = ends.cum_max().shift(1, fill_value=starts[0])
    covered = pl.select(pl.max_horizontal(starts, before)).to_series()
    return int((ends - covered).clip(lower_bound=0).sum())


def _cells(slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return how busy slices that are not wide keep each cell of each row, category by category.

    Such a slice is shorter than a cell, so that it lies in one or in two of them.
    """
    width = (high - low) / CELLS
    category = pl.col("category") if "category" in slices.columns else pl.lit(None, pl.Categorical())
    short = slices.lazy().filter(~pl.col("wide"))
    short = short.with_columns(a=pl.col("t").clip(low, high), b=pl.col("end").clip(low, high))
    first, last = (((pl.col(c) - low) / width).floor().cast(pl.Int64).clip(0, CELLS - 1) for c in "ab")
    row = (pl.col("lane").cast(pl.Int64) * _ROWS + pl.col("row")) * CELLS  # one number for lane, row and cell
    placed = short.select("a", "b", row=row, category=category, first=first, last=last)
    edge = low + pl.col("last") * width
    both = pl.col("first") < pl.col("last")
    inside = pl.when(both).then(edge).otherwise("b") - pl.col("a")
    key = ("place", "category")
    parts = [
        placed.select("category", place=pl.col("row") + pl.col("first"), busy_ns=inside),
        placed.filter(both).select(
            "category", place=pl.col("row") + pl.col("last"), busy_ns=pl.col("b") - edge
        ),
    ]
    sums = [part.group_by(key).agg(pl.col("busy_ns").sum()).select(*key, "busy_ns") for part in parts]
    table = pl.concat(sums).group_by(key).agg(pl.col("busy_ns").sum()).sort(key).collect()
    lane, row = (pl.col("place") // CELLS // _ROWS).cast(pl.Int32), pl.col("place") // CELLS % _ROWS
    cell = (pl.col("place") % CELLS).cast(pl.Int32)
    return table.select(
        lane.alias("lane"), row.cast(pl.Int32).alias("row"), cell.alias("cell"), "category", "busy_ns"
    )


def _names(slices: pl.DataFrame, low: int, high: int) -> pl.DataFrame:
    """Return the time of each name of kernels within the window, the largest first."""
    inside = pl.col("end").clip(low, high) - pl.col("t").clip(low, high)
    category = pl.col("category") if "category" in slices.columns else pl.lit(None, pl.Categorical())
    kernels = slices.lazy().filter("fits", "kernel")
    sums = kernels.group_by("name").agg(category=category.first(), count=pl.len(), total_ns=inside.sum())
    table = sums.collect().with_columns(pl.col("name", "category").cast(pl.String))
    return table.sort("total_ns", "name", descending=[True, False])
