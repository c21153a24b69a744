"""The step axis: one row per step, kernel time per step, and how both compare with the wall clock."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import polars as pl

from capture.native.schema import OWN_PROFILE_MARK, RECORDING_NAME
from capture.run import Run, list_chunks
from capture.step_ends import find_step_ends
from tracetui import units
from tracetui.analysis.frames.codes import group_by_packed_key, sum_segments
from tracetui.analysis.frames.run_memo import cache_per_run, list_distinct, map_chunks
from tracetui.analysis.frames.selection import (
    filter_rows,
    is_change,
    launch_count,
    list_lenses,
    list_ranks,
    resolve_lens,
    select_kind,
    select_timed,
    with_rank,
)
from tracetui.analysis.frames.time_axis import measure_union, uncovered_ns
from tracetui.analysis.time import device_time, idle_gaps
from tracetui.analysis.time.device_time import compute_step_spans, has_overlap_or_idle, measure_spans
from tracetui.analysis.time.idle_gaps import find_gaps_between_steps, sum_late_gaps_by_step
from tracetui.filter_syntax import build_comparison
from tracetui.look import Look

_STEP_SCHEMA: Final = {"step": pl.Int64(), "phase": pl.String()} | dict.fromkeys(
    ("tokens", "context", "batch", "t", "wall_ns", "steps"), pl.Int64()
)
_IDLE_CAUSES: Final = ("host_late_ns", "sync_ns")  # that idle time is split into
_STEP_COLUMNS: Final = ("step", "phase", "tokens", "context", "batch", "t", "dur", "count")


def compute_step_totals(run: Run, look: Look, lens: str | None) -> pl.DataFrame:
    """Return `step` and `dur`, its kernel time under a lens, in the phase, step range and filter of the look.

    Of several concurrent ranks, the slowest counts.
    """
    if not (run.has("dur") and run.has("step")):
        return pl.DataFrame(schema={"step": pl.Int64, "dur": pl.Int64})
    if look.is_partial:
        sums = _compute_totals(run, look, lens)
    else:
        unfiltered = Look(phase=look.phase, window=look.window)
        sums = filter_rows(_compute_run_totals(run, lens).lazy(), run, unfiltered).collect()
    if not list_ranks(run):
        return sums.group_by("step").agg(pl.col("dur").sum())
    by_rank = group_by_packed_key(sums.lazy(), ("step", "rank"), (pl.col("dur").sum(),))
    return by_rank.group_by("step").agg(pl.col("dur").max())


def _compute_totals(
    run: Run, look: Look, lens: str | None, events: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return `step`, `phase`, `rank` if there are ranks, and `dur` of their rows; keys may repeat."""
    rows = select_timed(run, look, lens=lens, events=events).filter(pl.col("step").is_not_null())
    rows = rows if run.has("phase") else rows.with_columns(phase=pl.lit(None, pl.Categorical))
    if list_ranks(run):  # whose rows alternate
        return group_by_packed_key(with_rank(run, rows), ("step", "phase", "rank"), (pl.col("dur").sum(),))
    return sum_adjacent_rows(rows.select("step", "phase", "dur").collect())


@cache_per_run
def _compute_run_totals(run: Run, lens: str | None) -> pl.DataFrame:
    """Return the totals of all rows; chunks of a growing run are summed once."""
    if not list_chunks(run) or list_ranks(run):
        return _compute_totals(run, Look(), lens)
    key = "step totals", lens or resolve_lens(run, Look())
    return pl.concat(map_chunks(run, key, partial(_compute_totals, run, Look(), lens)))


