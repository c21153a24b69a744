"""LatencyPrism's processed CSV files: one row for every cycle, function and metric; and the raw counters.

Read: `*_perf_data.csv` and `*_counters_data.csv`. Not read: its raw `micro_event.csv`; its raw traces are
Chrome traces.
LatencyPrism: https://github.com/kunluninsight/LatencyPrism
"""

from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.loaders._numbers import MICROSECOND, nanoseconds
from capture.loaders.latencyprism.vocabulary import (
    csv_rows,
    floats,
    header_of,
    role_columns,
    role_of,
    sample_unit,
    strings,
    unit_of,
)
from capture.run import Run, build, with_log
from capture.source import Head, Source

FORMAT: Final = "latencyprism-csv"
PRODUCER: Final = "LatencyPrism DeepDive, *_perf_data.csv and *_counters_data.csv"
HOWTO: Final = "python main.py of LatencyPrism's DeepDive on a trace; it writes both files"

_CYCLES: Final = frozenset({"cycle", "beta_pct", "function_name", "metric_name", "device"})
_COUNTERS: Final = frozenset({"counter_name", "timestamp", "value"})
_INTEGERS: Final = ("cycle", "pid", "instances_count")
_FLOATS: Final = ("beta_pct", "mu_pct", "sigma_pct", "duration", "anchor_dur_us", "cycle_start_ts")
_TEXTS: Final = ("func_type", "anchor_name", "interpolation_status")
_NO_METRIC: Final = "N/A"

WEIGHTED: Final = "counter values: means over the functions of a cycle, weighted by their durations"


def sniff(head: Head) -> bool:
    header = frozenset(header_of(head.start))
    return header >= _CYCLES or header >= _COUNTERS


def load(source: Source) -> list[Run]:
    text = source.text().lstrip()
    header = header_of(text)
    names = [f"{n}_{i}" if n in header[:i] else n for i, n in enumerate(header)]
    rows = [cells for _, cells in csv_rows(text, source.log)][1:]
    frame = strings(names, rows)
    make = _cycles if set(names) >= _CYCLES else _counters
    return [with_log(run, source.log) for run in make(frame, source.log)]


def _cycles(frame: pl.DataFrame, log: Log) -> list[Run]:
    """Make a run of each process: steps, functions and counters, and its part of the table beside them.

    Processes have functions and devices of the same names, and each its own: they are never added up.
    """
    frame = _timed(_typed(frame))
    whole = frame.filter(pl.all_horizontal(pl.col("cycle", "beta_pct", "function_name").is_not_null()))
    log.drop("bad_row", "rows without cycle, function or share", count=frame.height - whole.height)
    if whole.is_empty():
        return []
    guessed = whole["interpolation_status"].str.contains("*", literal=True).sum()
    if guessed:
        log.note("interpolated", "metric values that rest on interpolated samples", count=int(guessed))
    return [_process(rows, log) for rows in whole.partition_by("pid", maintain_order=True)]


def _process(whole: pl.DataFrame, log: Log) -> Run:
    meta = _meta(whole)
    parts = [_steps(whole), _functions(whole), _metrics(whole)]
    table = whole.drop("start_ns", "dur_ns", "anchor_ns")
    name = f"pid_{meta['pid']}" if "pid" in meta else "cycles"
    return build(name, meta, pl.concat(parts, how="diagonal_relaxed"), log, {"cycles": table})


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the known columns as numbers; a column that is missing is there, empty."""
    missing = [c for c in (*_INTEGERS, *_FLOATS, *_TEXTS) if c not in frame.columns]
    frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias(c) for c in missing)
    exact = {"start_ns": "cycle_start_ts", "dur_ns": "duration", "anchor_ns": "anchor_dur_us"}
    return frame.with_columns(
        *(pl.col(c).cast(pl.Int64, strict=False) for c in _INTEGERS),
        *(floats(c) for c in _FLOATS),
        *(_exact(frame[c]).alias(name) for name, c in exact.items()),
    )


def _exact(column: pl.Series) -> pl.Series:
    times = (None if v is None else nanoseconds(v, MICROSECOND) for v in column)
    return pl.Series(list(times), dtype=pl.Int64)


def _timed(frame: pl.DataFrame) -> pl.DataFrame:
    """Return starts on the run's own clock, which begins with its first cycle."""
    return frame.with_columns(pl.col("start_ns") - pl.col("start_ns").min())


