"""Scale rows that were recorded in sampled steps only, because recording costs time, to all steps.

A recorder that records single kernels in short windows marks the steps of these windows, and times every
step in a cheaper way; one that records every module marks the few steps without them (`UNWATCHED_NAME`).
Distributions stay as sampled. Per phase, totals are scaled by the time of all steps over that of the sampled
ones, counts by the numbers of steps.
"""

from collections.abc import Sequence
from math import ceil, sqrt
from typing import Final, NamedTuple

import polars as pl

from capture.device_roofs import load_measured_roofs
from capture.native.schema import COMPILED_PATTERN, UNWATCHED_NAME, WINDOW_OP
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import (
    find_trace_option,
    has_option_on,
    launch_count,
    list_lenses,
    note_selection,
    resolve_lens,
    select_existing,
)
from tracetui.analysis.time import series
from tracetui.analysis.time.step_table import (
    build_step_facts,
    compute_step_durations,
    drop_profiled,
    find_profiled_steps,
)
from tracetui.look import Look

SCALE_COLUMNS: Final = ("scale", "measured_ns")  # of a scaled table
MIN_PROFILED_STEPS: Final = 3  # with fewer, one slow step would be taken for all
MIN_TURNS: Final = 6  # steps without rows: with fewer, the interval of their median has no 95 %
# What torch's profiler adds for each record of a step: a part of what it adds to an op of a loop, and of the
# time since the record before, in which its code left the caches, but not of more than MAX_GAP_NS.
# Fitted on 105 programs of one machine with torch 2.13; COST_RANGE has about 90 % (tests/bench/unprofiled).
COST_PER_RECORD, COST_PER_GAP = 0.66, 0.12
COST_PER_RECORD_WITH_STACK, COST_PER_GAP_WITH_STACK = 0.54, 0.21  # records of Python's functions among them
MAX_GAP_NS: Final = 20_000
COST_RANGE: Final = 0.75, 1.3
WARM_UP_SHARE: Final = 0.25  # of the steps, in front, in which the profiler gets faster
STEP_ERROR: Final = 0.015  # of the time of a step, besides
MAX_UNPROFILED_ERROR: Final = 0.25  # of it: with a wider interval it is unsure
_COSTLY_OPTIONS: Final = ("with_modules", "record_shapes", "profile_memory", "with_flops")
_TORCH_PROFILER: Final = "PyTorch profiler"  # as the loaders name it
_SCALED: Final = ("scaled_ns", "scaled_count")


@cache_per_run
def find_sampled_steps(run: Run) -> dict[str, pl.DataFrame]:
    """Return for each lens one row per step: phase, `steps`, `sampled` of them, start, time per step."""
    if not {"op", "step", "lens", "name"} <= set(run.events.columns):
        return {}
    is_window = (run.events["op"] == WINDOW_OP) & (run.events["kind"] == "span")
    if not is_window.any():
        return _find_watched_steps(run)
    windows = run.events[is_window.arg_true(), select_existing(run, ("lens", "step", "count", "track"))]
    by_lens = windows.drop_nulls("lens").group_by("lens")
    sampled = {str(lens): _count_sampled(run, rows) for (lens,), rows in by_lens}
    return _find_watched_steps(run) | sampled


def _find_watched_steps(run: Run) -> dict[str, pl.DataFrame]:
    """Return likewise the lens of a recorder that leaves a few steps without rows, to show what rows cost."""
    is_unwatched = run.events["name"] == UNWATCHED_NAME
    if not is_unwatched.any() or not run.has("dur"):
        return {}
    spans = run.events[is_unwatched.arg_true(), select_existing(run, ("lens", "step", "count", "track"))]
    tables = {str(lens): _count_sampled(run, rows) for (lens,), rows in spans.group_by("lens")}
    walls = build_step_facts(run).select("step", per_step_ns=pl.col("wall_ns") / pl.col("steps"))
    return {
        lens: table.drop("per_step_ns")
        .with_columns(sampled=pl.col("steps") - pl.col("sampled"))
        .join(walls, on="step", maintain_order="left")
        for lens, table in tables.items()
    }


