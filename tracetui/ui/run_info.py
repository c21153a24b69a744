"""What the screen shows of a run and steps through: its lenses, phases, steps, extent and speed."""

from typing import Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui.analysis import present, select, steps
from tracetui.analysis.steady import steady_state
from tracetui.analysis.vitals import Vitals, vitals

NO_VITALS: Final = Vitals()


class RunInfo(Struct, frozen=True):
    """Properties of one run. They are found in the background, so that no key has to read the events."""

    lenses: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    step_count: int = 0
    layers: tuple[int, ...] = ()
    steady: bool = False  # whether a steady state was found
    extent: tuple[int, int] | None = None  # first and last ns on the timeline
    tokens_per_s: float | None = None
    now_per_s: float | None = None  # tokens of the last seconds, of a run that grows
    vitals: Vitals = NO_VITALS


def describe_run(run: Run, *, growing: bool = False) -> RunInfo:
    """Return the properties of a run; what its source does not tell is empty or None.

    Of one that is growing they tell how fast it is at present, too.
    """
    marks, now = steps.paced(run), vitals(run)
    return RunInfo(
        lenses=tuple(select.lenses(run)),
        phases=tuple(select.phases(run)),
        steps=_numbers(marks),
        step_count=int(marks["steps"].sum()),
        layers=_layers(run),
        steady=steady_state(run) is not None,
        extent=_extent(run),
        tokens_per_s=_tokens_per_s(marks) if now.tokens_per_s is None else now.tokens_per_s,
        now_per_s=present.lately(run) if growing else None,
        vitals=now,
    )


def _numbers(marks: pl.DataFrame) -> tuple[int, ...]:
    """Return the number of every step, also of those that were folded into one: the file still has them."""
    if not (marks["steps"] > 1).any():
        return tuple(marks["step"].to_list())
    first, last = int(marks["step"][0]), int(marks["step"][-1])
    every = range(first, last + 1)
    return tuple(every) if len(every) == int(marks["steps"].sum()) else tuple(marks["step"].to_list())


def _layers(run: Run) -> tuple[int, ...]:
    if not run.has("layer"):
        return ()
    layer = run.events["layer"]
    return tuple(layer.filter(select.changes(layer)).unique().drop_nulls().sort().to_list())


def _extent(run: Run) -> tuple[int, int] | None:
    if not run.has("t"):
        return None
    end = pl.col("t") + (pl.col("dur").fill_null(0) if run.has("dur") else 0)
    first, last = run.events.select_seq(pl.col("t").min(), end.max().alias("end")).row(0)
    return (first, last) if first is not None and last > first else None


def _tokens_per_s(marks: pl.DataFrame) -> float | None:
    """Return decode tokens over the time of decode steps; None where no step tells both."""
    decode = marks["phase"].fill_null("decode") == "decode"
    decode &= marks["tokens"].is_not_null() & (marks["took_ns"] > 0)
    tokens, time = (int(marks[column].filter(decode).sum()) for column in ("tokens", "took_ns"))
    return 1e9 * tokens / time if time else None
