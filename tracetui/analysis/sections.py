"""Recompute metallic's own report from a recording: the same sections, keys, filters, limits and order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import DTYPES, Run

TOP: Final = 20  # rows of most sections, as in metallic's report
TOP_KERNELS: Final = 50  # of the kernel aggregate
QUANTILES: Final = (("p95", 0.95), ("p99", 0.99))
TITLES: Final = (
    "Event type summary",
    "Backend selection summary",
    "Backend selection reasons",
    "Backend selection by op/backend",
    "Internal kernel by parent",
    "Internal kernel by parent/op",
    "Kernel aggregate (all parents)",
    "GPU kernel durations (excluding waits)",
    "GPU kernel aggregate (by kernel type)",
    "Matmul backend summary",
    "Matmul op/backend summary",
    "Matmul shape backend summary",
    "GPU wait breakdown",
    "Command buffer GPU timing",
    "Sync operations",
)
_US: Final = pl.col("us")
_RAW: Final = pl.col("raw")


@dataclass(frozen=True, eq=False)
class ReportSection:
    """A heading and its rows: label, count, statistics in µs; `under` is the parent of a nested row."""

    title: str
    rows: pl.DataFrame


def compute_sections(run: Run) -> list[ReportSection]:
    """Return every section for which the recording has rows."""
    durations = select_durations(run)
    tables = {
        "Event type summary": _count_event_types(run, durations),
        **_count_selections(run.tables.get("backends")),
        **_sum_internal_kernels(durations.filter(pl.col("lens") == "host")),
        **_sum_ops(durations.filter(pl.col("lens") != "host")),
    }
    sync = durations.filter(_RAW.str.to_lowercase().str.contains("sync", literal=True))
    sections = [ReportSection(title, rows) for title, rows in tables.items() if rows.height]
    return [*sections, ReportSection("Sync operations", _sum_syncs(sync))]


def select_durations(run: Run) -> pl.DataFrame:
    """Return every duration with its name in the file, in the order of the lines."""
    key = ["lens", "name", "path"]
    names = run.tables["names"].with_columns(pl.col(key).cast(pl.Categorical()))
    columns = ("kind", *key, "shape", "dur")
    rows = run.events.lazy().select(c if run.has(c) else pl.lit(None, DTYPES[c]).alias(c) for c in columns)
    timed_rows = rows.filter(pl.col("kind").is_in(["kernel", "span"]) & pl.col("dur").is_not_null())
    durations = timed_rows.select(*key, "shape", us=pl.col("dur") // 1000)
    return durations.join(names.lazy(), on=key, how="left", maintain_order="left").collect()


def compute_statistics(samples: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return count and statistics in µs per key, by falling total; ties in order of appearance."""
    statistics = samples.lazy().group_by(*keys, maintain_order=True).agg(
        count=pl.len().cast(pl.Int64), total=_US.sum(), mean=_US.sum() / pl.len(), min=_US.min(),
        max=_US.max(), **{name: _percentile(q) for name, q in QUANTILES},
    )  # fmt: skip
    return statistics.sort("total", descending=True, maintain_order=True).collect()


def _percentile(q: float) -> pl.Expr:
    """Return a percentile, interpolated between the two nearest ranks as numpy does."""
    rank = (pl.len() - 1).cast(pl.Float64) * q
    fraction = rank - rank.floor()
    low, high = _US.quantile(q, "lower"), _US.quantile(q, "higher")
    width = high - low
    return pl.when(fraction < 0.5).then(low + width * fraction).otherwise(high - width * (1 - fraction))


def _count_event_types(run: Run, samples: pl.DataFrame) -> pl.DataFrame:
    types = run.tables["event_types"].sort("count", descending=True, maintain_order=True)
    label = pl.format("{} (count={})", "type", "count").alias("label")
    stats = compute_statistics(samples, "type")
    return types.select("type", label).join(stats, on="type", how="left", maintain_order="left").drop("type")


def _count_selections(backends: pl.DataFrame | None) -> dict[str, pl.DataFrame]:
    if backends is None:
        return {}
    labels = {
        "Backend selection summary": pl.format("backend={}", "backend"),
        "Backend selection reasons": pl.format("reason={}", "reason"),
        "Backend selection by op/backend": pl.format("op={} backend={}", "op_name", "backend"),
    }
    tables = {}
    for title, label in labels.items():
        counts = backends.group_by(label.alias("label"), maintain_order=True).agg(pl.col("count").sum())
        rows = counts.sort("count", descending=True, maintain_order=True)
        tables[title] = rows.head(TOP) if title.endswith("op/backend") else rows
    return tables