def sum_adjacent_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows (`step`, `phase`, `dur`) with adjacent rows of the same step and phase summed.

    Most rows of a step are adjacent, so few rows remain.
    """
    starts = (is_change(rows["step"]) | is_change(rows["phase"])).arg_true()
    return rows[starts].with_columns(dur=sum_segments(rows["dur"], starts))


@cache_per_run
def build_step_facts(run: Run) -> pl.DataFrame:
    """Return one row per step, in order: phase, tokens, context, batch, start, wall time; null if unknown.

    The wall time lasts until the next step begins, without the recorder's own work in it. `steps` is 1,
    except for steps folded into one row.
    """
    if not run.has("step"):
        return pl.DataFrame(schema=_STEP_SCHEMA)
    rows = select_kind(run, "step", _STEP_COLUMNS).filter(pl.col("step").is_not_null())
    reported = rows.group_by("step").agg(_build_reported_columns(run))
    table = _find_step_phases(run).join(reported, on="step", how="left")
    if "reported_phase" in table.columns:
        table = table.with_columns_seq(phase=pl.coalesce("reported_phase", "phase"))
    table = table.with_columns_seq(pl.col("steps").fill_null(1)).select_seq(*_STEP_SCHEMA).sort("t", "step")
    ends = find_step_ends(table["t"], table["wall_ns"], table["steps"])
    table = table.with_columns_seq(wall_ns=pl.coalesce(ends - table["t"], "wall_ns")).sort("step")
    recorder = _sum_recorder_time(run)
    if recorder.is_empty():
        return table
    table = table.join(recorder, on="step", how="left", maintain_order="left")
    wall_ns = (pl.col("wall_ns") - pl.col("recorder_ns").fill_null(0)).clip(0)
    return table.with_columns(wall_ns=wall_ns).drop("recorder_ns")


def list_marked_times(run: Run, path: str) -> list[tuple[int, int]]:
    """List begin and end of the times between marks of this path; a missing one is that of the run."""
    if not {"path", "t"} <= set(run.events.columns):
        return []
    marks = select_kind(run, "mark", ["t", "name", "path"]).filter(pl.col("path").cast(pl.String) == path)
    if marks.is_empty():
        return []
    first, last = run.events.select(first=pl.col("t").min(), last=pl.col("t").max() + 1).row(0)
    times: list[tuple[int, int]] = []
    begin = None
    for t, name, _ in marks.drop_nulls("t").sort("t").iter_rows():
        if name == "begin":
            begin = t if begin is None else begin
        elif begin is not None or not times:
            times.append((first if begin is None else begin, t))
            begin = None
    return times if begin is None else [*times, (begin, last)]


@cache_per_run
def find_profiled_steps(run: Run) -> pl.DataFrame:
    """Return `step` and `is_inside` of the steps that the recorded program's own profiler made slower.

    Inside are those that began while it was on; the others are those in which it started.
    """
    table = build_step_facts(run).drop_nulls("t")
    begin, end = pl.col("t"), pl.col("t") + pl.col("wall_ns").fill_null(0)
    is_inside = is_touched = pl.lit(value=False)
    for first, last in list_marked_times(run, OWN_PROFILE_MARK):
        is_inside |= begin.is_between(first, last, closed="left")
        is_touched |= (begin < last) & (end > first)
    return table.filter(is_touched | is_inside).select("step", is_inside=is_inside)


def drop_profiled(run: Run, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps without those that the program's own profiler made slower, if others are left."""
    others = steps.join(find_profiled_steps(run), on="step", how="anti", maintain_order="left")
    return steps if others.is_empty() else others


def _sum_recorder_time(run: Run) -> pl.DataFrame:
    """Return `step` and `recorder_ns` of the steps in which the recorder did work of its own."""
    if not {"name", "step", "dur"} <= set(run.events.columns):
        return pl.DataFrame()
    rows = (run.events["name"] == RECORDING_NAME).arg_true()
    recorder_rows = run.events[rows, ["step", "dur"]].drop_nulls()
    return recorder_rows.group_by("step").agg(recorder_ns=pl.col("dur").sum())


def _find_step_phases(run: Run) -> pl.DataFrame:
    """Return the phase of each step on which all its rows agree; null if it has kernels without a phase."""
    step = run.events["step"]
    if not run.has("phase"):
        step_numbers = step.gather(is_change(step).arg_true()).drop_nulls().unique()
        return pl.DataFrame({"step": step_numbers}).with_columns(phase=pl.lit(None, pl.String))
    is_start = is_change(step) | is_change(run.events["phase"])
    step_phases = run.events[is_start.arg_true(), ["step", "phase"]].unique().drop_nulls("step")
    phase = pl.col("phase").cast(pl.String).drop_nulls()
    step_phases = step_phases.group_by("step").agg(pl.when(phase.len() == 1).then(phase.first()))
    is_open = (run.events["kind"] == "kernel") & run.events["phase"].is_null()
    open_steps = step.gather(is_open.arg_true()).drop_nulls().unique()
    return step_phases.with_columns(phase=pl.when(~pl.col("step").is_in(open_steps.implode())).then("phase"))


