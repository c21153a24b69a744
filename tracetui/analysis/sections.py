"""Recompute metallic's own report from a recording: the same sections, keys, filters, limits and order."""

import re
from collections.abc import Iterator, Mapping
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
    sections = [
        ReportSection("Event type summary", _count_event_types(run, durations)),
        *_iter_selections(run.tables.get("backends")),
        *_iter_internal_kernels(durations.filter(pl.col("lens") == "host")),
        *_iter_ops(durations.filter(pl.col("lens") != "host")),
    ]
    sync = durations.filter(_RAW.str.to_lowercase().str.contains("sync", literal=True))
    return [*(s for s in sections if s.rows.height), ReportSection("Sync operations", _sum_syncs(sync))]


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
    n = pl.len()
    ranked = (
        samples.lazy()
        .group_by(*keys, maintain_order=True)
        .agg(
            n.cast(pl.Int64).alias("count"),
            _US.sum().alias("total"),
            (_US.sum() / n).alias("mean"),
            _US.min().alias("min"),
            _US.max().alias("max"),
            *(_percentile(name, q) for name, q in QUANTILES),
        )
    )
    return ranked.sort("total", descending=True, maintain_order=True).collect()


def _percentile(name: str, q: float) -> pl.Expr:
    """Return a percentile, interpolated between the two nearest ranks as numpy does."""
    rank = (pl.len() - 1).cast(pl.Float64) * q
    fraction = rank - rank.floor()
    low, high = _US.quantile(q, "lower"), _US.quantile(q, "higher")
    width = high - low
    value = pl.when(fraction < 0.5).then(low + width * fraction).otherwise(high - width * (1 - fraction))
    return value.alias(name)


def _count_event_types(run: Run, samples: pl.DataFrame) -> pl.DataFrame:
    types = run.tables["event_types"].sort("count", descending=True, maintain_order=True)
    label = pl.format("{} (count={})", "type", "count").alias("label")
    stats = compute_statistics(samples, "type")
    return types.select("type", label).join(stats, on="type", how="left", maintain_order="left").drop("type")


def _iter_selections(backends: pl.DataFrame | None) -> Iterator[ReportSection]:
    if backends is None:
        return
    labels = {
        "Backend selection summary": pl.format("backend={}", "backend"),
        "Backend selection reasons": pl.format("reason={}", "reason"),
        "Backend selection by op/backend": pl.format("op={} backend={}", "op_name", "backend"),
    }
    for title, label in labels.items():
        counts = backends.group_by(label.alias("label"), maintain_order=True).agg(pl.col("count").sum())
        rows = counts.sort("count", descending=True, maintain_order=True)
        yield ReportSection(title, rows.head(TOP) if title.endswith("op/backend") else rows)


def _iter_internal_kernels(samples: pl.DataFrame) -> Iterator[ReportSection]:
    yield ReportSection("Internal kernel by parent", _sum_by_label(samples, pl.col("parent")))
    by_op = _sum_by_label(samples, pl.format("{} :: {}", "parent", "raw"))
    yield ReportSection("Internal kernel by parent/op", by_op.head(TOP))
    leaves = samples.filter(~_RAW.str.ends_with("_total") & ~_RAW.str.ends_with("cb_wait"))
    yield ReportSection("Kernel aggregate (all parents)", _sum_by_label(leaves, _RAW).head(TOP_KERNELS))


def _iter_ops(samples: pl.DataFrame) -> Iterator[ReportSection]:
    waits = _RAW.str.contains("cb_wait", literal=True) | _RAW.str.ends_with("wait")
    gpu = _RAW.str.contains("/cb_gpu", literal=True)
    kernels = samples.filter(~waits & ~gpu)
    yield ReportSection("GPU kernel durations (excluding waits)", _sum_by_label(kernels, _RAW).head(TOP))
    yield ReportSection(
        "GPU kernel aggregate (by kernel type)", _sum_by_label(kernels, _kernel_type()).head(TOP)
    )
    yield from _iter_matmuls(samples.filter(pl.col("shape").is_not_null()))
    yield ReportSection("GPU wait breakdown", _sum_by_label(samples.filter(waits), _RAW).head(TOP))
    yield ReportSection("Command buffer GPU timing", _sum_by_label(samples.filter(gpu), _RAW).head(TOP))


def _kernel_type() -> pl.Expr:
    """Return the last segment of a name, without `_op`; every block of sdpa or mlp_swiglu is one type."""
    last = _RAW.str.split("/").list.last()
    return (
        pl.when(last.str.contains(r"^sdpa_block_.*_op$"))
        .then(pl.lit("sdpa"))
        .when(last.str.contains(r"^mlp_swiglu_block_.*_op$"))
        .then(pl.lit("mlp_swiglu"))
        .otherwise(last.str.strip_suffix("_op"))
    )


def _iter_matmuls(samples: pl.DataFrame) -> Iterator[ReportSection]:
    shape = pl.col("shape").cast(pl.String)
    samples = samples.with_columns(
        under=shape.str.replace(r" \| backend=[^|]*$", ""),
        op=shape.str.extract(r"^op=(.*?) \| "),
        backend=shape.str.extract(r" \| backend=([^|]*)$"),
    )
    backend = pl.format("backend={}", "backend")
    yield ReportSection("Matmul backend summary", _sum_by_label(samples, backend))
    yield ReportSection(
        "Matmul op/backend summary", _sum_by_label(samples, pl.format("{} @ {}", "op", "backend"))
    )
    shapes = compute_statistics(samples, "under").head(TOP).select("under")
    nested = compute_statistics(samples.with_columns(backend.alias("label")), "under", "label")
    rows = shapes.join(nested, on="under", how="left", maintain_order="left_right")
    yield ReportSection("Matmul shape backend summary", rows)


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
