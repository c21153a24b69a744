"""Predict the step time if an op were faster or slower, by simulating host and device."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui.analysis.ledger.simulation import Schedule, build_schedule, simulate_schedule
from tracetui.analysis.ledger.step_ledger import find_main_phase, select_ledger_rows
from tracetui.analysis.time.device_time import DEVICE, with_is_stray
from tracetui.analysis.time.host_waits import find_stream_waits, find_waits
from tracetui.analysis.time.idle_gaps import estimate_launch_delay
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

MAX_ROWS: Final = 100_000  # simulated; of a longer run, the steps in its middle
_CHANGE: Final = re.compile(r"(.+)=(?:([+-]\d+(?:\.\d+)?)\s*%|x(\d+(?:\.\d+)?))")


@dataclass(frozen=True)
class Prediction:
    """Effect of changed durations on the mean step, in ns.

    `asked_ns` is taken off the rows, of which `saved_ns` comes off the step; `host_ns` is hidden by a host
    that launches no sooner, the rest by other streams.
    """

    change: str
    step_ns: int
    predicted_ns: int
    asked_ns: int
    saved_ns: int
    host_ns: int
    steps: int
    all_steps: int


def parse_change(text: str) -> tuple[str, float]:
    """Parse the op and factor of text like attn.core=-30% or attn.core=x0.5, else raise UsageError."""
    match = _CHANGE.fullmatch(text.strip())
    factor = 1.0
    if match is not None:
        factor = 1 + float(match[2]) / 100 if match[2] else float(match[3])
    if match is None or factor < 0:
        todo = "write it like attn.core=-30% or mlp.down=x0.5"
        raise UsageError(f"{text!r} is not a change of an op", todo=todo)
    return match[1].strip(), factor


def predict_changes(run: Run, look: Look) -> list[Prediction]:
    """Return the prediction for each change of the look, and if several, for all together.

    Raises UsageError for an op of no row, and if rows have no start.
    """
    phase = look.phase or find_main_phase(run)
    rows = select_ledger_rows(run, Look(phase=phase, window=look.window, lens=look.lens))
    rows = rows.filter(pl.col("t").is_not_null())
    table = with_is_stray(rows.with_columns(pl.col("step").fill_null(0)).collect(), ["step"])
    table = table.filter(~pl.col("is_stray"))
    if table.is_empty():
        raise UsageError("no kernel of this run has a start", why="the simulation needs the start of each")
    simulated = _select_middle_steps(table).sort("t", maintain_order=True)
    schedule = build_schedule(simulated, find_waits(run), find_stream_waits(run), estimate_launch_delay(run))
    changes = [(f"{op} {100 * (factor - 1):+.4g} %", [(op, factor)]) for op, factor in look.what_if]
    if len(changes) > 1:
        changes.append(("all together", list(look.what_if)))
    scales = [(name, _compute_factors(simulated, each)) for name, each in changes]
    all_steps, outer_ns = table["step"].n_unique(), _measure_outer_time(run, simulated)
    predictions = [_predict_change(name, simulated, schedule, factors, all_steps) for name, factors in scales]
    return [
        replace(p, step_ns=p.step_ns + outer_ns, predicted_ns=p.predicted_ns + outer_ns) for p in predictions
    ]


def _measure_outer_time(run: Run, rows: pl.DataFrame) -> int:
    """Return the mean time of a step outside of its rows; 0 on a device, or if a wall time is unknown."""
    if DEVICE in rows.columns:
        return 0
    span = (pl.col("t") + pl.col("dur")).max() - pl.col("t").min()
    spans = rows.group_by("step").agg(span=span).join(build_step_facts(run), on="step", how="left")
    outer = spans["wall_ns"] - spans["span"]
    return 0 if outer.has_nulls() or (outer < 0).any() else round(outer.sum() / spans.height)


def _select_middle_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the middle steps, up to MAX_ROWS rows but at least one step."""
    if rows.height <= MAX_ROWS:
        return rows
    sizes = rows.group_by("step").agg(pl.len(), pl.col("t").min()).sort("t")
    step_count = max(1, MAX_ROWS * sizes.height // rows.height)
    first = (sizes.height - step_count) // 2
    return rows.filter(pl.col("step").is_in(sizes["step"].slice(first, step_count).implode()))


def _compute_factors(rows: pl.DataFrame, changes: Sequence[tuple[str, float]]) -> pl.Series:
    """Return the factor on each row's duration; raise UsageError for an op of no row."""
    factor = pl.lit(1.0)
    for op, change in changes:
        is_op = (pl.col("op") == op) | pl.col("op").cast(pl.String).str.starts_with(f"{op}.")
        if not rows.select(is_op.any()).item():
            sums = rows.group_by("op").agg(pl.col("dur").sum()).sort("dur", "op", descending=[True, False])
            todo = f"those that take longest: {', '.join(map(str, sums['op'].head(8)))}"
            raise UsageError(f"no row of these steps has the op {op!r}", todo=todo)
        factor = factor * pl.when(is_op).then(change).otherwise(1.0)
    return rows.select(factor=factor)["factor"]


def _predict_change(
    name: str, rows: pl.DataFrame, schedule: Schedule, factors: pl.Series, all_steps: int
) -> Prediction:
    durations = (rows["dur"] * factors).round().cast(pl.Int64)
    count = rows["step"].n_unique()
    before = _sum_step_spans(rows, list(schedule.start), list(schedule.end)) / count
    after = _sum_step_spans(rows, *simulate_schedule(schedule, durations.to_list())) / count
    hostless = (simulate_schedule(schedule, d.to_list(), host=False) for d in (rows["dur"], durations))
    hostless_before, hostless_after = (_sum_step_spans(rows, *times) / count for times in hostless)
    saved_ns = round(before) - round(after)
    asked_ns = round(int((rows["dur"] - durations).sum()) / count)
    hidden = round(hostless_before - hostless_after) - saved_ns  # saved too if the host launched in time
    return Prediction(
        change=name,
        step_ns=round(before),
        predicted_ns=round(after),
        asked_ns=asked_ns,
        saved_ns=saved_ns,
        host_ns=max(0, min(hidden, asked_ns - saved_ns)),
        steps=count,
        all_steps=all_steps,
    )


def _sum_step_spans(rows: pl.DataFrame, starts: list[int], ends: list[int]) -> int:
    """Return the sum of the steps' spans, from the first start to the last end of each."""
    moved = rows.select("step").with_columns(start=pl.Series(starts), end=pl.Series(ends))
    spans = moved.group_by("step").agg(span=pl.col("end").max() - pl.col("start").min())
    return int(spans["span"].sum())