def _build_reported_columns(run: Run) -> list[pl.Expr]:
    """Return expressions of what step rows report; of concurrent ranks in one step, the largest."""
    columns = {"tokens": "tokens", "context": "context", "batch": "batch", "dur": "wall_ns"}
    null = pl.lit(None, pl.Int64)
    exprs = [(pl.col(c).max() if run.has(c) else null).alias(alias) for c, alias in columns.items()]
    start = pl.col("t").min() if run.has("t") else null.alias("t")
    phase = pl.col("phase").cast(pl.String).drop_nulls().first().alias("reported_phase")
    count = launch_count(run).max().cast(pl.Int64).alias("steps")
    return [*exprs, count, start, *([phase] if run.has("phase") else [])]


@cache_per_run
def compute_step_durations(run: Run) -> pl.DataFrame:
    """Return step facts with `took_ns`, and `on_device`, whether that is device time.

    `took_ns` is the host's wall time, unless the device shows that this is another time: shorter than the
    device span, elsewhere, or with stray kernels. Then it is the time from the end of the previous step to
    its own end, without time in which nothing was requested; `t` is its start. Null if neither is known.
    """
    table = build_step_facts(run)
    spans = compute_step_spans(run)
    if spans.is_empty():
        return table.with_columns_seq(took_ns="wall_ns", on_device=pl.lit(value=False))
    table = table.join(spans.select("step", "begin", "end", "span_ns"), on="step", how="left")
    steps_with_strays = measure_spans(run).stray_rows["step"].unique()
    span_middle = (pl.col("begin") + pl.col("end")) // 2
    is_wall_valid = pl.col("wall_ns") >= pl.col("span_ns")
    is_wall_valid &= span_middle.is_between("t", pl.col("t") + pl.col("wall_ns"))
    is_wall_valid &= ~pl.col("step").is_in(steps_with_strays.implode())
    on_device = pl.col("span_ns").is_not_null() & ~is_wall_valid.fill_null(value=False)
    table = table.with_columns(on_device=on_device)
    if not table["on_device"].any():
        return table.with_columns(took_ns="wall_ns").select(*_STEP_SCHEMA, "took_ns", "on_device")
    table = table.join(_compute_periods(run, spans), on="step", how="left")
    took_ns = pl.when("on_device").then("period_ns").otherwise("wall_ns")
    start = pl.when("on_device").then(pl.col("end") - pl.col("period_ns")).otherwise("t")
    table = table.with_columns(t=start, took_ns=took_ns)
    return table.select(*_STEP_SCHEMA, "on_device", "took_ns").sort("step")


def compute_decode_rate(run: Run) -> float | None:
    """Return decoded tokens per second: reported by the source, else of its decode steps; None if unknown.

    Time in which several steps ran at once counts once.
    """
    reported = _read_reported_rate(run)
    return compute_phase_rate(run, "decode") if reported is None else reported


def describe_rate_basis(run: Run, steps: pl.DataFrame) -> str:
    """Describe what the decode rate of a run is based on, given the durations of its steps."""
    if _read_reported_rate(run) is not None:
        return "reported by the source"
    return "by device time" if steps["on_device"].any() else "by wall time"


def _read_reported_rate(run: Run) -> float | None:
    reported = run.meta.get("decode_tokens_per_s")
    return float(reported) if isinstance(reported, int | float) and reported > 0 else None


def compute_phase_rate(run: Run, phase: str) -> float | None:
    """Return tokens per second of all steps of a phase, and of those without one; None if unknown.

    Tokens that are accepted when a draft is verified are decoded. Steps under the program's own profiler are
    left out, if there are others.
    """
    phases = [phase, "verify"] if phase == "decode" else [phase]
    steps = compute_step_durations(run).filter(pl.col("phase").cast(pl.String).fill_null(phase).is_in(phases))
    return compute_rate(drop_profiled(run, steps.drop_nulls(["tokens", "took_ns"])))


def compute_rate(steps: pl.DataFrame) -> float | None:
    """Return tokens per second of steps (`t`, `took_ns`, `tokens`); None without a duration.

    Time in which several of them ran at once counts once.
    """
    timed = steps.filter(pl.col("t").is_not_null()).sort("t")
    overlap = int(timed["took_ns"].sum()) - measure_union(timed["t"], timed["t"] + timed["took_ns"])
    took_ns = int(steps["took_ns"].sum()) - overlap
    return int(steps["tokens"].sum()) * 1e9 / took_ns if took_ns > 0 else None


