"""Rooflines: how fast work was done, as a share of the device's peak rates, and what bounds it."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

import polars as pl
from msgspec.structs import replace

from capture import device_roofs
from capture.classify.experts_work import EXPERTS_KERNEL, estimate_experts_touched
from capture.device_roofs import FORMATS, Roof, shorten_format
from capture.model_work.model_config import NOTES_KEY, OPS_KEY
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.codes import map_by_code
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct
from tracetui.analysis.frames.selection import (
    launch_count,
    list_lenses,
    select_kind,
    select_timed,
    sum_unfiltered_ns,
    with_group,
)
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

VARIATION_FACTOR: Final = 1.2  # fastest over slowest sample, above which the variation is reported
_EXPERTS_OP: Final = "moe.experts"
_EXPERTS_SHAPE: Final = re.compile(r"m=(\d+) n=\d+ k=\d+ e=(\d+)/(\d+)")
WORK: Final = ("bytes", "flops")
COMPUTE_NS: Final = "compute_ns"  # time of a row's operations at the peak rate of its number format
WORK_SUMS: Final = (*WORK, COMPUTE_NS)
RATES: Final = ("gb_per_s", "gflop_per_s")
MIN_UNCACHED_BYTES: Final = 256 << 20  # bytes, more than any cache holds
MAX_CACHED_BYTES: Final = 1 << 20  # bytes per launch that the previous op may have left in a cache
ROOF_COLUMNS: Final = ("roof_share", "bound")
RATE_COLUMNS: Final = (*RATES, *ROOF_COLUMNS)
_HAS_WORK: Final = (pl.col("flops") > 0).fill_null(False) & (pl.col("bytes") > 0).fill_null(False)
_RATE_SCHEMA: Final = {
    **dict.fromkeys(("intensity", "gflop_per_s", "gb_per_s", "roof_share"), pl.Float64),
    "bound": pl.String,
}


def select_bandwidth_samples(run: Run) -> pl.DataFrame:
    """Return the memory bandwidth sampled during a run: `t` and `value` in bytes per second, by time."""
    if not run.has("value") or not run.has("name"):
        return pl.DataFrame(schema={"t": pl.Int64, "value": pl.Float64})
    counters = select_kind(run, "counter", ("t", "name", "value"))
    is_read = pl.col("name").cast(pl.String) == device_roofs.READ_COUNTER
    return counters.filter(is_read, pl.col("value") > 0).select("t", "value").drop_nulls().sort("t")


def compute_sampled_roof(run: Run, roof: Roof) -> Roof:
    """Return the roof with the memory bandwidth sampled at each step instead of that at the start.

    Every step reads the same weights, so the ideal time of all steps is the sum of their ideal times: the
    roof is the harmonic mean of the sampled rates.
    """
    samples = select_bandwidth_samples(run)
    if samples.is_empty():
        return roof
    step_starts = build_step_facts(run)["t"].drop_nulls()
    indices = (samples["t"].search_sorted(step_starts, side="right").cast(pl.Int64) - 1).clip(0)
    rates = samples["value"].gather(indices) if len(step_starts) else samples["value"]
    mean = len(rates) / float((1 / rates).sum())
    sampled = {"read_bytes_per_s": mean, "read_low": min(rates), "read_high": max(rates)}
    return replace(roof, source=device_roofs.SAMPLED_DURING_RUN, copy_bytes_per_s=0.0, **sampled)


def describe_bandwidth_range(roof: Roof) -> str:
    """Describe how much the memory bandwidth varied during the run; empty if little."""
    if not roof.read_low or roof.read_high <= VARIATION_FACTOR * roof.read_low:
        return ""
    low, high = _format_giga(roof.read_low), _format_giga(roof.read_high)
    return f"memory bandwidth varied ({low} to {high} GB/s) during the run: compare roof shares, not times"


@cache_per_run
def find_roof(run: Run) -> Roof | None:
    """Return the roof that the run carries, else that of its device; None if neither is known.

    With bandwidth samples, its memory bandwidth is that during the run.
    """
    device = run.meta.get("device")
    roof = device_roofs.from_meta(run.meta.get("roof"))
    roof = roof or (device_roofs.from_table(device) if isinstance(device, str) else None)
    return roof and compute_sampled_roof(run, roof)


def with_makers_roof(run: Run) -> Run | None:
    """Return the run with the rates that the maker of its device states; None if they are not known."""
    device = run.meta.get("device")
    roof = device_roofs.from_table(device) if isinstance(device, str) else None
    return dataclasses.replace(run, meta={**run.meta, "roof": roof.as_meta()}) if roof else None


def unify_roofs(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs with roofs of one kind, and a note if their own are of several kinds.

    They get the rates that the makers state, if those of all devices are known; else the note says what their
    shares refer to.
    """
    roofs = [roof for run in runs if (roof := find_roof(run)) is not None]
    if len({roof.kind or roof.source for roof in roofs}) < 2:
        return list(runs), []
    by_makers = [with_makers_roof(run) for run in runs]
    if None not in by_makers:
        note = "roofs of all runs: stated by the makers, since their own are of several kinds"
        return [run for run in by_makers if run is not None], [note]
    kinds = ", ".join(dict.fromkeys(describe_origin(roof) for roof in roofs))
    return list(runs), [f"roofs of several kinds, so their shares do not compare: {kinds}"]


