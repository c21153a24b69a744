"""The part of a log that one run becomes: a flat table that any SQL engine reads, named by its content.

Each line of it describes the run, the same in all its lines, and one of four things, by its `kind`: `row`, a
kernel in a phase; `phase`, a step of that phase; `step`, one step; `machine`, one sampled counter.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from capture.clean_text import clean
from capture.errors import UnreadableError, UsageError
from capture.run import Run
from tracetui.analysis.frames.selection import common_value, list_phases, resolve_lens, select_timed
from tracetui.analysis.frames.statistics import Floats
from tracetui.analysis.time.step_sampling import is_sampled
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.compare.pairing.step_times import (
    build_step_times,
    compute_step_totals,
    count_launches,
    drop_warm_up,
    tabulate_per_launch,
    tabulate_per_step,
)
from tracetui.history.git import Commit
from tracetui.look import Look

PART_SCHEMA: Final = 1  # increases if a reader of this version would misread a part
SUFFIX: Final = ".parquet"
_TIME: Final = pl.Datetime("us", "UTC")
_QUANTILES: Final = {"p05_ns": 0.05, "p25_ns": 0.25, "median_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95}

# columns of the run, the same in all lines of a part
RUN_COLUMNS: Final[Mapping[str, Any]] = {
    "schema": pl.Int32, "run": pl.String, "started": _TIME, "source": pl.String, "format": pl.String,
    "model": pl.String, "mode": pl.String, "batch": pl.Int64, "dtype": pl.String, "program": pl.String,
    "device": pl.String, "host": pl.String, "lens": pl.String, "options": pl.String, "versions": pl.String,
    "commit": pl.String, "commit_time": _TIME, "is_changed_tree": pl.Boolean, "tags": pl.String,
}  # fmt: skip
# columns of a line
LINE_COLUMNS: Final[Mapping[str, Any]] = {
    "kind": pl.String, "phase": pl.String, "name": pl.String, "op": pl.String, "category": pl.String,
    "shape": pl.String, "per": pl.String, "step": pl.Int64, "context": pl.Int64, "tokens": pl.Int64,
    "steps": pl.Int64, "launches": pl.Int64, "total_ns": pl.Int64, "mean_ns": pl.Float64,
    "min_ns": pl.Float64, **dict.fromkeys(_QUANTILES, pl.Float64), "max_ns": pl.Float64,
    "bytes": pl.Float64, "flops": pl.Float64, "value": pl.Float64, "unit": pl.String,
}  # fmt: skip
COLUMNS: Final = {**RUN_COLUMNS, **LINE_COLUMNS}

# metadata that says how a run was measured: a change of it is no change of the program
_OPTION_KEYS: Final = (
    "quant", "packing", "weights", "path", "threads", "capture", "graph", "sampling", "tokens_per_report",
    "attention", "optimizer", "producer",
)  # fmt: skip
_VERSION_KEYS: Final = ("torch", "python", "cuda", "driver", "vllm", "transformers", "triton", "jax")


def build_part(run: Run, commit: Commit | None = None, tags: Mapping[str, str] | None = None) -> pl.DataFrame:
    """Return the part of a run; raise UsageError if it has no times."""
    if not run.has("dur"):
        raise UsageError(
            f"{run.log.source}: has no times to keep", todo="log add takes recordings and traces"
        )
    lines = [*_iter_rows(run), *_iter_steps(run), *_iter_counters(run)]
    table = pl.DataFrame(lines, schema=LINE_COLUMNS, orient="row", infer_schema_length=None)
    described = describe_run(run)
    described["run"] = _digest(table, described)
    described |= commit.as_columns() if commit else {}
    described["tags"] = json.dumps(dict(sorted((tags or {}).items())), ensure_ascii=False)
    constants = [pl.lit(described.get(c), dtype).alias(c) for c, dtype in RUN_COLUMNS.items()]
    return table.select(*constants, *LINE_COLUMNS)


def encode_part(part: pl.DataFrame) -> bytes:
    """Return a part as the bytes of a parquet file."""
    out = io.BytesIO()
    part.write_parquet(out, compression="zstd", compression_level=9)
    return out.getvalue()


def read_part(file: Path | bytes, where: str) -> pl.DataFrame:
    """Return a part; raise UnreadableError if it is damaged, of a newer schema, or no part."""
    try:
        table = pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        why = clean(str(error).splitlines()[0], 200) if str(error) else type(error).__name__
        raise UnreadableError("is a damaged part of a log", where=where, why=why) from None
    if "schema" not in table.columns or "run" not in table.columns or not table.height:
        raise UnreadableError("is no part of a log", where=where, todo="log add makes parts")
    number = table["schema"][0]
    if not isinstance(number, int) or number > PART_SCHEMA:
        todo = "update tracetui"
        raise UnreadableError(f"has schema {number}, newer than {PART_SCHEMA}", where=where, todo=todo)
    missing = (pl.lit(None, dtype).alias(c) for c, dtype in COLUMNS.items() if c not in table.columns)
    try:
        return table.with_columns(*missing).select(pl.col(c).cast(t) for c, t in COLUMNS.items())
    except pl.exceptions.PolarsError:
        raise UnreadableError("is no part of a log", where=where, todo="log add makes parts") from None


def describe_run(run: Run) -> dict[str, Any]:
    """Return the columns of a run by which runs are compared, as a part holds them."""
    meta = run.meta
    return {
        "schema": PART_SCHEMA,
        "started": _find_start(run),
        "source": clean(Path(run.log.source).name, 200),
        "format": run.log.format,
        "batch": meta["batch"] if isinstance(meta.get("batch"), int) else None,
        "program": _find_program(meta.get("argv")),
        "lens": resolve_lens(run, Look()),
        "options": _format_facts(meta, _OPTION_KEYS),
        "versions": _format_facts(meta, _VERSION_KEYS),
        **{c: _format_fact(meta.get(c)) for c in ("model", "mode", "dtype", "device", "host")},
    }


def _find_start(run: Run) -> datetime | None:
    """Return the time at which the run began, by its own clock; None if that is unknown."""
    clock = run.meta.get("clock")
    if not isinstance(clock, Sequence) or len(clock) != 2 or not isinstance(clock[1], int):
        return None
    try:
        return datetime.fromtimestamp(clock[1] / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _find_program(argv: Any) -> str | None:
    """Return the name of the recorded program, without its folder and arguments."""
    return clean(Path(str(argv[0])).name, 100) if isinstance(argv, list) and argv else None


def _format_facts(meta: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    facts = [f"{key} {_format_fact(meta[key])}" for key in keys if meta.get(key) not in (None, "")]
    return ", ".join(facts) or None


def _format_fact(value: Any) -> str | None:
    return None if value is None else str(value)[:200]


def _digest(table: pl.DataFrame, described: Mapping[str, Any]) -> str:
    """Return a digest of the times of a run: the same for the same run in another file."""
    facts = [described["started"], described["model"], described["lens"]]
    context = pl.when(pl.col("kind") == "step").then("context").alias("context")  # rows had none before
    text = table.drop("shape").with_columns(context).write_csv(float_precision=3) + repr(facts)
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def _iter_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a line per kernel and phase: order statistics of its time per token, or per launch.

    Steps without records of their rows are left out: the time of a row there is unknown, not zero.
    """
    times = build_step_times(run, Look())
    labels = _find_labels(run)
    unit = "token" if run.has("tokens") else "step"
    for phase in [*list_phases(run), None]:
        names = sorted(times.list_names(phase))
        if not names:
            continue
        steps, _ = drop_warm_up(compute_step_totals(run, phase))
        sampled = steps.filter(is_sampled(run, Look(), steps["step"]))
        groups = [[name] for name in names]
        by_step = sampled.height > 0
        table = (
            tabulate_per_step(times, phase, sampled, groups)
            if by_step
            else tabulate_per_launch(times, phase, groups)
        )
        launches = count_launches(times, phase, groups)
        for name, row, count in zip(names, table, launches, strict=True):
            per = unit if by_step else "launch"
            line = {"kind": "row", "phase": phase, "name": name, "per": per, "launches": int(count)}
            line |= {"steps": sampled.height, "context": _find_context(sampled)}
            yield line | _summarise(row) | labels.get((phase, name), {})
        yield from _iter_phase(run, phase, steps, sampled, unit)


