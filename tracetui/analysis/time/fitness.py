"""How fit a capture is to be compared: what of it is partial, unsteady or lost, with the time it touches."""

from collections.abc import Iterator
from typing import Final

import polars as pl
from msgspec import Struct

from capture.native.schema import RECORDING_NAME
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import compute_total_ns, has_kind, select_timed
from tracetui.analysis.time.device_time import find_stray_kernels
from tracetui.analysis.time.steady import WARM_UP_FACTOR, SteadyState, find_steady_state
from tracetui.analysis.time.step_table import compute_step_durations, find_profiled_steps
from tracetui.look import Look

MIN_SHARE: Final = 0.01  # of the time: what touches less is not mentioned
_CAPTURE_NOTICE: Final = "graph_capture"
_PROFILERS_OF_OPERATIONS: Final = ("PyTorch profiler", "ONNX Runtime")
_STEP_NOTICES: Final = ("dispatch_steps", "overlapping_steps")


class Flaw(Struct, frozen=True):
    """One reason to be careful, and the time it touches; None if unknown, or all of it."""

    text: str
    ns: int | None = None


class Fitness(Struct, frozen=True):
    """The flaws of a capture, and its number of steps."""

    steps: int
    flaws: tuple[Flaw, ...]

    @property
    def touched_ns(self) -> int:
        """The time that the flaws touch."""
        return sum(flaw.ns or 0 for flaw in self.flaws)


@cache_per_run
def judge_fitness(run: Run) -> Fitness | None:
    """Judge a capture; None without steps and flaws, where nothing can be said."""
    steps = int(compute_step_durations(run)["steps"].sum())
    flaws = tuple(_iter_flaws(run, steps))
    return Fitness(steps, flaws) if steps or flaws else None


def is_graph_capture(run: Run) -> bool:
    """Whether a trace shows the capture of a graph instead of its execution."""
    return any(notice.id == _CAPTURE_NOTICE for notice in run.log.notices)


def describe_fitness(fitness: Fitness) -> str:
    """Describe how fit a capture is in one sentence."""
    if fitness.flaws:
        return f"not fit to compare: {'; '.join(flaw.text for flaw in fitness.flaws)}"
    return f"fit to compare: {fitness.steps:,} whole steps"


def _iter_flaws(run: Run, steps: int) -> Iterator[Flaw]:
    if is_graph_capture(run):
        yield Flaw("the capture of a graph, not its execution")
        return
    if has_no_work(run):
        yield Flaw(_describe_no_work(run))
        return
    yield from _find_losses(run)
    yield from _find_misfit_steps(run)
    if steps == 1:
        yield Flaw("one step only")
    yield from _find_partial_steps(run)
    yield from _find_empty_last_step(run)
    yield from _find_unsteady_steps(run)
    yield from _find_recorder_work(run)
    yield from _find_profiled_steps(run)


def _find_losses(run: Run) -> Iterator[Flaw]:
    """Find records that are lost, or what was not read without knowing how many there are."""
    if run.log.dropped and run.log.lost_data:
        yield Flaw(f"{run.log.dropped:,} of {run.log.read:,} records lost")
    elif run.log.lost_data:
        yield Flaw(next(n.message for n in run.log.notices if n.severity != "notice"))


def _find_misfit_steps(run: Run) -> Iterator[Flaw]:
    """Find annotated steps that end before their work, or run at once, as the loader noted them."""
    notices = (notice for notice in run.log.notices if notice.id in _STEP_NOTICES)
    yield from (Flaw(notice.message.partition(":")[0]) for notice in notices)


def has_no_work(run: Run) -> bool:
    """Whether a profiler of operations saw none that works; functions of Python may be its own."""
    if set(run.events["kind"].unique()) == {"mark"}:
        return True
    is_empty = run.meta.get("work") == "spans" or not has_kind(run, "kernel")
    return is_empty and run.meta.get("producer") in _PROFILERS_OF_OPERATIONS


def _describe_no_work(run: Run) -> str:
    """Describe that nothing was recorded, and for how long the profiler was on, if the file says it."""
    what = "no operation was recorded"
    if has_kind(run, "span") and run.meta.get("work") == "operators":
        what = "no operation that works was recorded"
    on_ns = run.events.filter(pl.col("kind") == "mark")["dur"].max() if run.has("dur") else None
    if not isinstance(on_ns, int):
        return what
    return f"{what} in the {units.format_duration(on_ns)} that the profiler was on"