def find_achievable_roof(run: Run) -> Roof | None:
    """Return the rates that someone reached on the device; None if its roof is not what the maker states."""
    roof, device = find_roof(run), run.meta.get("device")
    if roof is None or roof.kind != device_roofs.BY_MAKER or not isinstance(device, str):
        return None
    return device_roofs.from_table(device, device_roofs.ACHIEVABLE)


@cache_per_run
def find_dtype(run: Run) -> str | None:
    """Return the number format of products (fp32 may multiply in tf32), else of the run; None if unknown.

    If neither is stated, that of most operations.
    """
    products, dtype = run.meta.get("products"), run.meta.get("dtype")
    if isinstance(products, str) and products:
        return products.split()[0]
    if isinstance(dtype, str) or not (run.has("dtype") and run.has("flops")):
        return dtype if isinstance(dtype, str) else None
    if (formats := list_distinct(run, "dtype")).len() < 2:
        return str(formats[0]) if formats.len() else None
    sums = run.events.lazy().group_by("dtype").agg(pl.col("flops").sum()).drop_nulls("dtype").collect()
    return str(sums.sort("flops", descending=True)["dtype"][0])


def with_compute_time(rows: pl.LazyFrame, run: Run) -> pl.LazyFrame:
    """Return rows with `compute_ns`, if the run has operations and a roof; null if the rate is unknown."""
    roof = find_roof(run) if run.has("flops") else None
    return rows if roof is None else rows.with_columns(build_compute_time(run, roof))


def build_compute_time(run: Run, roof: Roof) -> pl.Expr:
    """Return the `compute_ns` of rows: each has the rate of its number format, else of that of the run."""

    def compute_ns_per_flop(dtype: str | None) -> float | None:
        rate = roof.find_flop_rate(dtype)
        return 1e9 / rate if rate else None

    ns_per_flop: pl.Expr = pl.lit(compute_ns_per_flop(find_dtype(run)), pl.Float64)
    if run.has("dtype"):
        formats = list_distinct(run, "dtype")
        each = [compute_ns_per_flop(name) for name in formats.cast(pl.String)]
        of_format = map_by_code("dtype", formats, pl.Series(each, dtype=pl.Float64))
        ns_per_flop = pl.when(pl.col("dtype").is_null()).then(ns_per_flop).otherwise(of_format)
    return (pl.col("flops") * ns_per_flop).alias(COMPUTE_NS)


def build_work_sums(run: Run) -> list[pl.Expr]:
    """Return expressions of a group's bytes, operations and `compute_ns`, null if any row lacks them."""
    has_roof = run.has("flops") and find_roof(run) is not None
    present = [*(c for c in WORK if run.has(c)), *([COMPUTE_NS] if has_roof else [])]
    return [pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in present]


def with_rates(table: pl.DataFrame, run: Run) -> pl.DataFrame:
    """Return a table of counts, totals and work with rates instead of the work; null if unknown."""
    present, total_ns = [c for c in WORK_SUMS if c in table.columns], pl.col("total_ns")
    pairs = [(pl.col(work), name) for work, name in zip(WORK, RATES, strict=True) if work in present]
    # work per ns is thousand millions per second
    rates = {name: pl.when((work > 0) & (total_ns > 0)).then(work / total_ns) for work, name in pairs}
    rated = table.with_columns_seq(**rates).with_columns_seq(build_roof_columns(run, present))
    return drop_unknown_rates(rated.drop(*present))


