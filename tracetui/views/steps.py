"""Steps: one row per decode step or iteration, and the share of its wall time spent in kernels."""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import selection
from tracetui.analysis.recording_advice import suggest_contexts
from tracetui.analysis.slow_steps import compare_steps
from tracetui.analysis.time import device_time, step_sampling, step_table
from tracetui.analysis.time.steady import describe_steady_state, find_steady_state
from tracetui.look import Look
from tracetui.views import Answer, TableStyle, View

SLOW_MARK: Final = "slow"
PROFILED_MARK: Final = "profiled"  # by the program itself
MAX_NAMED: Final = 4  # slow steps in the note


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per step; totals by phase are notes."""
    run = runs[0]
    table = step_table.compute_step_table(run, look)
    table = _with_likes(run, table)
    sampling = step_sampling.note_lens_and_sampling(run, look)
    if table.is_empty():
        return Answer(table, (selection.explain_no_kernels(run), *sampling), key=("step",))
    phases = _drop_misfit_walls(run, table).group_by("phase", maintain_order=True)
    sentences = (
        step_table.describe_reported_phase(run, phase) for phase in table["phase"].unique(maintain_order=True)
    )
    notes = (
        *_describe_slow_steps(table),
        *(_describe_total(phase, part) for (phase,), part in phases),
        *_describe_steady_state(run, look),
        *(_describe_device(run, look) if "busy_ns" in table.columns else []),
        *filter(None, sentences),
        *sampling,
        *_build_notes(run, table),
    )
    return Answer(table, notes, key=("step",))


def _with_likes(run: Run, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with the ratio of each step to the median of its like, and a mark on special ones."""
    likes, profiled = compare_steps(run), step_table.find_profiled_steps(run)
    if likes["like_times"].null_count() == likes.height and profiled.is_empty():
        return table
    is_profiled = pl.col("step").is_in(profiled["step"].implode())
    mark = pl.when(is_profiled).then(pl.lit(PROFILED_MARK)).when("slow").then(pl.lit(SLOW_MARK)).alias("mark")
    return table.join(likes.select("step", "like_times", mark), on="step", how="left", maintain_order="left")


def _describe_slow_steps(table: pl.DataFrame) -> list[str]:
    """Name the slow steps, and how to see why."""
    if "mark" not in table.columns or SLOW_MARK not in table["mark"]:
        return []
    slow = table.filter(mark=SLOW_MARK).sort("like_times", descending=True)
    named = (f"{n:,} ({ratio:.2f}×)" for n, ratio in slow.select("step", "like_times").head(MAX_NAMED).rows())
    more = f" and {slow.height - MAX_NAMED} more" if slow.height > MAX_NAMED else ""
    return [
        f"slower than similar steps: step {', '.join(named)}{more}; Enter on a step, or --why N, says why"
    ]