def _compute_periods(run: Run, spans: pl.DataFrame) -> pl.DataFrame:
    """Return `period_ns` of each step: its span without earlier steps' time, plus idle time before it."""
    gaps = find_gaps_between_steps(run)
    is_long = pl.col("gap_ns") >= idle_gaps.NOTHING_ASKED_MIN_NS
    is_unknown = pl.col("cause") == idle_gaps.LAUNCH_UNKNOWN
    unrequested = gaps.filter((pl.col("cause") == idle_gaps.NOTHING_ASKED) | (is_long & is_unknown))
    ordered = spans.sort("begin").with_columns(latest_end=pl.col("end").cum_max().shift(1))
    starts_at_own_span = pl.col("latest_end").is_null() | pl.col("step").is_in(unrequested["step"].implode())
    period_start = pl.when(starts_at_own_span).then("begin").otherwise(pl.min_horizontal("latest_end", "end"))
    return ordered.select("step", period_ns=pl.col("end") - period_start)


def assign_trend_cells(table: pl.DataFrame, width: int) -> pl.Series:
    """Return the trend cell of each step of a table (`step`, `steps`): at most `width` cells.

    A cell covers a power of two of steps and begins at a multiple of its length. So the cells of a growing
    run stay, until there are too many: then each two become one. If the numbers of steps have wide gaps, the
    steps before each count instead.
    """
    step, steps, size = table["step"], table["steps"], 1
    if step.is_empty():
        return step.cast(pl.Int64)
    has_wide_gaps = int(step[-1]) - int(step[0]) >= 2 * int(steps.sum())
    position = (steps.cum_sum() - steps if has_wide_gaps else step).cast(pl.Int64)
    first, last, longest = int(position[0]), int(position[-1]), int(steps.max())  # type: ignore[arg-type]
    while size < longest or last // size - first // size >= width:
        size *= 2
    return position // size - first // size


def compute_step_table(run: Run, look: Look) -> pl.DataFrame:
    """Return one row per step: kernel time under each lens, per token, and compared with the wall clock.

    A filter on steps selects rows; any other selects kernels, and the steps in which one matches.
    """
    of_steps = [term for term in look.where if term.column == "step"]
    if of_steps:
        others = tuple(term for term in look.where if term.column != "step")
        table = _build_step_table(run, replace(look, where=others))
        return table.filter(build_comparison(pl.col("step"), term) for term in of_steps)
    return _build_step_table(run, look)


def _build_step_table(run: Run, look: Look) -> pl.DataFrame:
    other_lenses = [x for x in list_lenses(run) if x != resolve_lens(run, look)]
    table = _with_total_ns(run, look)
    for lens in other_lenses:
        table = table.join(_sum_under_lens(run, look, lens, f"{lens}_total_ns"), on="step", how="left")
    table = table.join(measure_covered(run, look), on="step", how="left", maintain_order="left")
    device = _select_device_measures(run, look, table)
    if not device.is_empty():
        device = device.join(sum_late_gaps_by_step(run), on="step", how="left")
    table = table.join(device, on="step", how="left")
    return table.with_columns(_build_derived_columns(table.columns)).select(
        "step",
        *(["steps"] if (table["steps"] > 1).any() else []),
        "phase",
        "tokens",
        "context",
        "batch",
        "total_ns",
        *(f"{x}_total_ns" for x in other_lenses),
        *(c for c in (*device_time.MEASURES, *_IDLE_CAUSES) if c in table.columns),
        "per_token_ns",
        "wall_ns",
        *(["outside_ns"] if "busy_ns" in table.columns else ["gap_ns", "gap_share"]),
        "tokens_per_s",
    )


def compute_idle_ns(run: Run, look: Look) -> int | None:
    """Return the idle time of devices in the steps of the table; None if unknown for some step."""
    table = _with_total_ns(run, look)
    device = _select_device_measures(run, look, table)
    if device.is_empty():
        return None
    idle = table.select("step").join(device, on="step", how="left")["idle_ns"]
    return None if idle.has_nulls() else int(idle.sum())


def measure_covered(run: Run, look: Look) -> pl.DataFrame:
    """Return `step` and `covered_ns`, in which a thread works; no rows where there is one, or a device.

    Of several ranks, the longest counts.
    """
    lens, tracks = resolve_lens(run, look), list_distinct(run, "track") if run.has("track") else ()
    if lens == "gpu" or len(tracks) < 2 or not {"step", "t", "dur"} <= set(run.events.columns):
        return pl.DataFrame(schema={"step": pl.Int64, "covered_ns": pl.Int64})
    rows = with_rank(run, select_timed(run, look, lens=lens).filter(pl.col("step").is_not_null()))
    key = ("rank", "step")
    covered = pl.coalesce(uncovered_ns(pl.col("t") + pl.col("dur"), key), "dur")  # self times have no start
    rows = rows.select(*key, "t", "dur").sort(*key, "t").with_columns(covered_ns=covered)
    by_rank = rows.group_by(key).agg(pl.col("covered_ns").sum())
    return by_rank.group_by("step").agg(pl.col("covered_ns").max()).collect()


