"""The run-to-run noise floor: measured on identical runs, or saved with a baseline."""

from collections.abc import Sequence

import numpy as np

from capture.run import Run
from tracetui.analysis.frames.selection import list_lenses, list_phases
from tracetui.analysis.frames.statistics import MIN_SAMPLES, Floats
from tracetui.compare import params
from tracetui.compare.evidence import cpu_contention, repeat_test
from tracetui.compare.pairing.step_times import (
    StepTimes,
    align_steps,
    build_step_times,
    tabulate_per_launch,
    tabulate_per_step,
)
from tracetui.compare.run_sides import NoiseFloor, Sides, find_distinct
from tracetui.look import Look


def assume_floor(sides: Sides) -> NoiseFloor:
    """Return the floor of the sides; if none is known, that beside other programs if the load is unknown."""
    if sides.floor.is_known or not any(_is_of_unknown_load(run) for run in sides):
        return sides.floor
    return NoiseFloor(params.CONTENDED_RUN_SD)


def _is_of_unknown_load(run: Run) -> bool:
    return list_lenses(run)[:1] == ["host"] and cpu_contention.measure_other_load(run) is None


def measure_floor(runs: Sequence[Run]) -> NoiseFloor | None:
    """Measure the spread of identical runs in the phase that takes longest; None for fewer than two runs."""
    works = [build_step_times(runs[i], Look()) for i in find_distinct(runs)]
    if len(works) < 2:
        return None
    times = _tabulate_runs(works, _find_longest_phase(works))
    usable = [t for t in times if (~np.isnan(t)).any(axis=0).sum() >= min(MIN_SAMPLES, t.shape[1])]
    if len(usable) < 2:
        return None
    spread = repeat_test.estimate_run_spread(np.stack(usable, axis=1))
    return NoiseFloor(spread, len(usable) - 1, f"measured on {len(usable)} runs")


def _find_longest_phase(works: Sequence[StepTimes]) -> str | None:
    """Find the phase that takes longest in the first run; None if the runs have no phase in common."""
    shared = [p for p in list_phases(works[0].run) if all(p in list_phases(w.run) for w in works)]
    return max(shared, key=lambda p: int(works[0].dur[works[0].index_phase(p)].sum()), default=None)


def _tabulate_runs(works: Sequence[StepTimes], phase: str | None) -> list[Floats]:
    """Tabulate rows × steps of each run, contended steps as NaN; few steps: rows × 1, per launch."""
    names = [[n] for n in sorted(set.intersection(*(w.list_names(phase) for w in works)))]
    if not names:
        return []
    aligned = align_steps([w.run for w in works], phase)
    if aligned.height < MIN_SAMPLES:
        return [tabulate_per_launch(w, phase, names) for w in works]
    tables = []
    for w, side in zip(works, aligned.sides, strict=True):
        is_contended = cpu_contention.is_contended(w.run, side["step"])
        tables.append(np.where(is_contended, np.nan, tabulate_per_step(w, phase, side, names)))
    return tables