class UnwatchedStep(NamedTuple):
    """Time of a step without rows of its modules, its interval, and time of the steps around it, in ns."""

    unwatched_ns: float
    low_ns: float
    high_ns: float
    watched_ns: float


@cache_per_run
def estimate_unwatched_step(run: Run) -> UnwatchedStep | None:
    """Estimate the time of an unwatched step, from pairs of it and its neighbours of the same phase.

    The interval has 95 % of the medians of such series. None with fewer than MIN_TURNS pairs.
    """
    table = next(iter(_find_watched_steps(run).values()), None)
    if table is None:
        return None
    table = drop_profiled(run, table.filter(pl.col("steps") == 1)).sort("step")
    around = [
        pl.when(pl.col("sampled") == 1).then(pl.col("per_step_ns")).shift(n).over("phase") for n in (1, -1)
    ]
    pairs = table.with_columns(watched_ns=pl.mean_horizontal(*around)).filter(pl.col("sampled") == 0)
    pairs = pairs.drop_nulls(["watched_ns", "per_step_ns"])
    if pairs.height < MIN_TURNS:
        return None
    watched_ns = float(pairs["watched_ns"].median() or 0)  # type: ignore[arg-type]
    median, low, high = _estimate_median(pairs["per_step_ns"] / pairs["watched_ns"])
    return UnwatchedStep(watched_ns * median, watched_ns * low, watched_ns * high, watched_ns)


def _estimate_median(values: pl.Series) -> tuple[float, float, float]:
    """Return the median of a sample, and the interval that has 95 % of the medians of such samples."""
    values = values.cast(pl.Float64).sort()
    middle, half = (values.len() - 1) / 2, 0.98 * sqrt(values.len())
    low, high = values[max(0, int(middle - half))], values[min(values.len() - 1, ceil(middle + half))]
    return float(values.median() or 0), low, high  # type: ignore[arg-type]


class ProfiledSteps(NamedTuple):
    """Steps during profiles of the recorded program itself, and the time of a step in and outside of them."""

    profiled: int
    steps: int  # of the same phase, with those
    phase: str | None
    profiled_ns: float | None  # None: each of these steps also started or stopped the profiler
    unprofiled_ns: tuple[float, float, float] | None  # median and its interval; None with too few steps


@cache_per_run
def compare_profiled_steps(run: Run) -> ProfiledSteps | None:
    """Compare the steps under the program's own profiler with the others of their phase; None without any.

    Medians, as for `estimate_unwatched_step`. Steps in which the profiler started or stopped count for none.
    """
    table = compute_step_durations(run).join(find_profiled_steps(run), on="step", how="left").sort("step")
    table = table.drop_nulls("took_ns")
    inside = table.filter("is_inside")
    if inside.is_empty() or (table["steps"] > 1).any():
        return None
    phase = inside["phase"].value_counts(sort=True)["phase"][0]
    table = table.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    is_last = pl.col("is_inside").fill_null(value=False) & pl.col("is_inside").shift(-1).is_null()
    inside, others = table.filter("is_inside"), table.filter(pl.col("is_inside").is_null())
    profiled = table.filter(pl.col("is_inside") & ~is_last)["took_ns"].median()
    unprofiled = _estimate_median(others["took_ns"]) if others.height >= MIN_TURNS else None
    return ProfiledSteps(inside.height, table.height, phase, profiled, unprofiled)  # type: ignore[arg-type]


class UnprofiledStep(NamedTuple):
    """Time of a step in a trace of torch's profiler, and what it takes without: None if that is unsure."""

    profiled_ns: float
    unprofiled_ns: tuple[float, float, float] | None  # and its interval
    host: str  # whose cost of the profiler is assumed


