"""The steady state of a run: its steps without the warm-up in front and a last one that was cut short.

The rule: of the steps of the phase that has most of them, the first ones count as warm-up as long as each
takes more than 1.5 times the median, and a last one that takes less than half of it was cut short. What
lies between is steady, if it is at least half of these steps.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl
from msgspec import Struct

from capture.errors import UsageError
from capture.run import Run
from tracetui.analysis import select, steps
from tracetui.look import Look

SLOW: Final = 1.5  # times the median: a first step that takes more is warm-up
SHORT: Final = 0.5  # of the median: a last step that takes less was cut
FEWEST: Final = 5  # steps of a phase below which nothing is said
_LEAST: Final = 0.5  # of the steps must be steady
_LASTING: Final = ("kernel", "span", "step")  # kinds of rows that belong to no state outside of steps


class Steady(Struct, frozen=True):
    """The first and last step of the steady state, of how many in all, and what lies outside."""

    first: int
    last: int
    steps: int
    warm_up: int  # steps of the main phase in front of it
    cut: int  # and behind it
    phase: str | None

    @property
    def whole(self) -> bool:
        """Tell whether no step lies outside."""
        return not (self.warm_up or self.cut)


@select.once
def steady_state(run: Run) -> Steady | None:
    """Return the steady state; None where there are too few steps, or where they do not settle."""
    table = _durations(run)
    if table.height < FEWEST or (table["steps"] > 1).any():
        return None
    phase = table["phase"].value_counts(sort=True)["phase"][0]
    main = table.filter(pl.col("phase").eq_missing(pl.lit(phase)))
    took = main["took"].to_list()
    warm_up, cut = outside(took)
    if main.height < FEWEST or main.height - warm_up - cut < _LEAST * main.height:
        return None
    inside = main["step"][warm_up : main.height - cut]
    return Steady(int(inside[0]), int(inside[-1]), table.height, warm_up, cut, phase)


def _durations(run: Run) -> pl.DataFrame:
    """Return what each step took: wall time, else the time of its kernels; steps without either are out."""
    table = steps.marks(run).with_columns(took="wall_ns")
    if table["took"].null_count() and run.has("dur") and table.height >= FEWEST:
        rows = select.timed(run, Look()).filter(pl.col("step").is_not_null())
        sums = rows.group_by("step").agg(total=pl.col("dur").sum()).collect()
        table = table.join(sums, on="step", how="left", maintain_order="left")
        table = table.with_columns(took=pl.coalesce("took", "total"))
    return table.filter(pl.col("took") > 0)


def outside(took: Sequence[int]) -> tuple[int, int]:
    """Return how many of the first steps are warm-up, and whether the last one was cut short (1 or 0)."""
    if not took:
        return 0, 0
    median = sorted(took)[len(took) // 2]
    warm_up = next((i for i, dur in enumerate(took) if dur <= SLOW * median), len(took))
    return warm_up, int(took[-1] < SHORT * median)


def sentence(state: Steady) -> str:
    """Return which steps are steady, how many lie outside, and by which rule."""
    of = f"{state.phase} steps" if state.phase else "steps"
    if state.whole:
        rule = f"none of the first {of} takes {SLOW} times the median"
        return f"steps {state.first}–{state.last} of {state.steps} are steady: {rule}"
    parts = []
    if state.warm_up:
        parts.append(f"{state.warm_up} in front took more than {SLOW} times the median of {of}")
    if state.cut:
        parts.append("the last took less than half of it")
    return f"steps {state.first}–{state.last} of {state.steps} are steady; {' and '.join(parts)}"


def notes(runs: Sequence[Run]) -> list[str]:
    """Return a sentence for each run on which of its steps count, once where they are the same."""
    states = [state for run in runs if (state := steady_state(run))]
    return list(dict.fromkeys(f"only the steady state counts: {sentence(state)}" for state in states))


def without_warm_up(look: Look) -> Look:
    """Return the look at steady parts of runs: its further runs are cut to their own as well."""
    more_a, more_b, same = (
        tuple(steady_part(run) for run in runs)
        for runs in (look.terms.more_a, look.terms.more_b, look.terms.same)
    )
    return replace(look, steady=False, terms=replace(look.terms, more_a=more_a, more_b=more_b, same=same))


def steady_part(run: Run) -> Run:
    """Return the run with the steps of its steady state alone; raise UsageError where it has none."""
    part = _part(run)
    if part is None:
        what = f"{run.name} has no steady state that could be found"
        why = f"it has fewer than {FEWEST} steps, or they do not settle"
        raise UsageError(what, why=why, todo="choose steps by number: --steps 10:20")
    return part


@select.once
def _part(run: Run) -> Run | None:
    state = steady_state(run)
    if state is None:
        return None
    inside = pl.col("step").is_between(state.first, state.last)
    beside = pl.col("step").is_null() & ~pl.col("kind").is_in(list(_LASTING))
    return replace(run, events=run.events.filter(inside | beside))
