"""The time of each row of a run in each of its steps: what the samples of a comparison are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.coded import Coded
from tracetui.analysis.compare.cells import Cells
from tracetui.analysis.ragged import Ints
from tracetui.analysis.statistics import Floats
from tracetui.look import Look

Names = Sequence[Sequence[str]]  # of each row of a table: the names that it has in a run

NO_NAME: Final = "–"


@dataclass(frozen=True, eq=False)
class StepTimes:
    """A run, and its timed rows: what each is compared by, where it belongs, and its time."""

    run: Run
    look: Look
    name: Coded
    phase: Coded
    step: Coded
    dur: Ints
    count: Ints  # launches

    def names(self, phase: str | None) -> set[str]:
        """Return the names of the rows of a phase."""
        codes = np.unique(self.name.codes[self.of(phase)])
        return {str(n) for n in _labels(self.name).gather(codes)}

    def of(self, phase: str | None) -> NDArray[np.bool_]:
        """Tell which rows are of a phase."""
        return self.phase.placed([word == phase for word in self.phase.words.cast(pl.String)]) > 0


def phased(run: Run, look: Look) -> pl.LazyFrame:
    """Return timed rows with `name`, what they are compared by, and `phase`; both may be null."""
    rows = select.timed(run, replace(look, per="total", sort=None, limit=None))
    group = look.group or "name"
    name = pl.col(group) if run.has(group) else pl.lit(None, pl.String)
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.String)
    return rows.with_columns(name.alias("name"), phase.alias("phase"))


def step_times(run: Run, look: Look) -> StepTimes:
    """Return the timed rows of a run, in one pass over its events."""
    rows = pl.DataFrame(schema=_NOTHING)
    if run.has("dur"):
        count = pl.col("count").fill_null(1) if run.has("count") else pl.lit(1)
        step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64)
        rows = phased(run, look).select("name", "phase", step.alias("step"), "dur", count=count).collect()
    name, phase, numbers = (Coded.of(rows[c]) for c in ("name", "phase", "step"))
    dur, counts = (rows[c].cast(pl.Int64).to_numpy() for c in ("dur", "count"))
    return StepTimes(run, look, name, phase, numbers, dur, counts)


_NOTHING: Final = dict.fromkeys(("name", "phase", "step", "dur", "count"), pl.Int64)


def pair_cells(
    works: Sequence[StepTimes], phase: str | None, sides: Sequence[pl.DataFrame], names: Sequence[Names]
) -> Cells:
    """Return rows × aligned steps of both sides, in ns per token, as `per_step` does."""
    rows, steps = len(names[0]), sides[0].height
    found = []
    for work, side, own in zip(works, sides, names, strict=True):
        place, dur = _placed_in_steps(work, phase, side, own)
        order = np.argsort(place)
        place, dur = place[order], dur[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        place, sums = place[first], np.add.reduceat(dur, first) if len(first) else dur
        found.append((place, sums / side["tokens"].to_numpy()[place % max(1, steps)]))
    (here, a), (there, b) = found
    cells = here
    if not np.array_equal(here, there):
        cells = np.union1d(here, there)
        a, b = (_spread(cells, place, values) for place, values in ((here, a), (there, b)))
    return Cells(*np.divmod(cells, max(1, steps)), a, b, steps, np.full(rows, steps))


def _spread(cells: Ints, place: Ints, values: Floats) -> Floats:
    """Return the values in their places among the cells, 0 in all others."""
    out = np.zeros(len(cells))
    out[np.searchsorted(cells, place)] = values
    return out


def per_step(times: StepTimes, phase: str | None, picked: pl.DataFrame, names: Names) -> Floats:
    """Return rows × aligned steps, in ns per token; a row that is absent in a step took 0 there."""
    place, dur = _placed_in_steps(times, phase, picked, names)
    out = np.bincount(place, weights=dur, minlength=len(names) * picked.height)
    return np.asarray(out.reshape(len(names), picked.height) / picked["tokens"].to_numpy())


def _placed_in_steps(
    times: StepTimes, phase: str | None, picked: pl.DataFrame, names: Names
) -> tuple[Ints, Ints]:
    """Return the place of each timed row in a table of rows × picked steps, and its time."""
    column = {step: i for i, step in enumerate(picked["step"])}
    columns = times.step.placed([column.get(step, -1) for step in times.step.words])
    rows = _rows(times, phase, names)
    kept = (rows >= 0) & (columns >= 0)
    return rows[kept] * picked.height + columns[kept], times.dur[kept]


def per_launch(times: StepTimes, phase: str | None, names: Names) -> Floats:
    """Return rows × 1: the mean of a launch, in ns."""
    rows = _rows(times, phase, names)
    kept = rows >= 0
    sums, counts = (
        np.bincount(rows[kept], weights=column[kept], minlength=len(names))
        for column in (times.dur, times.count)
    )
    there = np.bincount(rows[kept], minlength=len(names)) > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(there, sums / counts, 0.0)[:, None]


def launches(times: StepTimes, phase: str | None, names: Names) -> Ints:
    """Return of each row how many launches it had."""
    rows = _rows(times, phase, names)
    kept = rows >= 0
    return np.bincount(rows[kept], weights=times.count[kept], minlength=len(names)).astype(np.int64)


def _rows(times: StepTimes, phase: str | None, names: Names) -> Ints:
    """Return of each timed row the number of the row of a table that it belongs to; −1 for none."""
    place = {name: i for i, group in enumerate(names) for name in group}
    rows = times.name.placed([place.get(label, -1) for label in _labels(times.name)])
    return np.where(times.of(phase), rows, -1)


def _labels(names: Coded) -> pl.Series:
    return names.words.cast(pl.String).fill_null(NO_NAME)