def _with_total_ns(run: Run, look: Look) -> pl.DataFrame:
    """Return the selected steps with `total_ns` of their kernels under the lens in use."""
    table = compute_step_durations(run)
    if look.phase is not None and run.has("phase"):
        table = table.filter(pl.col("phase") == look.phase)
    if look.window is not None:
        table = table.filter(pl.col("step").is_between(*look.window))
    totals = _sum_under_lens(run, look, resolve_lens(run, look), "total_ns")
    is_filtered = bool(look.filter or look.where)  # steps in which nothing matches are no rows
    return table.join(totals, on="step", how="inner" if is_filtered else "left", maintain_order="left")


def note_device_rates(run: Run) -> list[str]:
    """Return a note on the time that tokens/s use, if the host's wall time does not measure steps."""
    device_steps = compute_step_durations(run).filter(pl.col("on_device") & (pl.col("tokens") > 0))
    if device_steps.is_empty():
        return []
    device_ns, wall_times = int(device_steps["took_ns"].sum()), device_steps["wall_ns"].drop_nulls()
    which = f"{device_steps.height:,} steps" if device_steps.height > 1 else "the step"
    note = f"tokens/s use the device time of {which} ({units.format_duration(device_ns)})"
    host = f", not host time ({units.format_duration(int(wall_times.sum()))})" if wall_times.len() else ""
    return [f"{note}{host}"]


def describe_reported_phase(run: Run, phase: object) -> str | None:
    """Describe the GPU total and wall time that the source reports for a phase; None if it reports none."""
    gpu, wall = run.meta.get(f"{phase}_gpu_ns"), run.meta.get(f"{phase}_ms")
    if not isinstance(gpu, int) or not isinstance(wall, int | float) or wall <= 0:
        return None
    share = f"{gpu / wall / 1e4:.1f}% of {wall:,.1f} ms wall"
    return f"the source reports {gpu / 1e6:,.2f} ms of {phase}, {share}"


def _sum_under_lens(run: Run, look: Look, lens: str | None, name: str) -> pl.DataFrame:
    return compute_step_totals(run, look, lens).rename({"dur": name})


def _select_device_measures(run: Run, look: Look, totals: pl.DataFrame) -> pl.DataFrame:
    """Return each step's device measures, if they say more than the sum of its kernels.

    Empty if names are filtered: the selected kernels alone do not fill a span.
    """
    no_rows = pl.DataFrame(schema={"step": pl.Int64})
    if resolve_lens(run, look) != "gpu" or look.is_partial:
        return no_rows
    spans = compute_step_spans(run)
    selected = spans.join(totals.select("step", "total_ns"), on="step")
    if selected.is_empty() or not has_overlap_or_idle(selected, "total_ns"):
        return no_rows
    return spans.select("step", "span_ns", *device_time.MEASURES)


def _build_derived_columns(columns: Sequence[str]) -> list[pl.Expr]:
    """Return the columns computed from others.

    The wall time holds busy, idle and what is outside the device span; without spans, everything but
    kernels is a gap. Null if kernels outlast the wall time.
    """
    tokens, total, wall = pl.col("tokens"), pl.col("total_ns"), pl.col("wall_ns")
    on_device = "busy_ns" in columns
    covered = pl.col("span_ns") if on_device else pl.coalesce("covered_ns", total)
    busy = pl.coalesce("busy_ns", total) if on_device else total
    remaining = pl.when(wall >= covered).then(wall - covered)
    step_time = pl.coalesce("took_ns", busy)
    return [
        pl.when(tokens > 0).then(total / tokens).round().cast(pl.Int64).alias("per_token_ns"),
        remaining.alias("outside_ns" if on_device else "gap_ns"),
        pl.when(wall > 0).then(remaining / wall).alias("gap_share"),
        pl.when((tokens > 0) & (step_time > 0)).then(tokens * 1e9 / step_time).alias("tokens_per_s"),
    ]
