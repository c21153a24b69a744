"""The steady state of a run: its steps without warm-up in front and a cut last step.

The rule: among steps of the most frequent phase, the first ones are warm-up as long as each takes more than
1.5 times the median, and a last one that takes less than half of it was cut if it also has fewer operations
than each of the others, and lacks such as take a tenth of their time. The rest is steady if it is at least
half of these steps.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl
from msgspec import Struct

from capture.errors import UsageError
from capture.run import Run
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.analysis.frames.selection import select_timed
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

WARM_UP_FACTOR: Final = 1.5  # times the median: a longer first step is warm-up
CUT_FACTOR: Final = 0.5  # of the median: a shorter last step was cut, if operations are missing
MIN_MISSING_SHARE: Final = 0.1  # of the time of operations: a cut step lacks more
MIN_STEPS: Final = 5  # of a phase; with fewer no steady state is found
_MIN_STEADY_SHARE: Final = 0.5  # of the steps must be steady
_STEP_KINDS: Final = ("kernel", "span", "step")  # kinds of rows that are left out if they are in no step


class SteadyState(Struct, frozen=True):
    """First and last step of the steady state, out of how many, and the steps outside."""

    first: int
    last: int
    steps: int
    warm_up: int  # steps of the main phase before it
    cut: int  # and after it
    phase: str | None

    @property
    def is_complete(self) -> bool:
        """Whether no step lies outside."""
        return not (self.warm_up or self.cut)

    @property
    def numbers(self) -> str:
        """The numbers of the first and last step, and how many steps there are: others may be missing."""
        count = f"of {self.steps}" if self.last <= self.steps else f"({self.steps} recorded)"
        return f"{self.first}–{self.last} {count}"


@cache_per_run
def find_steady_state(run: Run) -> SteadyState | None:
    """Return the steady state; None if there are too few steps or they do not settle."""
    table = _compute_durations(run)
    if table.height < MIN_STEPS or (table["steps"] > 1).any():
        return None
    phase = table["phase"].value_counts(sort=True)["phase"][0]
    main_steps = table.filter(pl.col("phase").eq_missing(pl.lit(phase)))
    warm_up, cut = count_outside_steady(main_steps["took"].to_list())
    cut = int(cut and _lacks_operations(run, main_steps["step"][warm_up:]))
    steady_steps = main_steps["step"][warm_up : main_steps.height - cut]
    if main_steps.height < MIN_STEPS or len(steady_steps) < _MIN_STEADY_SHARE * main_steps.height:
        return None
    return SteadyState(int(steady_steps[0]), int(steady_steps[-1]), table.height, warm_up, cut, phase)


def _lacks_operations(run: Run, steps: pl.Series) -> bool:
    """Whether the last of these steps has fewer operations than each of the others, by a share of the time.

    The share is of the operations of that other one which has fewest.
    """
    rows = select_timed(run, Look()).filter(pl.col("step").is_in(steps.implode()))
    counts_by_step = rows.group_by("step").agg(count=pl.len())
    table = steps.to_frame("step").lazy().join(counts_by_step, on="step", how="left", maintain_order="left")
    counts = table.select(pl.col("count").fill_null(0)).collect()["count"]
    if not (counts[:-1] > counts[-1]).all():
        return False
    is_last, is_least = (pl.col("step") == steps[at] for at in (-1, counts[:-1].arg_min() or 0))
    dur = pl.col("dur").filter(is_least).sum()
    by_name = rows.group_by("name").agg(count=is_least.sum(), own=is_last.sum(), dur=dur)
    missing = pl.col("dur") * (1 - pl.col("own") / pl.col("count")).clip(0)
    sums = by_name.filter(pl.col("count") > 0).select(missing.sum().alias("missing"), pl.col("dur").sum())
    missing_ns, total_ns = sums.collect().row(0)
    return bool(missing_ns >= MIN_MISSING_SHARE * total_ns)


def _compute_durations(run: Run) -> pl.DataFrame:
    """Return the steps with `took`, their wall time, else kernel time; steps without either are left out."""
    table = build_step_facts(run).with_columns(took="wall_ns")
    if table["took"].null_count() and run.has("dur") and table.height >= MIN_STEPS:
        rows = select_timed(run, Look()).filter(pl.col("step").is_not_null())
        sums = rows.group_by("step").agg(total=pl.col("dur").sum()).collect()
        table = table.join(sums, on="step", how="left", maintain_order="left")
        table = table.with_columns(took=pl.coalesce("took", "total"))
    return table.filter(pl.col("took") > 0)


def count_outside_steady(durations: Sequence[int]) -> tuple[int, int]:
    """Return the number of warm-up steps at the start, and of steps that may be cut at the end (1 or 0)."""
    if not durations:
        return 0, 0
    median = sorted(durations)[len(durations) // 2]
    warm_up = next((i for i, dur in enumerate(durations) if dur <= WARM_UP_FACTOR * median), len(durations))
    return warm_up, int(durations[-1] < CUT_FACTOR * median)


def describe_steady_state(state: SteadyState) -> str:
    """Describe which steps are steady, how many lie outside, and by which rule."""
    which = f"{state.phase} steps" if state.phase else "steps"
    if state.is_complete:
        rule = f"none of the first {which} takes {WARM_UP_FACTOR} times the median"
        return f"steps {state.numbers} are steady: {rule}"
    count = f" {state.warm_up}" * (state.warm_up > 1)
    first = f"the first{count} took more than {WARM_UP_FACTOR} times the median of {which}"
    last = "the last took less than half of the median, with fewer operations"
    parts = [first] * bool(state.warm_up) + [last] * bool(state.cut)
    return f"steps {state.numbers} are steady; {' and '.join(parts)}"


def note_steady_states(runs: Sequence[Run]) -> list[str]:
    """Return a sentence on the steady steps of each run, once if they are the same."""
    states = [state for run in runs if (state := find_steady_state(run))]
    texts = (f"only the steady state is included: {describe_steady_state(state)}" for state in states)
    return list(dict.fromkeys(texts))


def cut_to_steady(run: Run) -> Run:
    """Return the run with the steps of its steady state alone; raise UsageError if it has none."""
    steady_run = _select_steady(run)
    if steady_run is None:
        why = f"it has fewer than {MIN_STEPS} steps, or they do not settle"
        todo = "choose steps by number: --steps 10:20"
        raise UsageError(f"no steady state found in {run.name}", why=why, todo=todo)
    return steady_run


@cache_per_run
def _select_steady(run: Run) -> Run | None:
    state = find_steady_state(run)
    if state is None:
        return None
    return cut_to_steps(run, state.first, state.last)


def cut_to_steps(run: Run, first: int, last: int) -> Run:
    """Return the run with these steps alone, without reported rates, which are of all steps."""
    if not run.has("step"):
        return run
    is_inside = pl.col("step").is_between(first, last)
    is_outside_steps = pl.col("step").is_null() & ~pl.col("kind").is_in(list(_STEP_KINDS))
    meta = {key: value for key, value in run.meta.items() if not key.endswith("tokens_per_s")}
    return Run(run.name, meta, run.events.filter(is_inside | is_outside_steps), run.log, run.tables)