def _meta(whole: pl.DataFrame) -> dict[str, Any]:
    anchors = whole["anchor_name"].drop_nulls().unique(maintain_order=True).to_list()
    pids = whole["pid"].drop_nulls().unique(maintain_order=True).to_list()
    hosts = whole.get_column("hostname", default=pl.Series(dtype=pl.String)).drop_nulls().unique().to_list()
    spans = whole.group_by("cycle").agg(pl.col("anchor_ns").first())["anchor_ns"]
    mean = spans.mean()
    meta = {
        "anchor": anchors[0] if len(anchors) == 1 else anchors or None,
        "pid": pids[0] if len(pids) == 1 else pids or None,
        "host": ", ".join(sorted(hosts)) or None,
        "cycles": spans.len(),
        "mean_cycle_ns": round(mean) if isinstance(mean, float) else None,
        "guess": [WEIGHTED],
    }
    return {k: v for k, v in meta.items() if v is not None}


def _steps(whole: pl.DataFrame) -> pl.DataFrame:
    return whole.group_by("cycle", maintain_order=True).agg(
        pl.lit("step").alias("kind").first(),
        pl.lit("wall").alias("lens").first(),
        pl.col("anchor_name").first().fill_null("cycle").alias("name"),
        pl.col("start_ns").first().alias("t"),
        pl.col("anchor_ns").first().alias("dur"),
    ).rename({"cycle": "step"})  # fmt: skip


def _functions(whole: pl.DataFrame) -> pl.DataFrame:
    """Return each function once; it stands in the file once for every metric."""
    once = whole.unique(["cycle", "function_name", "device"], keep="first", maintain_order=True)
    roles = [role_of(t) for t in once["func_type"].fill_null("")]
    return once.select(
        *role_columns(roles),
        pl.col("function_name").alias("name"),
        pl.col("dur_ns").alias("dur"),
        pl.col("instances_count").alias("count"),
        pl.col("cycle").alias("step"),
        pl.col("device").alias("track"),
    )  # fmt: skip


def _metrics(whole: pl.DataFrame) -> pl.DataFrame:
    """Return one value for every cycle, metric and device, in the metric's real unit."""
    measured = whole.filter(pl.col("mu_pct").is_not_null() & (pl.col("metric_name") != _NO_METRIC))
    weight = pl.col("dur_ns").fill_null(0).cast(pl.Float64)
    weighted = (pl.col("mu_pct") * weight).sum() / weight.sum()
    values = measured.group_by("cycle", "metric_name", "device", maintain_order=True).agg(
        pl.when(weight.sum() > 0).then(weighted).otherwise(pl.col("mu_pct").mean()).alias("mu"),
        pl.col("start_ns").first().alias("t"),
    )
    units = [unit_of(m) for m in values["metric_name"]]
    return values.select(
        pl.lit("counter").alias("kind"),
        pl.col("metric_name").alias("name"),
        "t",
        pl.col("cycle").alias("step"),
        pl.col("device").alias("track"),
        (pl.col("mu") / pl.Series([u[1] for u in units], dtype=pl.Float64)).alias("value"),
        pl.Series("unit", [u[0] for u in units], dtype=pl.String),
    )


def _counters(frame: pl.DataFrame, log: Log) -> list[Run]:
    """Return the samples as they were taken; a sample does not tell which core or device it is of."""
    samples = frame.select(
        pl.lit("counter").alias("kind"),
        pl.col("counter_name").alias("name"),
        _exact(frame["timestamp"]).alias("t"),
        floats("value"),
    )
    whole = samples.drop_nulls()
    log.drop("bad_row", "samples without a time or a value", count=samples.height - whole.height)
    if whole.is_empty():
        return []
    units = {name: sample_unit(name) for name in whole["name"].unique()}
    if whole.select("name", "t").is_duplicated().any():
        log.note(
            "no_device", "samples taken at one moment on several cores or devices; the file tells not which"
        )
    first = whole["t"].min()
    events = whole.with_columns(
        pl.col("t") - pl.col("t").min(),
        pl.col("name").replace_strict(units, return_dtype=pl.String).alias("unit"),
    )
    return [build("counters", {"started_ns": first}, events, log)]
