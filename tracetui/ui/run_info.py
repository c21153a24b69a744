"""Properties of a run that the screen needs at every key: lenses, phases, steps, extent, speed."""

from typing import Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui.analysis import recent_stats
from tracetui.analysis.frames import selection
from tracetui.analysis.time import step_table
from tracetui.analysis.time.steady import find_steady_state
from tracetui.analysis.vitals import Vitals, compute_vitals

NO_VITALS: Final = Vitals()


class RunInfo(Struct, frozen=True):
    """Properties of one run, computed in the background so that no key has to read the events."""

    lenses: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    step_count: int = 0
    layers: tuple[int, ...] = ()
    steady: bool = False  # whether it has a steady state
    extent: tuple[int, int] | None = None  # first and last ns on the timeline
    tokens_per_s: float | None = None
    speed_basis: str = ""  # who counted the tokens, or which time they are divided by
    now_per_s: float | None = None  # of the last seconds, if it is growing
    vitals: Vitals = NO_VITALS


def describe_run(run: Run, *, growing: bool = False) -> RunInfo:
    """Return the properties of a run; what its source does not report is empty or None.

    Those of a growing run include its present speed.
    """
    marks, now = step_table.compute_step_durations(run), compute_vitals(run)
    speed, basis = now.tokens_per_s, "counted by the server"
    if speed is None:
        speed, basis = step_table.compute_decode_rate(run), step_table.describe_rate_basis(run, marks)
    return RunInfo(
        lenses=tuple(selection.list_lenses(run)),
        phases=tuple(selection.list_phases(run)),
        steps=_list_step_numbers(marks),
        step_count=int(marks["steps"].sum()),
        layers=_list_layers(run),
        steady=find_steady_state(run) is not None,
        extent=_find_extent(run),
        tokens_per_s=speed,
        speed_basis=basis if speed is not None else "",
        now_per_s=recent_stats.compute_recent_decode_rate(run) if growing else None,
        vitals=now,
    )


def _list_step_numbers(marks: pl.DataFrame) -> tuple[int, ...]:
    """Return the number of every step, also of compacted ones, which can be restored."""
    if not (marks["steps"] > 1).any():
        return tuple(marks["step"].to_list())
    first, last = int(marks["step"][0]), int(marks["step"][-1])
    every = range(first, last + 1)
    return tuple(every) if len(every) == int(marks["steps"].sum()) else tuple(marks["step"].to_list())


def _list_layers(run: Run) -> tuple[int, ...]:
    if not run.has("layer"):
        return ()
    layer = run.events["layer"]
    return tuple(layer.filter(selection.is_change(layer)).unique().drop_nulls().sort().to_list())


def _find_extent(run: Run) -> tuple[int, int] | None:
    if not run.has("t"):
        return None
    end = pl.col("t") + (pl.col("dur").fill_null(0) if run.has("dur") else 0)
    first, last = run.events.select_seq(pl.col("t").min(), end.max().alias("end")).row(0)
    return (first, last) if first is not None and last > first else None
