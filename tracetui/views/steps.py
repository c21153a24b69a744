"""Steps: one row a decode step or iteration, and how much of its wall time the kernels account for."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import device_time, select, windows
from tracetui.analysis.steady import sentence, steady_state
from tracetui.analysis.steps import beside_the_wall, paced, stated, step_table
from tracetui.look import Look
from tracetui.views import Answer, View


def steps(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a step, with totals by phase among the notes."""
    run = runs[0]
    table = step_table(run, look)
    if table.is_empty():
        return Answer(table, (select.why_no_kernels(run), *windows.scope(run, look)), key=("step",))
    sentences = (stated(run, phase) for phase in table["phase"].unique(maintain_order=True))
    notes = [
        *_totals(_with_fitting_walls(run, table)),
        *_settled(run, look),
        *(_device(run, look) if "busy_ns" in table.columns else []),
    ]
    notes += [*(s for s in sentences if s), *windows.scope(run, look), *_notes(table)]
    return Answer(table, tuple(notes), key=("step",))


def _settled(run: Run, look: Look) -> list[str]:
    """Return which steps are steady, where all are looked at and some of them are not."""
    state = None if look.window or look.phase else steady_state(run)
    return [sentence(state)] if state and not state.whole else []


def _with_fitting_walls(run: Run, table: pl.DataFrame) -> pl.DataFrame:
    """Return the table without wall times that hold more than their step."""
    apart = paced(run).filter("on_device")["step"]
    holds_more = pl.col("step").is_in(apart.implode()) & (pl.col("wall_ns") > _seen(table))
    return table.with_columns(wall_ns=pl.when(~holds_more.fill_null(value=False)).then("wall_ns"))


def _totals(table: pl.DataFrame) -> list[str]:
    """Return one sentence a phase: steps, tokens, time measured, and its part of the wall time."""
    return [_total(phase, part) for (phase,), part in table.group_by("phase", maintain_order=True)]


def _total(phase: object, part: pl.DataFrame) -> str:
    tokens, total = int(part["tokens"].sum()), int(part["total_ns"].sum())
    part = part.with_columns(seen_ns=_seen(part))
    both = part.filter(pl.col("wall_ns").is_not_null() & pl.col("seen_ns").is_not_null())
    seen, wall = int(both["seen_ns"].sum()), int(both["wall_ns"].sum())
    steps = int(part["steps"].sum()) if "steps" in part.columns else part.height
    words = [f"{steps:,} {f'{phase} ' if phase else ''}step{'s' * (steps != 1)}"]
    if tokens:
        words.append(f"{tokens:,} tokens")
    if total:
        words.append(f"{units.duration(total)} measured")
    busy = int(part["seen_ns"].sum())
    if busy != total:
        words.append(f"{units.duration(busy)} busy")
    if wall:
        part_of_wall = f"{units.share(seen / wall)} of {units.duration(wall)} wall"
        words.append(part_of_wall if seen <= wall else f"more than the {units.duration(wall)} wall")
    return ", ".join(words)


def _seen(table: pl.DataFrame) -> pl.Expr:
    """Return the time in which kernels ran: what overlaps counts once where it is known."""
    return pl.coalesce("busy_ns", "total_ns") if "busy_ns" in table.columns else pl.col("total_ns")


def _device(run: Run, look: Look) -> list[str]:
    """Return what the device did inside, between and outside the steps looked at, in sentences."""
    if look.window is not None or look.phase is not None:
        return []
    inside = device_time.by_step(run)
    span, busy = int(inside["span_ns"].sum()), int(inside["busy_ns"].sum())
    words = f"the device is busy {units.share(busy / span)} of its {units.duration(span)} in steps"
    between = device_time.between_ns(inside)
    if between:
        words += f"; {units.duration(between)} lie between steps"
    return [words, *beside_the_wall(run), *map(device_time.sentence, device_time.strays(run))]


def _notes(table: pl.DataFrame) -> list[str]:
    notes = []
    if table["tokens"].null_count() == table.height:
        notes.append("this source does not tell tokens: no figures per token")
    if table["wall_ns"].null_count() == table.height:
        notes.append("this source does not tell wall times of steps: tokens/s are of measured kernel time")
    beyond = table.filter(pl.col("wall_ns") < _seen(table)).height
    if beyond:
        how = "run on" if "busy_ns" in table.columns else "overlap, or run on"
        where = f"in {beyond} step{'s' * (beyond != 1)}"
        notes.append(f"{where} kernels outlast the wall time: they {how} into the next step")
    return notes


VIEW = View(
    "steps",
    "Steps",
    steps,
    needs=frozenset({"step"}),
    alone="a step of several files has no one window; rankmap has the steps of each rank",
    newest_last=True,
    columns=(
        "step",
        "steps",
        "phase",
        "total_ns",
        "busy_ns",
        "idle_ns",
        "tokens",
        "per_token_ns",
        "context",
        "tokens_per_s",
        "wall_ns",
        "outside_ns",
        "gap_ns",
        "gap_share",
        "batch",
        "host_late_ns",
        "sync_ns",
        "comm_exposed_ns",
        "transfer_exposed_ns",
    ),
)