def drop_unknown_rates(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without rates that are unknown in every row."""
    return table.drop(c for c in RATE_COLUMNS if c in table.columns and table[c].null_count() == table.height)


def build_roof_columns(run: Run, present: Sequence[str]) -> list[pl.Expr]:
    """Return roof_share and bound of rows with count, total_ns and work; nothing if no roof is known.

    `present` are the columns of WORK_SUMS that the rows have. `roof_share` is that of the nearer roof, and
    `bound` the roof that binds: the one with the longest ideal time.
    """
    roof = find_roof(run)
    if roof is None or not present:
        return []
    peak = roof.memory_bytes_per_s
    memory = (pl.col("bytes") / peak * 1e9).fill_null(0.0) if peak and "bytes" in present else pl.lit(0.0)
    compute = pl.col(COMPUTE_NS).fill_null(0.0) if COMPUTE_NS in present else pl.lit(0.0)
    best_ns, total_ns = pl.max_horizontal(memory, compute), pl.col("total_ns")
    bound = (
        pl.when((memory > total_ns) & _may_be_cached(run, present)).then(pl.lit(roof.cache))
        .when(pl.col("count") * roof.floor_ns > best_ns).then(pl.lit("floor"))
        .when(compute > memory).then(pl.lit("compute"))
        .otherwise(pl.lit("memory"))
    )  # fmt: skip
    is_known = pl.when((best_ns > 0) & (total_ns > 0))
    return [is_known.then(best_ns / total_ns).alias("roof_share"), is_known.then(bound).alias("bound")]


def _may_be_cached(run: Run, present: Sequence[str]) -> pl.Expr:
    """True for rows that a cache may have served.

    Between two uses of a weight all others are read, so if a token reads more than a cache holds, only what
    the op before has just written, which is small, can come from it.
    """
    read = run.meta.get("bytes_per_token")
    if not isinstance(read, int | float) or read < MIN_UNCACHED_BYTES or "bytes" not in present:
        return pl.lit(value=True)
    return pl.col("bytes") <= MAX_CACHED_BYTES * pl.col("count")


def note_roof(run: Run, table: pl.DataFrame) -> list[str]:
    """Return notes on which roof the shares refer to, its source, and what the bounds mean."""
    roof = find_roof(run)
    if roof is None or "bound" not in table.columns:
        has_rates = any(c in table.columns for c in RATES)
        return [describe_unknown_roof(run)] if has_rates else []
    floor_text = f"{roof.floor_ns / 1e3:.2g} µs"
    meanings = {
        roof.cache: f"{roof.cache}: faster than memory, so not all data came from there",
        "floor": f"floor: too little work to fill a launch ({floor_text} minimum)",
    }
    bounds = set(table["bound"].drop_nulls())
    sentences = [*(m for w, m in meanings.items() if w in bounds), describe_bandwidth_range(roof)]
    assumptions = [*note_experts(run), *note_model_config(run)]
    return [f"roof: {describe_roof(roof, find_dtype(run))}", *filter(None, sentences), *assumptions]


def note_model_config(run: Run) -> list[str]:
    """Return notes on the work that is from the config of the model, and what it assumes."""
    notes = run.meta.get(NOTES_KEY)
    return [str(note) for note in notes] if isinstance(notes, list) else []


def note_experts(run: Run) -> list[str]:
    """Return notes on what the work of mixtures of experts assumes; none without them."""
    if not run.has("shape"):
        return []
    shapes = (_EXPERTS_SHAPE.fullmatch(shape) for shape in list_distinct(run, "shape").cast(pl.String))
    counts = next((tuple(map(int, match.groups())) for match in shapes if match), None)
    if counts is None:
        return []
    tokens, experts, chosen = counts
    touched = estimate_experts_touched(experts, chosen, tokens)
    has_guess = list_distinct(run, "name").cast(pl.String).str.contains(EXPERTS_KERNEL, literal=True).any()
    has_guess &= not any(op.startswith(_EXPERTS_OP) for op in run.meta.get(OPS_KEY, ()))
    return [
        f"bytes assume that {touched:.1f} of {experts} experts are read ({tokens} tokens × {chosen} each), "
        "with the scales of their weights",
        *(["experts: the inner size is not stated and taken as the hidden size"] if has_guess else []),
    ]


def describe_unknown_roof(run: Run) -> str:
    """Describe that no roof is known; measuring one is advised for CPUs, since it measures this machine."""
    device = run.meta.get("device")
    what = f"no roof is known for {device if isinstance(device, str) and device else 'this device'}"
    return what if "gpu" in list_lenses(run) else f"{what} (tracetui doctor --measure, on that machine)"


def describe_roof(roof: Roof, dtype: str | None = None) -> str:
    """Describe a roof: its rates, and their source."""
    memory, compute = roof.memory_bytes_per_s, roof.find_flop_rate(dtype)
    figures = [f"{_format_giga(memory)} GB/s"] if memory else []
    if memory and roof.read_low and memory == roof.read_bytes_per_s:  # sampled during the run
        figures[0] += f" ({_format_giga(roof.read_low)} to {_format_giga(roof.read_high)})"
    if compute:
        name = shorten_format(dtype)
        figures.append(_format_flops(compute) + (f" in {name}" if name in FORMATS else ""))
    return ", ".join([*figures, describe_origin(roof)])


def _format_flops(per_s: float) -> str:
    """Format a rate in TFLOP/s, below one in GFLOP/s."""
    return f"{per_s / 1e12:,.4g} TFLOP/s" if per_s >= 1e12 else f"{_format_giga(per_s)} GFLOP/s"


def describe_origin(roof: Roof) -> str:
    """Describe where the rates of a roof are from: `stated by NVIDIA`, `measured 2026-01-02 03:04 UTC`."""
    return f"{roof.kind} by {roof.by}" if roof.kind else f"{roof.source} {roof.when}".rstrip()


def _format_giga(value: float) -> str:
    return units.format_giga(value / 1e9)


def compute_roofline_points(run: Run, look: Look, group: str) -> pl.DataFrame:
    """Return one row per group, largest total first: rates, operations per byte, and `known_share`.

    `share` is that of all rows, including filtered ones.
    `known_share` is the share of its time whose work is known. Rates and intensity are of that part, else
    null.
    """
    rows = with_group(run, select_timed(run, look), group)
    category = pl.col("category").cast(pl.String) if run.has("category") else pl.lit(None, pl.String)
    rows = with_compute_time(rows.with_columns(kind_of_work=category, launches=launch_count(run)), run)
    columns = [*WORK, *([] if find_roof(run) is None else [COMPUTE_NS])]
    sums = rows.group_by(group).agg(
        pl.col("launches").sum().cast(pl.Int64),
        pl.col("dur").sum().alias("all_ns"),
        pl.col("launches").filter(_HAS_WORK).sum().cast(pl.Int64).alias("count"),
        pl.col("dur").filter(_HAS_WORK).sum().alias("total_ns"),
        pl.col(columns).filter(_HAS_WORK).sum(),
    )
    table = sums.collect().join(_find_main_category(rows, group), on=group, how="left", nulls_equal=True)
    table = table.with_columns(intensity=pl.when(pl.col("bytes") > 0).then(pl.col("flops") / pl.col("bytes")))
    with_roof = with_rates(table, run)
    unknown = {c: pl.lit(None, kind) for c, kind in _RATE_SCHEMA.items() if c not in with_roof.columns}
    total = pl.col("all_ns").sum()
    if look.filter or look.where:
        total = pl.lit(sum_unfiltered_ns(run, look))
    return (
        with_roof.with_columns(**unknown)
        .select(
            pl.col(group).cast(pl.String) if with_roof.schema[group] == pl.Categorical else group,
            *([] if group == "category" else [pl.col("kind_of_work").alias("category")]),
            *_RATE_SCHEMA,
            share=pl.when(total > 0).then(pl.col("all_ns") / total),
            total_ns="all_ns",
            count="launches",
            known_share=pl.when(pl.col("all_ns") > 0).then(pl.col("total_ns") / pl.col("all_ns")),
        )
        .sort("total_ns", group, descending=[True, False], nulls_last=True)
    )


def _find_main_category(rows: pl.LazyFrame, group: str) -> pl.DataFrame:
    """Return the category of most launches of each group."""
    with_category = rows.filter(pl.col("kind_of_work").is_not_null()).group_by(group, "kind_of_work")
    counts = with_category.agg(pl.col("launches").sum()).collect()
    counts = counts.sort("launches", "kind_of_work", descending=[True, False])
    return counts.group_by(group, maintain_order=True).agg(pl.col("kind_of_work").first())
