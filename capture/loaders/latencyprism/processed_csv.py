"""LatencyPrism's processed CSV files: one row per cycle, function and metric; and the raw counters.

Read: `*_perf_data.csv` and `*_counters_data.csv`. Not read: its raw `micro_event.csv`; its raw traces are
Chrome traces, read as such.
LatencyPrism: https://github.com/kunluninsight/LatencyPrism
"""

from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._typed_cells import MICROSECOND, parse_nanoseconds
from capture.loaders.latencyprism import metric_names as metrics
from capture.run import Run, build_run, with_log
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

WEIGHTING_GUESS: Final = "counter values: means over the functions of a cycle, weighted by their durations"


def sniff(head: Head) -> bool:
    header = frozenset(metrics.parse_header(head.stripped_text))
    return header >= _CYCLES or header >= _COUNTERS


def load(source: Source) -> list[Run]:
    text = source.read_text().lstrip()
    header = metrics.parse_header(text)
    names = [f"{name}_{at}" if name in header[:at] else name for at, name in enumerate(header)]
    rows = [cells for _, cells in metrics.iter_csv_records(text, source.log)][1:]
    frame = metrics.build_text_frame(names, rows)
    make = _build_cycle_runs if set(names) >= _CYCLES else _build_counter_run
    return [with_log(run, source.log) for run in make(frame, source.log)]


def _build_cycle_runs(frame: pl.DataFrame, log: Log) -> list[Run]:
    """Build one run per process: equal names of several processes are never added up."""
    frame = _convert_columns(frame).with_columns(pl.col("start_ns") - pl.col("start_ns").min())
    complete = frame.filter(pl.all_horizontal(pl.col("cycle", "beta_pct", "function_name").is_not_null()))
    log.drop("bad_row", "rows without cycle, function or share", count=frame.height - complete.height)
    if complete.is_empty():
        return []
    if interpolated := complete["interpolation_status"].str.contains("*", literal=True).sum():
        log.note("interpolated", "metric values computed from interpolated samples", count=int(interpolated))
    return [_build_process_run(rows, log) for rows in complete.partition_by("pid", maintain_order=True)]


def _build_process_run(rows: pl.DataFrame, log: Log) -> Run:
    meta = _build_meta(rows)
    parts = [_build_step_rows(rows), _build_function_rows(rows), _build_counter_rows(rows)]
    table = rows.drop("start_ns", "dur_ns", "anchor_ns")
    name = f"pid_{meta['pid']}" if "pid" in meta else "cycles"
    return build_run(name, meta, pl.concat(parts, how="diagonal_relaxed"), log, {"cycles": table})


def _convert_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert the known columns to numbers; missing ones are added, empty."""
    missing_columns = [column for column in (*_INTEGERS, *_FLOATS, *_TEXTS) if column not in frame.columns]
    frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias(column) for column in missing_columns)
    exact_columns = {"start_ns": "cycle_start_ts", "dur_ns": "duration", "anchor_ns": "anchor_dur_us"}
    return frame.with_columns(
        *(pl.col(column).cast(pl.Int64, strict=False) for column in _INTEGERS),
        *(metrics.finite_float(column) for column in _FLOATS),
        *(_parse_times(frame[column]).alias(name) for name, column in exact_columns.items()),
    )


def _parse_times(column: pl.Series) -> pl.Series:
    times = (None if text is None else parse_nanoseconds(text, MICROSECOND) for text in column)
    return pl.Series(list(times), dtype=pl.Int64)


def _build_meta(rows: pl.DataFrame) -> dict[str, Any]:
    anchors = rows["anchor_name"].drop_nulls().unique(maintain_order=True).to_list()
    pids = rows["pid"].drop_nulls().unique(maintain_order=True).to_list()
    hosts = rows.get_column("hostname", default=pl.Series(dtype=pl.String)).drop_nulls().unique().to_list()
    spans = rows.group_by("cycle").agg(pl.col("anchor_ns").first())["anchor_ns"]
    mean = spans.mean()
    meta = {
        "anchor": anchors[0] if len(anchors) == 1 else anchors or None,
        "pid": pids[0] if len(pids) == 1 else pids or None,
        "host": ", ".join(sorted(hosts)) or None,
        "cycles": spans.len(),
        "mean_cycle_ns": round(mean) if isinstance(mean, float) else None,
        "guess": [WEIGHTING_GUESS],
    }
    return {k: v for k, v in meta.items() if v is not None}


def _build_step_rows(rows: pl.DataFrame) -> pl.DataFrame:
    cycles = rows.group_by(step="cycle", maintain_order=True).agg(
        pl.col("anchor_name", "start_ns", "anchor_ns").first()
    )
    return cycles.select(
        "step", kind=pl.lit("step"), lens=pl.lit("wall"),
        name=pl.col("anchor_name").fill_null("cycle"), t="start_ns", dur="anchor_ns",
    )  # fmt: skip


def _build_function_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Build one row per function and cycle; the file repeats them for every metric."""
    functions = rows.unique(["cycle", "function_name", "device"], keep="first", maintain_order=True)
    roles = [metrics.find_role(func_type) for func_type in functions["func_type"].fill_null("")]
    return functions.select(
        *metrics.build_role_columns(roles),
        name="function_name", dur="dur_ns", count="instances_count", step="cycle", track="device",
    )  # fmt: skip


def _build_counter_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Build one value per cycle, metric and device, in the metric's real unit."""
    measured = rows.filter(pl.col("mu_pct").is_not_null() & (pl.col("metric_name") != _NO_METRIC))
    weight = pl.col("dur_ns").fill_null(0).cast(pl.Float64)
    weighted = (pl.col("mu_pct") * weight).sum() / weight.sum()
    values = measured.group_by("cycle", "metric_name", "device", maintain_order=True).agg(
        pl.when(weight.sum() > 0).then(weighted).otherwise(pl.col("mu_pct").mean()).alias("mu"),
        pl.col("start_ns").first().alias("t"),
    )
    return values.select(
        *metrics.build_value_columns(values["metric_name"], pl.col("mu")),
        kind=pl.lit("counter"), name="metric_name", t="t", step="cycle", track="device",
    )  # fmt: skip


def _build_counter_run(frame: pl.DataFrame, log: Log) -> list[Run]:
    """Keep the samples as taken; the file does not report their core or device."""
    kind, name = pl.lit("counter").alias("kind"), pl.col("counter_name").alias("name")
    times = _parse_times(frame["timestamp"]).alias("t")
    samples = frame.select(kind, name, times, metrics.finite_float("value"))
    complete = samples.drop_nulls()
    log.drop("bad_row", "samples without a time or a value", count=samples.height - complete.height)
    if complete.is_empty():
        return []
    units = {name: metrics.find_sample_unit(name) for name in complete["name"].unique()}
    if complete.select("name", "t").is_duplicated().any():
        log.note("no_device", "samples of several cores or devices at one time; the file does not name them")
    first = complete["t"].min()
    unit = pl.col("name").replace_strict(units, return_dtype=pl.String)
    events = complete.with_columns(pl.col("t") - pl.col("t").min(), unit=unit)
    return [build_run("counters", {"started_ns": first}, events, log)]
