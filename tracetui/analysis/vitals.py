"""The state of a run and of its machine at the last moment known, for a header line."""

from typing import Final

import polars as pl
from msgspec import Struct, field

from capture.run import Run
from tracetui.analysis import kept, roofline, select, steps, watched, windows
from tracetui.look import Look

NEWEST: Final = 5  # samples of a counter that are averaged: a second of them
GAUGES: Final = {
    "running": (("requests running", "requests"),),
    "waiting": (("requests waiting", "requests"),),
    "kv": (("KV cache usage", "%"),),
    "ttft": (("TTFT p50", "ms"),),
    "itl": (("ITL p50", "ms"),),
    "cpu": (("host_cpu_usage", "%"), ("cpu_frequency", "MHz")),
    "gpu": (("gpu_usage", "%"), ("gpu_sm_frequency", "MHz"), ("gpu_power", "W"), ("gpu_temperature", "°C")),
}
_MEMORY: Final = ("gpu_mem_used", "process_mem_used")
_COST: Final = "capture cost"
_SPEED: Final = ("generated tokens/s", "tok/s")  # as a server counts
_UNITS: Final = (
    {name: unit for figures in GAUGES.values() for name, unit in figures}
    | dict.fromkeys(_MEMORY, "B")
    | {_COST: "%"}
    | dict([_SPEED])
)


class Vitals(Struct, frozen=True):
    """Figures of the newest moment; None where unknown, no gauge of a device that was not read."""

    context: int | None = None
    memory: float | None = None  # bytes in use: of the GPU where there is one, else of the process
    read_share: float | None = None  # of the memory's speed, in decode
    read_roof: float | None = None  # bytes a second
    capture_pct: float | None = None
    tokens_per_s: float | None = None  # of a server, by its own count
    gauges: dict[str, tuple[tuple[float | None, str], ...]] = field(default_factory=dict)


def vitals(run: Run) -> Vitals:
    """Return the newest state of a run."""
    newest = _newest(run)
    memory = next((newest[name, "B"] for name in _MEMORY if (name, "B") in newest), None)
    roof = roofline.roof_of(run)
    gauges = {
        device: tuple((newest.get(figure), figure[1]) for figure in figures)
        for device, figures in GAUGES.items()
        if any(figure in newest for figure in figures)
    }
    return Vitals(
        context=None if run.meta.get(watched.WATCHED) == watched.SERVER else _context(run),  # of one request
        memory=memory,
        read_share=_read_share(run, roof.memory) if roof and roof.memory else None,
        read_roof=roof.memory if roof and roof.memory else None,
        capture_pct=newest.get((_COST, "%")),
        tokens_per_s=newest.get(_SPEED),
        gauges=gauges,
    )


def _newest(run: Run) -> dict[tuple[str, str], float]:
    """Return each counter's last second, of those in the unit meant here; of several devices the first."""
    if not run.has("value"):
        return {}
    found = [rows for rows in kept.of_pieces(run, "gauges", _gauges) if rows is not None]
    if not found:
        return {}
    rows = pl.concat(found)
    name, value = pl.col("name").cast(pl.String), pl.col("value")
    track, unit = (
        pl.col(c).cast(pl.String) if run.has(c) else pl.lit(None, pl.String) for c in ("track", "unit")
    )
    order = pl.col("t") if run.has("t") else pl.int_range(pl.len())
    own_unit = name.replace_strict(_UNITS, return_dtype=pl.String)
    first = (
        rows.lazy()
        .select(name, value, track.alias("track"), order.alias("at"), own_unit.alias("meant"), unit=unit)
        .filter(pl.col("unit").fill_null(pl.col("meant")) == pl.col("meant"))
        .sort("at")
        .group_by("name", "meant", "track")
        .agg(value.tail(NEWEST).mean())
        .sort(pl.col("track").str.len_chars(), "track", nulls_last=False)
        .unique("name", keep="first", maintain_order=True)
        .select("name", "meant", "value")
        .collect()
    )
    return {(name, unit): value for name, unit, value in first.iter_rows()}


def _gauges(events: pl.DataFrame) -> pl.DataFrame | None:
    """Return the samples of these counters among some events; None where there are none."""
    counters = (events["kind"] == "counter").arg_true()
    if counters.is_empty():
        return None
    columns = [c for c in ("name", "value", "track", "t", "unit") if c in events.columns]
    known = pl.col("name").cast(pl.String).is_in(list(_UNITS)) & pl.col("value").is_not_null()
    rows = events[counters, columns].filter(known)
    return rows if rows.height else None


def _context(run: Run) -> int | None:
    """Return the context length at the end of the last step; None where unknown."""
    contexts = steps.marks(run)["context"].drop_nulls()
    return int(contexts[-1]) if contexts.len() else None


def _read_share(run: Run, roof: float) -> float | None:
    """Return the traffic of the decode steps over their wall time, as a share of the roof; None where
    unknown. Where the kernels do not tell all of the traffic, it is that of the weights alone.
    """
    walls = steps.marks(run).filter((pl.col("phase") == "decode") & (pl.col("wall_ns") > 0))
    traffic = _moved(run, walls) or _weights(run, walls)
    if traffic is None:
        return None
    moved, wall = traffic
    return moved / (wall / 1e9) / roof if moved and wall else None


def _moved(run: Run, walls: pl.DataFrame) -> tuple[float, int] | None:
    """Return the bytes that the kernels of these steps moved, and their wall time; None where unknown."""
    seen_in_part = windows.coverage(run, Look()) is not None
    if seen_in_part or not (run.has("bytes") and run.has("step") and run.has("dur")):
        return None
    rows = select.timed(run, Look()).group_by("step")
    moved = rows.agg(pl.col("bytes").sum(), gaps=pl.col("bytes").null_count()).collect()
    total, wall, gaps = walls.join(moved, on="step").select(pl.col("bytes", "wall_ns", "gaps").sum()).row(0)
    return (total, wall) if total and not gaps else None


def _weights(run: Run, walls: pl.DataFrame) -> tuple[float, int] | None:
    """Return the bytes of the weights read, once a pass, and the wall time; None where they are unknown."""
    each = run.meta.get("bytes_per_token")
    if isinstance(each, bool) or not isinstance(each, int | float) or each <= 0:
        return None
    timed = walls.filter(pl.col("tokens").is_not_null())
    passes = timed.select((pl.col("tokens") / pl.col("batch").fill_null(1).clip(1)).sum()).item()
    return each * passes, int(timed["wall_ns"].sum())
