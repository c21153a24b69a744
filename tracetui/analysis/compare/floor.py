"""How far runs of the same thing lie apart: measured on some of them, and kept with a baseline."""

from collections.abc import Sequence

import numpy as np

from capture.run import Run
from tracetui.analysis.compare import machine, repeats
from tracetui.analysis.compare.align import align
from tracetui.analysis.compare.recordings import distinct
from tracetui.analysis.compare.step_times import StepTimes, per_launch, per_step, step_times
from tracetui.analysis.select import phases
from tracetui.analysis.statistics import FEWEST, Floats
from tracetui.look import Floor, Look


def measured(runs: Sequence[Run]) -> Floor | None:
    """Return the spread of identical runs, of the phase that takes longest; None for fewer than two."""
    works = [step_times(runs[i], Look()) for i in distinct(runs)]
    if len(works) < 2:
        return None
    times = _times(works, _longest_phase(works))
    quiet = [t for t in times if (~np.isnan(t)).any(axis=0).sum() >= min(FEWEST, t.shape[1])]
    if len(quiet) < 2:
        return None
    return Floor(repeats.spread(np.stack(quiet, axis=1)), len(quiet) - 1, f"measured on {len(quiet)} runs")


def _longest_phase(works: Sequence[StepTimes]) -> str | None:
    """Return the phase of all runs that takes longest in the first; None where they have none in common."""
    named = [p for p in phases(works[0].run) if all(p in phases(w.run) for w in works)]
    return max(named, key=lambda p: int(works[0].dur[works[0].of(p)].sum()), default=None)


def _times(works: Sequence[StepTimes], phase: str | None) -> list[Floats]:
    """Return rows × steps of each run, without those in which others had the processor; a launch for few."""
    names = [[n] for n in sorted(set.intersection(*(w.names(phase) for w in works)))]
    if not names:
        return []
    aligned = align([w.run for w in works], phase)
    if aligned.height < FEWEST:
        return [per_launch(w, phase, names) for w in works]
    return [
        np.where(machine.busy(w.run, side["step"]), np.nan, per_step(w, phase, side, names))
        for w, side in zip(works, aligned.sides, strict=True)
    ]


def kept(run: Run) -> Floor | None:
    """Return the floor that a baseline was kept with; None where it was kept without repeats."""
    stated = run.meta.get("floor")
    if not isinstance(stated, dict):
        return None
    spread, runs = stated.get("spread"), stated.get("runs")
    if not isinstance(spread, float) or not isinstance(runs, int) or not 0 < spread < 10 or runs < 2:
        return None
    return Floor(spread, runs - 1, f"kept with {run.name}, measured on {runs} runs")
