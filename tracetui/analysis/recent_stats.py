"""Recent statistics of a live run: the last seconds against the whole run, the last minute by second."""

from dataclasses import replace
from typing import Any, Final

import polars as pl
from msgspec import Struct

from capture.run import LiveRun, Run
from tracetui import units
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import select_kind, select_timed
from tracetui.analysis.time.step_table import (
    build_step_facts,
    compute_decode_rate,
    compute_phase_rate,
    compute_rate,
    compute_step_durations,
)
from tracetui.look import Look

MAX_HISTORY_STEPS: Final = 1 << 16  # of a growing run: more than ten minutes at a hundred a second
HISTORY_SCHEMA: Final = pl.Schema({
    "step": pl.Int64(), "phase": pl.String(), "t": pl.Int64(), "took_ns": pl.Int64(), "tokens": pl.Int64(),
    "context": pl.Int64(),
})  # fmt: skip

RECENT_S: Final = 5  # recent seconds
STRIP_S: Final = 60  # length of a strip
SLOW_FACTOR: Final = 1.5  # times the median of the minute: a slow step
MAX_SLOW_STEPS: Final = 3  # slow steps described
ALERT_FACTOR: Final = 2.0  # times the median of the minute before: a step that raises an alert
ALERT_SPEED_SHARE: Final = 0.75  # of the speed of the minute before: a lower one raises an alert
MIN_MINUTE_STEPS: Final = 20  # with fewer, no alert
SECOND_NS: Final = 1_000_000_000
_KERNEL_SCHEMA: Final = {
    "name": pl.String(), "share": pl.Float64(), "now_ns": pl.Int64(), "run_ns": pl.Int64(),
    "vs_run_pct": pl.Float64(),
}  # fmt: skip
# counters with a strip: its label and unit
COUNTERS: Final = {
    "gpu_sm_frequency": ("gpu clock", "MHz"), "gpu_power": ("gpu power", "W"), "gpu_usage": ("gpu", "%"),
    "gpu_mem_used": ("gpu mem", "B"), "host_cpu_usage": ("cpu", "%"), "cpu_frequency": ("cpu clock", "MHz"),
    "process_mem_used": ("memory", "B"),
}  # fmt: skip


@cache_per_run
def compute_step_history(run: Run) -> pl.DataFrame:
    """Return HISTORY_SCHEMA of every step whose start and duration are known, in order.

    Of a live run also of its earlier steps.
    """
    is_known = pl.col("t").is_not_null() & pl.col("took_ns").is_not_null()
    table = compute_step_durations(run).filter((pl.col("steps") == 1) & is_known)
    history = table.select_seq(pl.col(name).cast(dtype) for name, dtype in HISTORY_SCHEMA.items())
    earlier = run.earlier_steps if isinstance(run, LiveRun) else pl.DataFrame()
    if history.height and earlier.height:
        earlier = earlier.head(earlier["step"].search_sorted(int(history["step"][0])))
    return pl.concat([earlier, history]).tail(MAX_HISTORY_STEPS) if earlier.height else history


def with_earlier_steps(run: LiveRun, previous: LiveRun | None) -> LiveRun:
    """Return a snapshot with the steps of the previous one; unchanged if that is of another run."""
    if previous is None or (run.name, run.meta.get("clock")) != (previous.name, previous.meta.get("clock")):
        return run
    return replace(run, earlier_steps=compute_step_history(previous))


class Throughput(Struct, frozen=True):
    """Speed of the steps of one phase: recent and mean tokens per second, and times of single steps."""

    phase: str | None
    now_per_s: float | None
    mean_per_s: float | None
    p50_ns: float
    p95_ns: float
    context: int | None
    steps: int  # recent ones
    age_ns: int = 0  # from the end of the newest step to the newest counter


class Strip(Struct, frozen=True):
    """A figure second by second over the last minute, None if unknown, with its median."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    median: float
    highest: float  # of all known seconds


@cache_per_run
def select_recent_steps(run: Run) -> pl.DataFrame:
    """Return the steps of the newest step's phase that ended in the last seconds."""
    table = _select_newest_phase(run)
    end = pl.col("t") + pl.col("took_ns")
    return table.filter(end > end.max() - RECENT_S * SECOND_NS)


@cache_per_run
def _select_newest_phase(run: Run) -> pl.DataFrame:
    table = compute_step_history(run)
    if table.is_empty() or table["phase"].n_unique() == 1:
        return table
    return table.filter(pl.col("phase").eq_missing(pl.lit(table["phase"][-1])))