@cache_per_run
def estimate_unprofiled_step(run: Run) -> UnprofiledStep | None:
    """Estimate what the median step of a trace of torch's profiler takes without it.

    None unless the trace is of a processor whose cost is measured, without code of torch.compile, and with
    no option on but stacks.
    """
    host = find_trace_option(run, "host_name")
    costs = [roof.profiled_op_ns for roof in load_measured_roofs().values() if host and roof.host == host]
    cost_ns = next(filter(None, reversed(costs)), 0.0)
    rows = _select_profiler_records(run) if cost_ns else None
    if rows is None:
        return None
    has_stack = has_option_on(run, "with_stack")
    per_record = COST_PER_RECORD_WITH_STACK if has_stack else COST_PER_RECORD
    per_gap = COST_PER_GAP_WITH_STACK if has_stack else COST_PER_GAP
    cost = cost_ns * per_record * pl.col("records") + per_gap * pl.col("gap_ns")
    steps = run.events.filter(pl.col("kind") == "step").select("step", "dur").drop_nulls().sort("step")
    steps = steps.slice(int(WARM_UP_SHARE * steps.height))
    steps = steps.join(_sum_records(rows), on="step").select("dur", cost_ns=cost)
    if steps.height < MIN_PROFILED_STEPS:
        return None
    profiled_ns = float(steps["dur"].median() or 0)  # type: ignore[arg-type]
    return UnprofiledStep(profiled_ns, _subtract_cost(steps), host or "")


def _subtract_cost(steps: pl.DataFrame) -> tuple[float, float, float] | None:
    """Return the median of `dur` less `cost_ns`, and its interval of 90 %; None if that is too wide."""
    least, most = COST_RANGE
    middle = _estimate_median(steps["dur"] - steps["cost_ns"])[0]
    low = _estimate_median(steps["dur"] - steps["cost_ns"] * most)[1] * (1 - STEP_ERROR)
    high = _estimate_median(steps["dur"] - steps["cost_ns"] * least)[2] * (1 + STEP_ERROR)
    return (middle, low, high) if high - low <= 2 * MAX_UNPROFILED_ERROR * middle else None


def _select_profiler_records(run: Run) -> pl.DataFrame | None:
    """Return the records in steps of a trace of torch's profiler whose cost is known, else None."""
    columns = ["step", "track", "t", "dur", "name"]
    if run.meta.get("producer") != _TORCH_PROFILER or not {*columns, "lens"} <= set(run.events.columns):
        return None
    has_device = not set(list_lenses(run)) <= {"host", "wall"}
    if has_device or any(has_option_on(run, option) for option in _COSTLY_OPTIONS):
        return None
    is_record = pl.col("kind").is_in(["kernel", "span"]) & (pl.col("lens") == "host")
    rows = run.events.filter(is_record).select(columns).drop_nulls()
    has_compiled_code = rows["name"].cast(pl.String).str.contains(COMPILED_PATTERN).any()
    return None if rows.is_empty() or has_compiled_code else rows