def _sum_internal_kernels(samples: pl.DataFrame) -> dict[str, pl.DataFrame]:
    leaves = samples.filter(~_RAW.str.ends_with("_total") & ~_RAW.str.ends_with("cb_wait"))
    by_op = pl.format("{} :: {}", "parent", "raw")
    return {
        "Internal kernel by parent": _sum_by_label(samples, pl.col("parent")),
        "Internal kernel by parent/op": _sum_by_label(samples, by_op).head(TOP),
        "Kernel aggregate (all parents)": _sum_by_label(leaves, _RAW).head(TOP_KERNELS),
    }


def _sum_ops(samples: pl.DataFrame) -> dict[str, pl.DataFrame]:
    waits = _RAW.str.contains("cb_wait", literal=True) | _RAW.str.ends_with("wait")
    gpu = _RAW.str.contains("/cb_gpu", literal=True)
    kernels = samples.filter(~waits & ~gpu)
    return {
        "GPU kernel durations (excluding waits)": _sum_by_label(kernels, _RAW).head(TOP),
        "GPU kernel aggregate (by kernel type)": _sum_by_label(kernels, _kernel_type()).head(TOP),
        **_sum_matmuls(samples.filter(pl.col("shape").is_not_null())),
        "GPU wait breakdown": _sum_by_label(samples.filter(waits), _RAW).head(TOP),
        "Command buffer GPU timing": _sum_by_label(samples.filter(gpu), _RAW).head(TOP),
    }


def _kernel_type() -> pl.Expr:
    """Return the last segment of a name, without `_op`; every block of sdpa or mlp_swiglu is one type."""
    last = _RAW.str.split("/").list.last()
    return (
        pl.when(last.str.contains(r"^sdpa_block_.*_op$")).then(pl.lit("sdpa"))
        .when(last.str.contains(r"^mlp_swiglu_block_.*_op$")).then(pl.lit("mlp_swiglu"))
        .otherwise(last.str.strip_suffix("_op"))
    )  # fmt: skip


def _sum_matmuls(samples: pl.DataFrame) -> dict[str, pl.DataFrame]:
    shape, backend = pl.col("shape").cast(pl.String), pl.format("backend={}", "backend")
    samples = samples.with_columns(
        under=shape.str.replace(r" \| backend=[^|]*$", ""),
        op=shape.str.extract(r"^op=(.*?) \| "),
        backend=shape.str.extract(r" \| backend=([^|]*)$"),
    )
    shapes = compute_statistics(samples, "under").head(TOP).select("under")
    nested = compute_statistics(samples.with_columns(label=backend), "under", "label")
    return {
        "Matmul backend summary": _sum_by_label(samples, backend),
        "Matmul op/backend summary": _sum_by_label(samples, pl.format("{} @ {}", "op", "backend")),
        "Matmul shape backend summary": shapes.join(nested, "under", "left", maintain_order="left_right"),
    }


def _sum_by_label(samples: pl.DataFrame, label: pl.Expr) -> pl.DataFrame:
    return compute_statistics(samples.with_columns(label.cast(pl.String).alias("label")), "label")


def _sum_syncs(samples: pl.DataFrame) -> pl.DataFrame:
    label = pl.lit("sync kernels")
    return _sum_by_label(samples, label) if samples.height else pl.DataFrame({"label": ["sync kernels"]})


def read_printed_sections(tables: Mapping[str, pl.DataFrame]) -> list[ReportSection]:
    """Return the sections of a printed report, with its own figures."""
    in_us = {c: pl.col(f"{c}_ns") / 1000 for c in ("total", "mean", "min", "max", "p95", "p99")}
    titles = {re.sub(r"[^a-z0-9]+", " ", title.lower()).strip(): title for title in TITLES}
    columns = ("label", "under", "count")
    present = [(name, title) for name, title in titles.items() if name in tables]
    return [ReportSection(title, tables[name].select(*columns, **in_us)) for name, title in present]