def compute_throughput(run: Run) -> Throughput | None:
    """Return the current throughput; None if no step has a known duration."""
    table, recent = _select_newest_phase(run), select_recent_steps(run)
    if table.is_empty():
        return None
    durations, phase = recent["took_ns"], table["phase"][-1]
    contexts = table["context"].drop_nulls()
    return Throughput(
        phase,
        _compute_rate(recent),
        compute_decode_rate(run) if phase in (None, "decode") else compute_phase_rate(run, phase),
        float(durations.median() or 0),  # type: ignore[arg-type]
        float(durations.quantile(0.95, "nearest") or 0),
        int(contexts[-1]) if contexts.len() else None,
        recent.height,
        _compute_age_ns(run, table),
    )


def _compute_age_ns(run: Run, steps: pl.DataFrame) -> int:
    """Return the time from the end of the newest step to the newest counter: a server without requests."""
    if not (run.has("value") and run.has("t")):
        return 0
    newest = select_kind(run, "counter", ("t",))["t"].max()
    end = steps.select((pl.col("t") + pl.col("took_ns")).max()).item()
    return max(0, newest - end) if isinstance(newest, int) and isinstance(end, int) else 0


def compute_recent_decode_rate(run: Run) -> float | None:
    """Return tokens per second of recent decode steps.

    None if the run has no earlier ones, if it does something else now, or if tokens are unknown.
    """
    table, recent = _select_newest_phase(run), select_recent_steps(run)
    is_decode = recent.height > 0 and recent["phase"][-1] in (None, "decode")
    return _compute_rate(recent) if is_decode and recent.height < table.height else None


def _compute_rate(table: pl.DataFrame) -> float | None:
    """Return tokens per second of these steps; None if tokens of one are unknown."""
    return None if table["tokens"].null_count() else compute_rate(table)


def compute_strips(run: Run) -> list[Strip]:
    """Return the strips of the last minute: tokens per second, the longest step, then counters."""
    table = _select_newest_phase(run)
    if table.is_empty():
        return []
    end = pl.col("t") + pl.col("took_ns")
    last = int(table.select(end.max()).item()) // SECOND_NS
    seconds = table.group_by(second=end // SECOND_NS).agg(
        longest=pl.col("took_ns").max(), tokens=pl.col("tokens").sum() * 1e9 / pl.col("took_ns").sum()
    )
    has_tokens = not table["tokens"].null_count()
    token_strips = [_build_strip("tok/s", "tok/s", seconds, "tokens", last)] if has_tokens else []
    longest = _build_strip("step", "ns", seconds, "longest", last)
    return [*token_strips, longest, *_compute_counter_strips(run, last)]


