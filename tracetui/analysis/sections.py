"""Compute metallic's own report from a recording: the same sections, keys, filters, limits and order."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import DTYPES, Run

TOP: Final = 20
TOP_KERNELS: Final = 50
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
class Section:
    """A heading and its rows: label, under (the row it belongs to), count, and statistics in µs."""

    title: str
    rows: pl.DataFrame


def sections(run: Run) -> list[Section]:
    """Return every section for which the recording has rows."""
    samples = durations(run)
    made = [
        Section("Event type summary", _event_types(run, samples)),
        *_selections(run.tables.get("backends")),
        *_internal(samples.filter(pl.col("lens") == "host")),
        *_ops(samples.filter(pl.col("lens") != "host")),
    ]
    sync = samples.filter(_RAW.str.to_lowercase().str.contains("sync", literal=True))
    return [*(s for s in made if s.rows.height), Section("Sync operations", _sync(sync))]


def durations(run: Run) -> pl.DataFrame:
    """Return every duration with the name that the file gave it, in the order of the lines."""
    key = ["lens", "name", "path"]
    names = run.tables["names"].with_columns(pl.col(key).cast(pl.Categorical()))
    columns = ("kind", *key, "shape", "dur")
    rows = run.events.lazy().select(c if run.has(c) else pl.lit(None, DTYPES[c]).alias(c) for c in columns)
    timed = rows.filter(pl.col("kind").is_in(["kernel", "span"]) & pl.col("dur").is_not_null())
    kept = timed.select(*key, "shape", us=pl.col("dur") // 1000)
    return kept.join(names.lazy(), on=key, how="left", maintain_order="left").collect()


def statistics(samples: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return keys → count and statistics in µs, by falling total; equal totals in order of appearance."""
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
    """Return a percentile, linear between the two nearest ranks, computed as numpy does."""
    rank = (pl.len() - 1).cast(pl.Float64) * q
    part = rank - rank.floor()
    low, high = _US.quantile(q, "lower"), _US.quantile(q, "higher")
    width = high - low
    return pl.when(part < 0.5).then(low + width * part).otherwise(high - width * (1 - part)).alias(name)


def _event_types(run: Run, samples: pl.DataFrame) -> pl.DataFrame:
    types = run.tables["event_types"].sort("count", descending=True, maintain_order=True)
    label = pl.format("{} (count={})", "type", "count").alias("label")
    stats = statistics(samples, "type")
    return types.select("type", label).join(stats, on="type", how="left", maintain_order="left").drop("type")


def _selections(backends: pl.DataFrame | None) -> Iterator[Section]:
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
        yield Section(title, rows.head(TOP) if title.endswith("op/backend") else rows)


def _internal(samples: pl.DataFrame) -> Iterator[Section]:
    yield Section("Internal kernel by parent", _by(samples, pl.col("parent")))
    yield Section(
        "Internal kernel by parent/op", _by(samples, pl.format("{} :: {}", "parent", "raw")).head(TOP)
    )
    leaves = samples.filter(~_RAW.str.ends_with("_total") & ~_RAW.str.ends_with("cb_wait"))
    yield Section("Kernel aggregate (all parents)", _by(leaves, _RAW).head(TOP_KERNELS))


def _ops(samples: pl.DataFrame) -> Iterator[Section]:
    waits = _RAW.str.contains("cb_wait", literal=True) | _RAW.str.ends_with("wait")
    gpu = _RAW.str.contains("/cb_gpu", literal=True)
    kernels = samples.filter(~waits & ~gpu)
    yield Section("GPU kernel durations (excluding waits)", _by(kernels, _RAW).head(TOP))
    yield Section("GPU kernel aggregate (by kernel type)", _by(kernels, _kernel_type()).head(TOP))
    yield from _matmuls(samples.filter(pl.col("shape").is_not_null()))
    yield Section("GPU wait breakdown", _by(samples.filter(waits), _RAW).head(TOP))
    yield Section("Command buffer GPU timing", _by(samples.filter(gpu), _RAW).head(TOP))


def _kernel_type() -> pl.Expr:
    """Return the last segment of a name; of a stage its name without what follows the last underscore."""
    last = _RAW.str.split("/").list.last()
    return (
        pl.when(last.str.contains(r"^sdpa_block_.*_op$"))
        .then(pl.lit("sdpa"))
        .when(last.str.contains(r"^mlp_swiglu_block_.*_op$"))
        .then(pl.lit("mlp_swiglu"))
        .otherwise(last.str.strip_suffix("_op"))
    )


def _matmuls(samples: pl.DataFrame) -> Iterator[Section]:
    shape = pl.col("shape").cast(pl.String)
    samples = samples.with_columns(
        under=shape.str.replace(r" \| backend=[^|]*$", ""),
        op=shape.str.extract(r"^op=(.*?) \| "),
        backend=shape.str.extract(r" \| backend=([^|]*)$"),
    )
    backend = pl.format("backend={}", "backend")
    yield Section("Matmul backend summary", _by(samples, backend))
    yield Section("Matmul op/backend summary", _by(samples, pl.format("{} @ {}", "op", "backend")))
    shapes = statistics(samples, "under").head(TOP).select("under")
    nested = statistics(samples.with_columns(backend.alias("label")), "under", "label")
    yield Section(
        "Matmul shape backend summary",
        shapes.join(nested, on="under", how="left", maintain_order="left_right"),
    )


def _by(samples: pl.DataFrame, label: pl.Expr) -> pl.DataFrame:
    return statistics(samples.with_columns(label.cast(pl.String).alias("label")), "label")


def _sync(samples: pl.DataFrame) -> pl.DataFrame:
    label = pl.lit("sync kernels")
    return _by(samples, label) if samples.height else pl.DataFrame({"label": ["sync kernels"]})


def printed(tables: Mapping[str, pl.DataFrame]) -> list[Section]:
    """Return the sections of a report that was printed already, in its own figures."""
    in_us = {c: pl.col(f"{c}_ns") / 1000 for c in ("total", "mean", "min", "max", "p95", "p99")}
    titles = {re.sub(r"[^a-z0-9]+", " ", title.lower()).strip(): title for title in TITLES}
    return [
        Section(title, tables[name].select("label", "under", "count", **in_us))
        for name, title in titles.items()
        if name in tables
    ]
