"""The step axis: one row a step, and how much of its wall time the kernels account for."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import device_time, gap_causes, select
from tracetui.analysis.step_sums import kernel_sums
from tracetui.look import Look

_EMPTY: Final = {
    "step": pl.Int64(),
    "phase": pl.String(),
    "tokens": pl.Int64(),
    "context": pl.Int64(),
    "batch": pl.Int64(),
    "t": pl.Int64(),
    "wall_ns": pl.Int64(),
    "steps": pl.Int64(),
}
_LATE: Final = ("host_late_ns", "sync_ns")  # of the idle time
_STATED: Final = ("step", "phase", "tokens", "context", "batch", "t", "dur", "count")


@select.once
def marks(run: Run) -> pl.DataFrame:
    """Return one row a step, in order: phase, tokens, context, batch, start, wall time; null where unknown.

    `steps` is 1 but for steps that were folded into one.
    """
    if not run.has("step"):
        return pl.DataFrame(schema=_EMPTY)
    rows = select.of_kind(run, "step", _STATED).filter(pl.col("step").is_not_null())
    table = _phases(run).join(rows.group_by("step").agg(_stated(run)), on="step", how="left")
    if "phase_stated" in table.columns:
        table = table.with_columns_seq(phase=pl.coalesce("phase_stated", "phase"))
    return table.with_columns_seq(pl.col("steps").fill_null(1)).select_seq(*_EMPTY).sort("step")


def _phases(run: Run) -> pl.DataFrame:
    """Return step → the phase on which all its rows agree."""
    step = run.events["step"]
    if not run.has("phase"):
        numbers = step.gather(select.changes(step).arg_true()).drop_nulls().unique()
        return pl.DataFrame({"step": numbers}).with_columns(phase=pl.lit(None, pl.String))
    begin = select.changes(step) | select.changes(run.events["phase"])
    pairs = run.events[begin.arg_true(), ["step", "phase"]].unique().filter(pl.col("step").is_not_null())
    phase = pl.col("phase").cast(pl.String).drop_nulls()
    return pairs.group_by("step").agg(pl.when(phase.len() == 1).then(phase.first()).alias("phase"))


def _stated(run: Run) -> list[pl.Expr]:
    """Return what step rows say; of several ranks in one step, which run at once, the largest."""
    highest = {"tokens": "tokens", "context": "context", "batch": "batch", "dur": "wall_ns"}
    exprs = [
        (pl.col(c).max() if run.has(c) else pl.lit(None, pl.Int64)).alias(alias)
        for c, alias in highest.items()
    ]
    exprs.append(select.standing_for(run).max().cast(pl.Int64).alias("steps"))
    exprs.append((pl.col("t").min() if run.has("t") else pl.lit(None, pl.Int64)).alias("t"))
    if run.has("phase"):
        exprs.append(pl.col("phase").cast(pl.String).drop_nulls().first().alias("phase_stated"))
    return exprs


@select.once
def paced(run: Run) -> pl.DataFrame:
    """Return the marks with `took_ns`, how long each step took, and `on_device`, whether the device says so.

    The host's wall time stands, unless the device tells that it is another stretch of time: shorter than the
    device's window, elsewhere, or with kernels that ran far from the rest. Then the step took from the end of
    the one before to its own, less what nothing was asked for. Without either time `took_ns` is null.
    """
    table = marks(run)
    windows = device_time.by_step(run)
    if windows.is_empty():
        return table.with_columns_seq(took_ns="wall_ns", on_device=pl.lit(value=False))
    table = table.join(windows.select("step", "begin", "end", "span_ns"), on="step", how="left")
    split = device_time.measured(run).far["step"].unique()
    middle = (pl.col("begin") + pl.col("end")) // 2
    fits = pl.col("wall_ns") >= pl.col("span_ns")
    fits &= middle.is_between("t", pl.col("t") + pl.col("wall_ns")) & ~pl.col("step").is_in(split.implode())
    table = table.with_columns(on_device=pl.col("span_ns").is_not_null() & ~fits.fill_null(value=False))
    if not table["on_device"].any():
        return table.with_columns(took_ns="wall_ns").select(*_EMPTY, "took_ns", "on_device")
    table = table.join(_periods(run, windows), on="step", how="left")
    took = pl.when("on_device").then("period_ns").otherwise("wall_ns")
    return table.select(*_EMPTY, "on_device", took_ns=took).sort("step")


def decode_rate(run: Run) -> float | None:
    """Return tokens a second in decode: as the source states it, else of its decode steps; None where neither
    is told.
    """
    stated = run.meta.get("decode_tokens_per_s")
    if isinstance(stated, int | float) and stated > 0:
        return float(stated)
    decode = paced(run).filter(pl.col("phase") == "decode").drop_nulls(["tokens", "took_ns"])
    took = int(decode["took_ns"].sum())
    return int(decode["tokens"].sum()) * 1e9 / took if took else None


def _periods(run: Run, windows: pl.DataFrame) -> pl.DataFrame:
    """Return step → `period_ns`: its window without what lies in one before, and the idle time before it."""
    apart = gap_causes.between(run)
    long = pl.col("gap_ns") >= gap_causes.LONG_NS
    idle = apart.filter(
        (pl.col("cause") == gap_causes.NOTHING) | (long & (pl.col("cause") == gap_causes.UNKNOWN))
    )
    ordered = windows.sort("begin").with_columns(reach=pl.col("end").cum_max().shift(1))
    alone = pl.col("reach").is_null() | pl.col("step").is_in(idle["step"].implode())
    since = pl.when(alone).then("begin").otherwise(pl.min_horizontal("reach", "end"))
    return ordered.select("step", period_ns=pl.col("end") - since)


def cells(table: pl.DataFrame, width: int) -> pl.Series:
    """Return the cell of a course in which each step of a table (`step`, `steps`) falls: at most `width`.

    A cell is a power of two of steps long and begins at a multiple of its length. So the cells of a run that
    grows stay what they are, until there are too many: then each two become one.
    """
    place, size = _places(table), 1
    if place.is_empty():
        return place
    low, high, longest = int(place[0]), int(place[-1]), int(table["steps"].max())  # type: ignore[arg-type]
    while size < longest or high // size - low // size >= width:
        size *= 2
    return place // size - low // size


def _places(table: pl.DataFrame) -> pl.Series:
    """Return where each step is: its number, or where numbers have wide gaps how many came before it."""
    step, steps = table["step"], table["steps"]
    if step.is_empty() or int(step[-1]) - int(step[0]) < 2 * int(steps.sum()):
        return step.cast(pl.Int64)
    return (steps.cum_sum() - steps).cast(pl.Int64)


def step_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a step: its kernels under each lens, per token, and beside the wall clock."""
    others = [x for x in select.lenses(run) if x != select.lens_of(run, look)]
    table = _with_totals(run, look)
    for lens in others:
        table = table.join(_totals(run, look, lens, f"{lens}_total_ns"), on="step", how="left")
    device = _on_device(run, look, table)
    if not device.is_empty():
        device = device.join(gap_causes.by_step(run), on="step", how="left")
    table = table.join(device, on="step", how="left")
    return table.with_columns(_derived(table.columns)).select(
        "step",
        *(["steps"] if (table["steps"] > 1).any() else []),
        "phase",
        "tokens",
        "context",
        "batch",
        "total_ns",
        *(f"{x}_total_ns" for x in others),
        *(c for c in (*device_time.MEASURES, *_LATE) if c in table.columns),
        "per_token_ns",
        "wall_ns",
        *(["outside_ns"] if "busy_ns" in table.columns else ["gap_ns", "gap_share"]),
        "tokens_per_s",
    )