def _compute_counter_strips(run: Run, last: int) -> list[Strip]:
    """Return a strip of each counter in COUNTERS, of several devices the first."""
    if not (run.has("value") and run.has("t")):
        return []
    rows = select_kind(run, "counter", ("name", "t", "value", "track")).drop_nulls(["t", "value"])
    strips = []
    for name, (label, unit) in COUNTERS.items():
        samples = rows.filter(pl.col("name").cast(pl.String) == name)
        if "track" in samples.columns and samples.height:
            samples = samples.filter(pl.col("track").eq_missing(pl.lit(samples["track"][0])))
        if samples.height:
            means = samples.group_by(second=pl.col("t") // SECOND_NS).agg(value=pl.col("value").mean())
            strips.append(_build_strip(label, unit, means, "value", last))
    return strips


def _build_strip(name: str, unit: str, seconds: pl.DataFrame, column: str, last: int) -> Strip:
    """Return the values of the minute that ends with a second; each keeps its cell until it leaves."""
    value_by_second = dict(seconds.select("second", column).iter_rows())
    values = tuple(value_by_second.get(second) for second in range(last - STRIP_S + 1, last + 1))
    known_values = sorted(v for v in values if v is not None)
    median = known_values[len(known_values) // 2] if known_values else 0.0
    highest = max((v for v in value_by_second.values() if v is not None), default=0.0)
    return Strip(name, unit, values, median, highest)


def compute_recent_kernels(run: Run) -> pl.DataFrame:
    """Return name, op, category, share, now_ns (per token), run_ns and vs_run_pct of recent kernels.

    Times are per step if tokens are unknown.
    """
    recent = select_recent_steps(run)
    if recent.is_empty():
        return pl.DataFrame(schema=_KERNEL_SCHEMA)
    phase, labels = recent["phase"][-1], [c for c in ("op", "category") if run.has(c)]
    rows = select_timed(run, Look(phase=phase))
    latest = rows.filter(pl.col("step").is_in(recent["step"].implode()))
    sums = latest.group_by("name").agg(pl.col(labels).first(), now_ns=pl.col("dur").sum())
    run_sums = rows.group_by("name").agg(run_ns=pl.col("dur").sum())
    table = sums.join(run_sums, on="name").collect()
    has_tokens = not recent["tokens"].null_count()
    recent_count = max(1, int(recent["tokens"].sum())) if has_tokens else recent.height
    run_steps = build_step_facts(run).filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    unit = "tokens" if has_tokens and not run_steps["tokens"].null_count() else "steps"
    now, run_mean = pl.col("now_ns") / recent_count, pl.col("run_ns") / max(1, int(run_steps[unit].sum()))
    return table.select(
        pl.col("name", *labels).cast(pl.String),
        share=pl.col("now_ns") / max(1, int(table["now_ns"].sum())),
        now_ns=now.round().cast(pl.Int64),
        run_ns=run_mean.round().cast(pl.Int64),
        vs_run_pct=100 * (now / run_mean - 1),
    ).sort("now_ns", "name", descending=[True, False])


def compute_recent_layers(run: Run) -> pl.DataFrame:
    """Return layer and over_pct, the recent deviation from the median of all layers."""
    recent = select_recent_steps(run)
    if recent.is_empty() or not run.has("layer"):
        return pl.DataFrame(schema={"layer": pl.Int64, "over_pct": pl.Float64})
    is_recent = pl.col("step").is_in(recent["step"].implode())
    rows = select_timed(run, Look()).filter(is_recent, pl.col("layer").is_not_null())
    sums = rows.group_by("layer").agg(pl.col("dur").sum()).sort("layer").collect()
    over = 100 * (pl.col("dur") / pl.col("dur").median() - 1)
    return sums.select(pl.col("layer").cast(pl.Int64), over_pct=over)


def select_last_step(run: Run) -> pl.DataFrame:
    """Return name, op, category and dur of the kernels of the newest step, in the order they ran."""
    recent = select_recent_steps(run)
    if recent.is_empty():
        return pl.DataFrame(schema={"name": pl.String, "dur": pl.Int64})
    columns = [c for c in ("name", "op", "category", "layer") if run.has(c)]
    rows = select_timed(run, Look()).filter(pl.col("step") == recent["step"][-1], pl.col("t").is_not_null())
    return rows.sort("t").select(pl.col(*columns).cast(pl.String), "dur").collect()


def describe_slow_steps(run: Run) -> list[str]:
    """Return a sentence for each of the newest steps of the minute that took much longer than the median."""
    end = pl.col("t") + pl.col("took_ns")
    minute = _select_newest_phase(run).filter(end > end.max() - STRIP_S * SECOND_NS)
    if minute.height < RECENT_S:
        return []
    median = float(minute["took_ns"].median() or 0)  # type: ignore[arg-type]
    slow = minute.filter(pl.col("took_ns") > SLOW_FACTOR * median).tail(MAX_SLOW_STEPS)
    rows = slow.select("step", "took_ns").reverse().iter_rows()
    return [_describe_slow_step(run, step, took_ns, median) for step, took_ns in rows]


def detect_slowdown(run: Run) -> str:
    """Return a sentence if a recent step took twice the median, or the speed fell below three quarters.

    Compared with the minute before; empty if nothing is slow.
    """
    table, recent = _select_newest_phase(run), select_recent_steps(run)
    if recent.is_empty():
        return ""
    end = table["t"] + table["took_ns"]
    newest: Any = end.max()
    before = table.filter(end.is_between(newest - STRIP_S * SECOND_NS, newest - RECENT_S * SECOND_NS))
    if before.height < MIN_MINUTE_STEPS:
        return ""
    median = float(before["took_ns"].median() or 0)  # type: ignore[arg-type]
    slow = (recent["took_ns"] >= ALERT_FACTOR * median).arg_true()
    now, earlier = _compute_rate(recent), _compute_rate(before)
    if now is not None and earlier is not None and now < ALERT_SPEED_SHARE * earlier:
        speeds = units.format_speed(now), units.format_speed(earlier)
        return f"{speeds[0]} tok/s in the last {RECENT_S} seconds, {speeds[1]} in the minute before"
    if slow.is_empty():
        return ""
    step, took_ns = recent[slow[-1], ["step", "took_ns"]].row(0)
    return _describe_slow_step(run, step, took_ns, median)


def _describe_slow_step(run: Run, step: int, took_ns: int, median: float) -> str:
    text = f"step {step:,} took {units.format_duration(took_ns)}, {took_ns / median:.1f}× the median"
    rows = select_timed(run, Look()).filter(pl.col("step").is_not_null())
    by_step = rows.group_by("name", "step").agg(pl.col("dur").sum()).collect()
    of_step = by_step.filter(pl.col("step") == step)
    if of_step.is_empty():  # it is folded: only the file shows its slow kernels
        return text
    medians = by_step.group_by("name").agg(pl.col("dur").median().alias("median_ns"))
    excess = of_step.join(medians, on="name").select(
        pl.col("name").cast(pl.String), excess_ns=pl.col("dur") - pl.col("median_ns")
    )
    more_ns, (name, largest) = took_ns - median, excess.sort("excess_ns", descending=True).row(0)
    if 2 * largest > more_ns:
        return f"{text}; most of it {name} {units.format_difference(largest)}"
    is_outside = 2 * excess["excess_ns"].sum() < more_ns
    return f"{text}; most of it outside of kernels" if is_outside else text