def _iter_phase(
    run: Run, phase: str | None, steps: pl.DataFrame, sampled: pl.DataFrame, per: str
) -> Iterator[dict[str, Any]]:
    """Yield a line for the wall time of a step of the phase, and one for its kernels."""
    walls = build_step_facts(run).select("step", "wall_ns").unique("step")
    for name, column, table in (("step", "wall_ns", steps), ("kernels", "total", sampled)):
        joined = table.join(walls, on="step", how="left", maintain_order="left")
        tokens = joined["tokens"].to_numpy()
        has_time = joined[column].is_not_null().to_numpy()
        if has_time.any():
            values = joined[column].fill_null(0).to_numpy()[has_time] / tokens[has_time]
            line = {"kind": "phase", "phase": phase, "name": name, "per": per, "steps": int(has_time.sum())}
            line["context"] = _find_context(table)
            yield line | _summarise(np.asarray(values, dtype=np.float64))


def _find_context(steps: pl.DataFrame) -> int | None:
    """Return the median context of some steps; None if it is unknown."""
    median = steps["context"].median()
    return round(median) if isinstance(median, int | float) else None


def _summarise(values: Floats) -> dict[str, Any]:
    """Return the order statistics of a row's times over the steps; its total is null where one is unknown."""
    if np.isnan(values).any() or not len(values):
        return {}
    ends = {"min_ns": float(values.min()), "max_ns": float(values.max()), "mean_ns": float(values.mean())}
    marks = np.quantile(values, list(_QUANTILES.values()))
    return ends | dict(zip(_QUANTILES, map(float, marks), strict=True))