def idle_ns(run: Run, look: Look) -> int | None:
    """Return how long the devices idled in the steps of the table; None where it lacks that of one."""
    table = _with_totals(run, look)
    device = _on_device(run, look, table)
    if device.is_empty():
        return None
    idle = table.select("step").join(device, on="step", how="left")["idle_ns"]
    return None if idle.has_nulls() else int(idle.sum())


def _with_totals(run: Run, look: Look) -> pl.DataFrame:
    """Return the steps looked at, with the `total_ns` of their kernels under the lens in use."""
    table = paced(run)
    if look.phase is not None and run.has("phase"):
        table = table.filter(pl.col("phase") == look.phase)
    if look.window is not None:
        table = table.filter(pl.col("step").is_between(*look.window))
    return table.join(_totals(run, look, select.lens_of(run, look), "total_ns"), on="step", how="left")


def beside_the_wall(run: Run) -> list[str]:
    """Return in a sentence what tokens/s are of, where the host's wall time is no measure of steps."""
    apart = paced(run).filter(pl.col("on_device") & (pl.col("tokens") > 0))
    if apart.is_empty():
        return []
    took, walls = units.duration(int(apart["took_ns"].sum())), apart["wall_ns"].drop_nulls()
    whose = f"{apart.height:,} steps" if apart.height > 1 else "the step"
    words = f"tokens/s are of the {took} that the device took for {whose}"
    return [f"{words}, not of the host's {units.duration(int(walls.sum()))}" if walls.len() else words]