def _find_partial_steps(run: Run) -> Iterator[Flaw]:
    """Find kernels of steps that the file shows in part: before the first and after the last one."""
    total_ns = compute_total_ns(run) or 0
    for kernels in find_stray_kernels(run):
        if kernels.side in ("before", "after") and kernels.dur_ns > MIN_SHARE * total_ns:
            which = "before the first step" if kernels.side == "before" else "after the last step"
            dur, count = units.format_duration(kernels.dur_ns), f"{kernels.count:,} kernel"
            text = f"{dur} {which}, of a step in part ({count}{'s' * (kernels.count != 1)})"
            yield Flaw(text, kernels.dur_ns)


def _find_empty_last_step(run: Run) -> Iterator[Flaw]:
    """Find a last step in which nothing ran: the loop ended before the window of its profiler."""
    steps = compute_step_durations(run)
    if steps["steps"].sum() < 2 or not run.has("step"):
        return
    latest = select_timed(run, Look()).select(pl.col("step").max()).collect().item()
    state = find_steady_state(run)
    if latest is None or (state and state.cut):
        return
    last = steps.filter(pl.col("step") > latest).drop_nulls("took_ns")
    if last.height == 1:
        took_ns = int(last["took_ns"][0])
        yield Flaw(f"nothing ran in the last step ({units.format_duration(took_ns)})", took_ns)


def _find_unsteady_steps(run: Run) -> Iterator[Flaw]:
    state = find_steady_state(run)
    if state is None or state.is_complete:
        return
    table = compute_step_durations(run).filter(pl.col("phase").eq_missing(pl.lit(state.phase, pl.String)))
    what = "larger" if _has_more_work(run, state) else "slow"
    outside = {
        f"{state.warm_up:,} {what} first step{'s' * (state.warm_up != 1)}": table.filter(
            pl.col("step") < state.first
        ),
        "the last step is cut": table.filter(pl.col("step") > state.last),
    }
    for text, steps in outside.items():
        if steps.height:
            touched_ns = int(steps["took_ns"].sum())
            yield Flaw(f"{text} ({units.format_duration(touched_ns)})", touched_ns)


def _has_more_work(run: Run, state: SteadyState) -> bool:
    """Whether each step before the steady ones has more operations than these, as a prompt among tokens."""
    if not run.has("flops"):
        return False
    rows = run.events.lazy().filter(pl.col("step").is_not_null() & (pl.col("kind") == "kernel"))
    flops = rows.group_by("step").agg(pl.col("flops").sum()).collect()
    is_first = pl.col("step") < state.first
    least, median = flops.select(
        least=pl.col("flops").filter(is_first).min(), median=pl.col("flops").filter(~is_first).median()
    ).row(0)
    return least is not None and median is not None and least > WARM_UP_FACTOR * median > 0


def _find_recorder_work(run: Run) -> Iterator[Flaw]:
    """Find the recorder's own work, if it is more than a mention of the steps' time."""
    if not (has_kind(run, "span") and run.has("dur") and run.has("name")):
        return
    own_ns = int(run.events["dur"].gather((run.events["name"] == RECORDING_NAME).arg_true()).sum())
    wall_ns = int(compute_step_durations(run)["took_ns"].sum())
    if own_ns > MIN_SHARE * wall_ns:
        yield Flaw(f"recording took {units.format_duration(own_ns)} beside the steps", own_ns)


def _find_profiled_steps(run: Run) -> Iterator[Flaw]:
    """Find steps that the program's own profiler slowed, if they are more than a mention of the time."""
    steps = compute_step_durations(run)
    profiled = steps.join(find_profiled_steps(run).filter("is_inside"), on="step", how="semi")
    touched_ns = int(profiled["took_ns"].sum())
    if touched_ns > MIN_SHARE * int(steps["took_ns"].sum()):
        count = f"{profiled.height:,} step{'s' * (profiled.height != 1)}"
        yield Flaw(f"{count} profiled by the program ({units.format_duration(touched_ns)})", touched_ns)
