"""The time of each row of a run in each of its steps: what the samples of a comparison are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.coded import Coded
from tracetui.analysis.compare.at_once import of_each
from tracetui.analysis.compare.cells import Cells
from tracetui.analysis.ragged import Ints, stable_order
from tracetui.analysis.statistics import Floats
from tracetui.look import Look

Names = Sequence[Sequence[str]]  # of each row of a table: the names that it has in a run

NO_NAME: Final = "–"
_SPARSE: Final = 2  # times more cells than rows: those are found by sorting


@dataclass(frozen=True, eq=False)
class StepTimes:
    """A run, and its timed rows: what each is compared by (`key_of` it), where it belongs, and its time."""

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

    def of(self, phase: str | None) -> Ints | slice:
        """Return the places of the rows of a phase."""
        return self._phases.get(phase, slice(0))

    @cached_property
    def _phases(self) -> Mapping[str | None, Ints | slice]:
        """Return the places of the rows of each phase."""
        words, codes = self.phase.words.cast(pl.String).to_list(), self.phase.codes
        counts = np.bincount(codes, minlength=len(words))
        there = [(word, int(n)) for word, n in zip(words, counts, strict=True) if n]
        if len(there) < 2:
            return {word: slice(None) for word, _ in there}
        parts = np.split(stable_order(codes, len(words)), np.cumsum([n for _, n in there])[:-1])
        return {word: part for (word, _), part in zip(there, parts, strict=True)}


def phased(run: Run, look: Look) -> pl.LazyFrame:
    """Return timed rows with `name`, what they are compared by, and `phase`; where ranks are held apart also
    with `rank`. Each may be null.
    """
    rows = select.timed(run, replace(look, per="total", sort=None, limit=None))
    group = look.group or "name"
    name = pl.col(group) if run.has(group) else pl.lit(None, pl.String)
    phase = pl.col("phase") if run.has("phase") else pl.lit(None, pl.String)
    rows = rows.with_columns(name.alias("name"), phase.alias("phase"))
    if look.terms.ranks_apart:
        return select.with_rank(run, rows)
    return rows.with_columns(rank=pl.lit(None, pl.Int64))


def key_of(name: str, rank: int | None) -> str:
    """Return by what the samples of a row are found: its name, and its rank where ranks are held apart."""
    return name if rank is None else f"{name}\n{rank}"


def step_times(run: Run, look: Look) -> StepTimes:
    """Return the timed rows of a run, in one pass over its events."""
    rows = pl.DataFrame(schema=_NOTHING)
    if run.has("dur"):
        count = pl.col("count").fill_null(1) if run.has("count") else pl.lit(1)
        step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64)
        key = ["name", "rank"] if look.terms.ranks_apart else ["name"]
        rows = phased(run, look).select(*key, "phase", step.alias("step"), "dur", count=count).collect()
    name, phase, numbers = (Coded.of(rows[c]) for c in ("name", "phase", "step"))
    if "rank" in rows.columns:
        name = _of_ranks(name, Coded.of(rows["rank"]))
    dur, counts = (rows[c].cast(pl.Int64).to_numpy() for c in ("dur", "count"))
    return StepTimes(run, look, name, phase, numbers, dur, counts)


def _of_ranks(name: Coded, rank: Coded) -> Coded:
    """Return `key_of` each row."""
    codes, names, ranks = name.beside(rank)
    words = map(key_of, _labels(name).gather(names), rank.words.gather(ranks))
    return Coded(pl.Series([*words, None], dtype=pl.String), codes)


_NOTHING: Final = dict.fromkeys(("name", "phase", "step", "dur", "count"), pl.Int64)


def pair_cells(
    works: Sequence[StepTimes], phase: str | None, sides: Sequence[pl.DataFrame], names: Sequence[Names]
) -> Cells:
    """Return rows × aligned steps of both sides, in ns per token, as `per_step` does."""
    rows, steps = len(names[0]), sides[0].height

    def cells_of(side: int) -> tuple[Ints, Floats]:
        placed = _placed_in_steps(works[side], phase, sides[side], names[side])
        place, sums = _added_up(*placed, (rows, steps))
        return place, sums / sides[side]["tokens"].to_numpy()[place % max(1, steps)]

    (here, a), (there, b) = of_each(cells_of, range(2))
    cells = here
    if not np.array_equal(here, there):
        cells = np.union1d(here, there)
        a, b = (_spread(cells, place, values) for place, values in ((here, a), (there, b)))
    return Cells(*np.divmod(cells, max(1, steps)), a, b, steps, np.full(rows, steps))


def _added_up(row: Ints, step: Ints, dur: Ints, shape: tuple[int, int]) -> tuple[Ints, Floats]:
    """Return the places in a table of rows × steps in which there is time, in order, and how much it is."""
    rows, steps = shape
    if rows * steps <= _SPARSE * len(dur):
        sums = np.bincount(row * steps + step, weights=dur, minlength=rows * steps)
        there = np.asarray(np.flatnonzero(sums), dtype=np.int64)
        return there, np.asarray(sums[there], dtype=np.float64)
    from scipy.sparse import coo_array  # it adds up what is in one place, and asks for no order

    table = coo_array((dur, (row, step)), shape=shape).tocsr()
    table.sum_duplicates()
    before = np.repeat(np.arange(rows, dtype=np.int64) * steps, np.diff(table.indptr))
    return before + table.indices, table.data.astype(np.float64)


def _spread(cells: Ints, place: Ints, values: Floats) -> Floats:
    """Return the values in their places among the cells, 0 in all others."""
    out = np.zeros(len(cells))
    out[np.searchsorted(cells, place)] = values
    return out


def per_step(times: StepTimes, phase: str | None, picked: pl.DataFrame, names: Names) -> Floats:
    """Return rows × aligned steps, in ns per token; a row that is absent in a step took 0 there."""
    row, step, dur = _placed_in_steps(times, phase, picked, names)
    out = np.bincount(row * picked.height + step, weights=dur, minlength=len(names) * picked.height)
    return np.asarray(out.reshape(len(names), picked.height) / picked["tokens"].to_numpy())


def _placed_in_steps(
    times: StepTimes, phase: str | None, picked: pl.DataFrame, names: Names
) -> tuple[Ints, Ints, Ints]:
    """Return the row and the picked step of each timed row of a phase that has both, and its time."""
    of = times.of(phase)
    steps = times.step.placed(_among(times.step.words, picked["step"]), of)
    rows, dur = _rows(times, phase, names), times.dur[of]
    kept = (rows >= 0) & (steps >= 0)
    return (rows, steps, dur) if kept.all() else (rows[kept], steps[kept], dur[kept])


def _among(words: pl.Series, steps: pl.Series) -> Ints:
    """Return the place of each word among the steps; −1 for none."""
    places = steps.rename("word").to_frame().with_row_index("place")
    found = words.rename("word").to_frame().join(places, on="word", how="left", maintain_order="left")
    return np.asarray(found["place"].cast(pl.Int64).fill_null(-1).to_numpy(), dtype=np.int64)


def per_launch(times: StepTimes, phase: str | None, names: Names) -> Floats:
    """Return rows × 1: the mean of a launch, in ns; NaN where the source tells of none that took the time."""
    rows, of = _rows(times, phase, names), times.of(phase)
    kept = rows >= 0
    sums, counts = (
        np.bincount(rows[kept], weights=column[of][kept], minlength=len(names))
        for column in (times.dur, times.count)
    )
    there = np.bincount(rows[kept], minlength=len(names)) > 0
    mean = np.divide(sums, counts, out=np.full(len(names), np.nan), where=counts > 0)
    return np.where(there, mean, 0.0)[:, None]


def launches(times: StepTimes, phase: str | None, names: Names) -> Ints:
    """Return of each row how many launches it had."""
    rows = _rows(times, phase, names)
    kept = rows >= 0
    count = times.count[times.of(phase)][kept]
    return np.bincount(rows[kept], weights=count, minlength=len(names)).astype(np.int64)


def _rows(times: StepTimes, phase: str | None, names: Names) -> Ints:
    """Return of each timed row of a phase the number of its row in a table; −1 for none."""
    place = {name: i for i, group in enumerate(names) for name in group}
    return times.name.placed([place.get(label, -1) for label in _labels(times.name)], times.of(phase))


def _labels(names: Coded) -> pl.Series:
    return names.words.cast(pl.String).fill_null(NO_NAME)