def stated(run: Run, phase: object) -> str | None:
    """Return what the source itself says of a phase, its GPU total and wall time; None where nothing."""
    gpu, wall = run.meta.get(f"{phase}_gpu_ns"), run.meta.get(f"{phase}_ms")
    if not isinstance(gpu, int) or not isinstance(wall, int | float) or wall <= 0:
        return None
    return f"the source prints {gpu / 1e6:,.2f} ms of {phase}, {gpu / wall / 1e4:.1f}% of {wall:,.1f} ms wall"


def _totals(run: Run, look: Look, lens: str | None, name: str) -> pl.DataFrame:
    return kernel_sums(run, look, lens).rename({"dur": name})


def _on_device(run: Run, look: Look, totals: pl.DataFrame) -> pl.DataFrame:
    """Return step → what the device did in it, where its kernels' moments tell more than their sum does.

    A part of the kernels leaves the rest of the window open: no figures where names are filtered.
    """
    nothing = pl.DataFrame(schema={"step": pl.Int64})
    if select.lens_of(run, look) != "gpu" or look.partial:
        return nothing
    windows = device_time.by_step(run)
    looked_at = windows.join(totals.select("step", "total_ns"), on="step")
    if looked_at.is_empty() or not device_time.speaks(looked_at, "total_ns"):
        return nothing
    return windows.select("step", "span_ns", *device_time.MEASURES)


def _derived(columns: Sequence[str]) -> list[pl.Expr]:
    """Return the columns computed from others. The wall holds busy, idle and what is outside of the device's
    window; without windows all but the kernels is a gap. Below zero the kernels run on, and it stays null.
    """
    tokens, total, wall = pl.col("tokens"), pl.col("total_ns"), pl.col("wall_ns")
    on_device = "busy_ns" in columns
    seen = pl.col("span_ns") if on_device else total
    busy = pl.coalesce("busy_ns", total) if on_device else total
    rest = pl.when(wall >= seen).then(wall - seen)
    whole = pl.coalesce("took_ns", busy)
    return [
        pl.when(tokens > 0).then(total / tokens).round().cast(pl.Int64).alias("per_token_ns"),
        rest.alias("outside_ns" if on_device else "gap_ns"),
        pl.when(wall > 0).then(rest / wall).alias("gap_share"),
        pl.when((tokens > 0) & (whole > 0)).then(tokens * 1e9 / whole).alias("tokens_per_s"),
    ]