def _select_styles(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    if "mark" not in rows.columns:
        return {}
    tones = ["warn" if mark else "" for mark in rows["mark"]]
    return {"step": tones, "mark": tones, "like_times": tones}


def _describe_steady_state(run: Run, look: Look) -> list[str]:
    """Name the steady steps, if all steps are shown and some are not steady."""
    state = None if look.window or look.phase else find_steady_state(run)
    return [describe_steady_state(state)] if state and not state.is_complete else []


def _drop_misfit_walls(run: Run, table: pl.DataFrame) -> pl.DataFrame:
    """Remove wall times that are shorter than the kernels of steps found on the device."""
    on_device = step_table.compute_step_durations(run).filter("on_device")["step"]
    holds_more = pl.col("step").is_in(on_device.implode()) & (pl.col("wall_ns") > _busy_or_total_ns(table))
    return table.with_columns(wall_ns=pl.when(~holds_more.fill_null(value=False)).then("wall_ns"))


def _describe_total(phase: object, part: pl.DataFrame) -> str:
    """Describe the steps of a phase: number, tokens, measured time, and its share of the wall time."""
    tokens, total = int(part["tokens"].sum()), int(part["total_ns"].sum())
    part = part.with_columns(seen_ns=_busy_or_total_ns(part))
    both = part.filter(pl.col("wall_ns").is_not_null() & pl.col("seen_ns").is_not_null())
    seen_ns, wall = int(both["seen_ns"].sum()), int(both["wall_ns"].sum())
    steps = int(part["steps"].sum()) if "steps" in part.columns else part.height
    parts = [f"{steps:,} {f'{phase} ' if phase else ''}step{'s' * (steps != 1)}"]
    if tokens:
        parts.append(f"{tokens:,} token{'s' * (tokens != 1)}")
    if total:
        parts.append(f"{units.format_duration(total)} measured")
    busy = int(part["seen_ns"].sum())
    if busy != total:
        parts.append(f"{units.format_duration(busy)} busy")
    if wall:
        part_of_wall = f"{units.format_share(seen_ns / wall)} of {units.format_duration(wall)} wall"
        parts.append(part_of_wall if seen_ns <= wall else f"more than the {units.format_duration(wall)} wall")
    return ", ".join(parts)


def _busy_or_total_ns(table: pl.DataFrame) -> pl.Expr:
    """Expression: time in which kernels ran; overlapping time counts once if known."""
    if "busy_ns" in table.columns:
        return pl.coalesce("busy_ns", "total_ns")
    if "gap_ns" not in table.columns:
        return pl.col("total_ns")
    between_gaps = pl.when(pl.col("gap_ns") > 0).then(pl.col("wall_ns") - pl.col("gap_ns"))
    return pl.min_horizontal(between_gaps, "total_ns")


def _describe_device(run: Run, look: Look) -> list[str]:
    """Return sentences about the device within, between and outside the displayed steps."""
    if look.window is not None or look.phase is not None:
        return []
    inside = device_time.compute_step_spans(run)
    span, busy = int(inside["span_ns"].sum()), int(inside["busy_ns"].sum())
    text = (
        f"the device is busy {units.format_share(busy / span)} of its {units.format_duration(span)} in steps"
    )
    if between := device_time.compute_between_spans_ns(inside):
        text += f"; {units.format_duration(between)} are between steps"
    strays = map(device_time.describe_stray_kernels, device_time.find_stray_kernels(run))
    return [text, *step_table.note_device_rates(run), *strays]


def _build_notes(run: Run, table: pl.DataFrame) -> list[str]:
    notes, work = [], selection.name_work(run)
    if table["tokens"].null_count() == table.height:
        notes.append("this source does not report tokens: no values per token")
    if how := suggest_contexts(run):
        notes.append(f"contexts are not recorded: {how}")
    if table["wall_ns"].null_count() == table.height:
        notes.append(f"this source does not report wall times of steps: tokens/s use measured {work} time")
    beyond = table.filter(pl.col("wall_ns") < _busy_or_total_ns(table)).height
    if beyond:
        hows = ["overlap"] * ("busy_ns" not in table.columns)
        hows += ["continue in the next step"] * (table.height > 1)
        how = f": they {', or '.join(hows)}" if hows else ""
        where = f"in {beyond} step{'s' * (beyond != 1)}"
        notes.append(f"{where} {work}s exceed the wall time{how}")
    return notes


VIEW = View(
    "steps",
    "Steps",
    answer,
    needs=frozenset({"step"}),
    not_merged_because="files do not share steps; rankmap shows the steps of each rank",
    newest_last=True,
    numbers="step",
    table_style=TableStyle(_select_styles, wide_names=True),
    columns=(
        "step", "steps", "phase", "total_ns", "like_times", "mark", "busy_ns", "idle_ns", "tokens",
        "per_token_ns", "context",
        "tokens_per_s", "wall_ns", "outside_ns", "gap_ns", "gap_share", "batch", "host_late_ns", "sync_ns",
        "comm_exposed_ns", "transfer_exposed_ns",
    ),
)  # fmt: skip