def _find_labels(run: Run) -> dict[tuple[str | None, str], dict[str, Any]]:
    """Return for each phase and name: op, category, its only shape, its work and its time in all."""
    texts, work = ("phase", "name", "op", "category", "shape"), ("bytes", "flops")
    rows = select_timed(run, Look()).with_columns(
        *(_select_or_null(run, c, pl.String) for c in texts),
        *(_select_or_null(run, c, pl.Float64) for c in work),
    )
    labels = (pl.col(c).drop_nulls().first() for c in ("op", "category"))
    sums = (pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in work)
    table = rows.group_by("phase", "name").agg(
        *labels, common_value("shape"), *sums, total_ns=pl.col("dur").sum()
    )
    return {(row.pop("phase"), row.pop("name")): row for row in table.collect().to_dicts()}


def _select_or_null(run: Run, column: str, dtype: Any) -> pl.Expr:
    """Return a column of the events, null throughout if the run lacks it."""
    return pl.col(column).cast(dtype) if run.has(column) else pl.lit(None, dtype).alias(column)


def _iter_steps(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a line per step: its wall time in `total_ns`."""
    facts = build_step_facts(run).select("step", "phase", "tokens", "context", "wall_ns")
    for step, phase, tokens, context, wall_ns in facts.iter_rows():
        line = {"kind": "step", "name": "step", "phase": phase, "step": step, "tokens": tokens}
        yield line | {"context": context, "total_ns": wall_ns}


def _iter_counters(run: Run) -> Iterator[dict[str, Any]]:
    """Yield a line per counter: the median of its samples."""
    if not (run.has("value") and run.has("name")):
        return
    rows = run.events.lazy().filter((pl.col("kind") == "counter") & pl.col("value").is_not_null())
    rows = rows.with_columns(_select_or_null(run, "unit", pl.String))
    unit = pl.col("unit").drop_nulls().first()
    medians = rows.group_by(pl.col("name").cast(pl.String)).agg(unit, pl.col("value").median()).sort("name")
    for name, unit_name, value in medians.collect().iter_rows():
        yield {"kind": "machine", "name": name, "value": value, "unit": unit_name}


def build_file_name(part: pl.DataFrame) -> str:
    """Return the file name of a part: when the run began, and the digest of its content."""
    started, digest = part["started"][0], part["run"][0]
    when = started.strftime("%Y%m%dT%H%M%S") if started else "undated"
    return f"{when}-{digest}{SUFFIX}"
