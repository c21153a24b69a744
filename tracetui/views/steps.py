"""Steps: one row a decode step or iteration, and how much of its wall time the kernels account for."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import select, windows
from tracetui.analysis.steps import stated, step_table
from tracetui.look import Look
from tracetui.views import Answer, View


def steps(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a step, with totals by phase among the notes."""
    run = runs[0]
    table = step_table(run, look)
    if table.is_empty():
        return Answer(table, (select.why_no_kernels(run), *windows.scope(run, look)), key=("step",))
    sentences = (stated(run, phase) for phase in table["phase"].unique(maintain_order=True))
    notes = (*_totals(table), *(s for s in sentences if s), *windows.scope(run, look), *_notes(table))
    return Answer(table, notes, key=("step",))


def _totals(table: pl.DataFrame) -> list[str]:
    """Return one sentence a phase: steps, tokens, time measured, and its part of the wall time."""
    return [_total(phase, part) for (phase,), part in table.group_by("phase", maintain_order=True)]


def _total(phase: object, part: pl.DataFrame) -> str:
    tokens, total = int(part["tokens"].sum()), int(part["total_ns"].sum())
    both = part.filter(pl.col("wall_ns").is_not_null() & pl.col("total_ns").is_not_null())
    seen, wall = int(both["total_ns"].sum()), int(both["wall_ns"].sum())
    steps = int(part["steps"].sum()) if "steps" in part.columns else part.height
    words = [f"{steps:,} {f'{phase} ' if phase else ''}step{'s' * (steps != 1)}"]
    if tokens:
        words.append(f"{tokens:,} tokens")
    if total:
        words.append(f"{units.duration(total)} measured")
    if wall:
        words.append(f"{units.share(seen / wall)} of {units.duration(wall)} wall")
    return ", ".join(words)


def _notes(table: pl.DataFrame) -> list[str]:
    notes = []
    if table["tokens"].null_count() == table.height:
        notes.append("this source does not tell tokens: no figures per token")
    if table["wall_ns"].null_count() == table.height:
        notes.append("this source does not tell wall times of steps: tokens/s are of measured kernel time")
    beyond = table.filter(pl.col("wall_ns") < pl.col("total_ns")).height
    if beyond:
        notes.append(
            f"in {beyond} steps kernels outlast the wall time: they overlap, or run on into the next step"
        )
    return notes


VIEW = View(
    "steps",
    "Steps",
    steps,
    needs=frozenset({"step"}),
    columns=(
        "step",
        "steps",
        "phase",
        "total_ns",
        "tokens",
        "per_token_ns",
        "context",
        "tokens_per_s",
        "wall_ns",
        "gap_ns",
        "gap_share",
        "batch",
    ),
)
