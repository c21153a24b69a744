"""Rooflines: how fast work was done, and what part that is of the best that the device can do."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture import roofs
from capture.roofs import Roof
from capture.run import Run
from tracetui import units
from tracetui.analysis import roof_readings, select

WORK: Final = ("bytes", "flops")
RATES: Final = ("gb_per_s", "gflop_per_s")
CACHES: Final = 256 << 20  # bytes that no cache holds
LEFT: Final = 1 << 20  # bytes of a row that the op before may have left in a cache
AGAINST_ROOF: Final = ("roof_share", "bound")
COLUMNS: Final = (*RATES, *AGAINST_ROOF)


@select.once
def roof_of(run: Run) -> Roof | None:
    """Return the roof that the run carries, else that of its device; None where neither is known.

    Where memory was read beside the run, its speed is that of the run's own time.
    """
    device = run.meta.get("device")
    roof = roofs.from_meta(run.meta.get("roof"))
    roof = roof or (roofs.from_table(device) if isinstance(device, str) else None)
    return roof and roof_readings.of_its_time(run, roof)


def dtype_of(run: Run) -> str | None:
    """Return what products are computed in, as stated first (fp32 may multiply in tf32); None if unknown."""
    products, dtype = run.meta.get("products"), run.meta.get("dtype")
    if isinstance(products, str) and products:
        return products.split()[0]
    return dtype if isinstance(dtype, str) else None


def work(run: Run) -> list[pl.Expr]:
    """Return expressions of a group's bytes and operations, null where a row does not tell its own."""
    return [pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in WORK if run.has(c)]


def with_rates(table: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Return a table of counts, totals and work with rates in place of the work; null where unknown."""
    present = [c for c in WORK if c in table.columns]
    rated = table.with_columns_seq(
        _rate(work, name) for work, name in zip(WORK, RATES, strict=True) if work in present
    )
    rated = rated.with_columns_seq(against_roof(run, present))
    return without_unknown(rated.drop(*present))


def without_unknown(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without those rates that are known of none of its rows."""
    return table.drop(c for c in COLUMNS if c in table.columns and table[c].null_count() == table.height)


def against_roof(run: Run, present: Sequence[str]) -> list[pl.Expr]:
    """Return expressions of roof_share and bound of rows with count, total_ns and the work that is present;
    none where no roof is known.
    """
    roof = roof_of(run)
    return list(_against(roof, dtype_of(run), present, _cached(run, present))) if roof and present else []


def _cached(run: Run, present: Sequence[str]) -> pl.Expr:
    """Return whether a cache can have served a row: between two uses of a weight lie all the others, so that
    where a step reads more of them than a cache holds, only what the op before has left can be in one.
    """
    read = run.meta.get("bytes_per_token")
    if not isinstance(read, int | float) or read < CACHES or "bytes" not in present:
        return pl.lit(value=True)
    return pl.col("bytes") <= LEFT * pl.col("count")


def _rate(work: str, name: str) -> pl.Expr:
    """Return thousands of millions a second; null where there is no work."""
    measurable = (pl.col(work) > 0) & (pl.col("total_ns") > 0)
    return pl.when(measurable).then(pl.col(work) / pl.col("total_ns")).alias(name)


def _against(
    roof: Roof, dtype: str | None, present: Sequence[str], cached: pl.Expr
) -> tuple[pl.Expr, pl.Expr]:
    """Return the share of the nearer roof, and which of them binds: the one that takes longest at best."""
    limits = {"bytes": roof.memory, "flops": roof.compute(dtype)}
    least = {c: pl.col(c) / limits[c] * 1e9 for c in present if limits[c]}
    if not least:
        return pl.lit(None, pl.Float64).alias("roof_share"), pl.lit(None, pl.String).alias("bound")
    memory = least.get("bytes", pl.lit(0.0)).fill_null(0.0)
    compute = least.get("flops", pl.lit(0.0)).fill_null(0.0)
    at_best, floor = pl.max_horizontal(memory, compute), pl.col("count") * roof.floor_ns
    sure = (at_best > 0) & (pl.col("total_ns") > 0)
    word = (
        pl.when((memory > pl.col("total_ns")) & cached)
        .then(pl.lit(roof.cache))
        .when(floor > at_best)
        .then(pl.lit("floor"))
        .when(compute > memory)
        .then(pl.lit("compute"))
        .otherwise(pl.lit("memory"))
    )
    return (
        pl.when(sure).then(at_best / pl.col("total_ns")).alias("roof_share"),
        pl.when(sure).then(word).alias("bound"),
    )


def notes(run: Run, table: pl.DataFrame) -> list[str]:
    """Return which roof the shares are of, how it is known, and what the words beside them mean."""
    roof = roof_of(run)
    if roof is None or "bound" not in table.columns:
        rated = any(c in table.columns for c in RATES)
        return ["no roof is known of this run's device (tracetui doctor --measure)"] if rated else []
    least = f"{roof.floor_ns / 1e3:.2g} µs"
    meanings = {
        roof.cache: f"{roof.cache}: faster than memory, so not all of it was read from there",
        "floor": f"floor: less work than fits the {least} that a launch takes at least",
    }
    words = set(table["bound"].drop_nulls())
    sentences = [*(m for w, m in meanings.items() if w in words), roof_readings.swing(roof)]
    return [f"roof: {describe(roof, dtype_of(run))}", *filter(None, sentences)]


def describe(roof: Roof, dtype: str | None = None) -> str:
    """Write a roof in a few words: its figures, and how they are known."""
    compute = roof.compute(dtype)
    figures = [
        *([f"{_giga(roof.memory)} GB/s{_range(roof)}"] if roof.memory else []),
        *([f"{_giga(compute)} GFLOP/s"] if compute else []),
    ]
    stated = roof.source == roofs.TABLE
    how = "as its maker states it (table)" if stated else f"{roof.source} {roof.when}".rstrip()
    return f"{', '.join(figures)}, {how}"


def _range(roof: Roof) -> str:
    """Return how far single readings lay apart, where the roof is one of several."""
    if not roof.read_low or roof.memory != roof.read_bytes_per_s:
        return ""
    return f" ({_giga(roof.read_low)} to {_giga(roof.read_high)})"


def _giga(value: float) -> str:
    return units.giga(value / 1e9)