def _sum_records(rows: pl.DataFrame) -> pl.DataFrame:
    """Return for each step how many `records` it has, and `gap_ns` between their begins and ends, in sum.

    What is between two of them is taken as MAX_GAP_NS at most.
    """
    ends = rows.select("step", "track", pl.col("t") + pl.col("dur"))
    times = pl.concat([rows.select("step", "track", "t"), ends]).sort("step", "track", "t")
    gap_ns = pl.col("t").diff().over("step", "track").clip(upper_bound=MAX_GAP_NS)
    sums = times.select("step", gap_ns=gap_ns).group_by("step")
    return sums.agg(pl.col("gap_ns").sum(), records=pl.len().cast(pl.Int64) // 2)


def _count_sampled(run: Run, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of one lens; of several ranks, the one that sampled most counts."""
    counts = spans.with_columns(_n=launch_count(run)).group_by("step", *select_existing(run, ["track"]))
    samples = counts.agg(pl.col("_n").sum()).group_by("step").agg(sampled=pl.col("_n").max())
    step_facts = build_step_facts(run).select("step", "phase", "steps", "t", "wall_ns")
    sampled = pl.min_horizontal(pl.col("sampled").fill_null(0), "steps").cast(pl.Int64)
    facts = step_facts.join(samples, on="step", how="left").with_columns(sampled)
    spans_ns = pl.DataFrame(schema={"step": pl.Int64, "spans_ns": pl.Int64})
    if run.has("dur"):  # spans are recorded in every step
        is_span = (pl.col("kind") == "span") & (pl.col("lens") == str(spans["lens"][0]))
        rows = run.events.filter(is_span).drop_nulls("dur")
        spans_ns = rows.group_by("step").agg(spans_ns=pl.col("dur").sum())
    facts = facts.join(spans_ns, on="step", how="left")
    return facts.with_columns(per_step_ns=_time_per_step(facts)).drop("wall_ns", "spans_ns")


def _time_per_step(table: pl.DataFrame) -> pl.Expr:
    """Return the time of one step, by the best time known of all steps.

    Recording slows a step, so a sampled step gets the time interpolated between its neighbours.
    """
    time_column = next((c for c in ("spans_ns", "wall_ns") if not table[c].null_count()), None)
    per_step = (pl.col(time_column) if time_column else pl.col("steps")) / pl.col("steps")
    unsampled = pl.when(pl.col("sampled") < pl.col("steps")).then(per_step)
    return pl.coalesce(unsampled.interpolate().forward_fill().backward_fill().over("phase"), per_step)


def compute_coverage(run: Run, look: Look) -> pl.DataFrame | None:
    """Return one row per phase: `sampled`, `steps`, `scale`; None if every step was recorded."""
    table = find_sampled_steps(run).get(resolve_lens(run, look) or "")
    if table is None or look.group == "step" or "step" in look.focus_values:
        return None
    if look.window is not None:
        table = table.filter(pl.col("step").is_between(*look.window))
    sampled_ns, total_ns = (pl.col(c) * pl.col("per_step_ns") for c in ("sampled", "steps"))
    phases = table.group_by("phase", maintain_order=True).agg(
        pl.col("sampled").sum(),
        pl.col("steps").sum(),
        scale=pl.when(sampled_ns.sum() > 0).then(total_ns.sum() / sampled_ns.sum()),
    )
    return phases if (phases["sampled"] < phases["steps"]).any() else None


def with_sampling_weights(run: Run, look: Look, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows with the time and count each represents; unchanged if every step was recorded."""
    phases = compute_coverage(run, look)
    if phases is None:
        return rows
    table = find_sampled_steps(run)[resolve_lens(run, look) or ""]
    count_scale = pl.when(pl.col("sampled") > 0).then(pl.col("steps") / pl.col("sampled"))
    factors = phases.select("phase", "scale", often=count_scale)
    scales = table.join(factors, on="phase", nulls_equal=True).select("step", "scale", "often")
    time, count = (pl.col(c).fill_null(1.0) for c in ("scale", "often"))
    return rows.join(scales.lazy(), on="step", how="left").with_columns(
        scaled_ns=pl.col("dur") * time, scaled_count=launch_count(run) * count
    )


def build_scaled_sums(run: Run, look: Look) -> list[pl.Expr]:
    """Return expressions that sum weighted rows, for `scale_totals`."""
    return [] if compute_coverage(run, look) is None else [pl.col(c).sum() for c in _SCALED]


def scale_totals(table: pl.DataFrame) -> pl.DataFrame:
    """Return totals and counts of all steps, with the measured total and the factor between them."""
    if _SCALED[0] not in table.columns:
        return table
    scale = pl.when(pl.col("total_ns") > 0).then(pl.col("scaled_ns") / pl.col("total_ns"))
    return table.with_columns(
        measured_ns=pl.col("total_ns"),
        scale=scale,
        total_ns=pl.col("scaled_ns").round().cast(pl.Int64),
        count=pl.col("scaled_count").round().cast(pl.Int64),
    ).drop(_SCALED)


def compute_scaled_total(run: Run, look: Look, rows: pl.LazyFrame) -> int:
    """Return the time of all rows, scaled to the steps they represent."""
    column = "dur" if compute_coverage(run, look) is None else _SCALED[0]
    rows = with_sampling_weights(run, look, rows)
    return int(rows.select(pl.col(column).sum().round()).collect().item())


def find_represented_steps(run: Run, look: Look, numbers: pl.Series) -> pl.Series:
    """Return all steps of the phases in which any of these steps was sampled."""
    phases = compute_coverage(run, look)
    if phases is None:
        return numbers
    table = find_sampled_steps(run)[resolve_lens(run, look) or ""]
    table = table if look.window is None else table.filter(pl.col("step").is_between(*look.window))
    phases_sampled = table.filter(pl.col("step").is_in(numbers.implode()))["phase"].unique()
    return table.join(phases_sampled.to_frame(), on="phase", nulls_equal=True)["step"]


def scale_rows(run: Run, look: Look, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows with the time and count they represent; unchanged if every step was recorded."""
    if compute_coverage(run, look) is None:
        return rows
    time = pl.col("scaled_ns").round().cast(pl.Int64)
    return with_sampling_weights(run, look, rows).with_columns(dur=time, count=pl.col("scaled_count"))


def is_sampled(run: Run, look: Look, numbers: pl.Series) -> pl.Series:
    """Return for each step whether it was sampled; elsewhere rows are unknown, not absent."""
    table = find_sampled_steps(run).get(resolve_lens(run, look) or "")
    if table is None:
        return pl.repeat(True, numbers.len(), eager=True)
    complete = table.filter(pl.col("sampled") == pl.col("steps"))["step"]
    return numbers.is_in(complete.implode())


def compute_sampled_share(run: Run, look: Look) -> float:
    """Return the share of sampled steps among those of sampled phases."""
    phases = compute_coverage(run, look)
    if phases is None:
        return 1.0
    sampled_phases = phases.filter(pl.col("sampled") > 0)
    return int(sampled_phases["sampled"].sum()) / max(1, int(sampled_phases["steps"].sum()))


def note_lens_and_sampling(run: Run, look: Look, *, scaled: bool = False) -> list[str]:
    """Return notes on the lens of the numbers, and on the sampled steps."""
    return [*note_selection(run, look), *note_sampling(run, look, scaled=scaled)]


def note_sampling(run: Run, look: Look, *, scaled: bool) -> list[str]:
    """Return notes on how many steps were sampled, and whether the numbers are scaled."""
    phases = compute_coverage(run, look)
    if phases is None:
        return []
    if look.window is not None and look.window[0] == look.window[1]:
        return [_describe_unsampled_step(run, look, look.window[0])]
    lens = resolve_lens(run, look)
    sampled = phases.filter(pl.col("sampled") > 0)
    counts = ", ".join(f"{w:,} of {n:,} {p or ''}".strip() + " steps" for p, w, n in _list_counts(sampled))
    meaning = "numbers are as sampled, not scaled"
    if scaled:
        meaning = "totals, counts and shares are scaled to all steps; other columns are as sampled"
    where = f"{counts or 'no step'}{_describe_last_sample(run, look)}"
    lines = [f"{lens} rows were recorded in {where}; {meaning}"]
    missed = [str(p or "steps of unknown phase") for p, w, _ in _list_counts(phases) if not w]
    return lines + ([f"no window in {', '.join(missed)}: its {lens} rows are unknown"] if missed else [])


def _list_counts(phases: pl.DataFrame) -> Sequence[tuple[str | None, int, int]]:
    return phases.select("phase", "sampled", "steps").rows()


def _describe_unsampled_step(run: Run, look: Look, step: int) -> str:
    sampled = find_sampled_steps(run)[resolve_lens(run, look) or ""].filter(pl.col("sampled") > 0)["step"]
    nearest = (sampled.filter(sampled < step).max(), sampled.filter(sampled > step).min())
    others = " and ".join(f"{n:,}" for n in nearest if isinstance(n, int))
    return f"step {step:,} was not sampled" + (f"; the nearest sampled: {others}" if others else "")


def _describe_last_sample(run: Run, look: Look) -> str:
    """Describe how long ago the last window was, and the capture cost; empty if unknown."""
    table = find_sampled_steps(run)[resolve_lens(run, look) or ""]
    last = table.filter(pl.col("sampled") > 0)["t"].max()
    end = table["t"].max()
    parts = []
    if isinstance(last, int) and isinstance(end, int) and end > last:
        parts.append(f"the last {units.format_duration(end - last)} before the end")
    if run.has("value"):
        cost = series.compute_counter_table(run, Look(filter="^capture cost$"))["mean"].mean()
        parts += [f"capture cost {cost:.1f}%"] if isinstance(cost, float) else []
    return f" ({', '.join(parts)})" if parts else ""
