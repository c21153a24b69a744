"""The time of each row of a run in each of its steps: what the samples of a comparison are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.statistics import Floats
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class StepTimes:
    """A run, and the time that each of its rows took in each step."""

    run: Run
    look: Look
    sums: pl.DataFrame  # name (`key_of` the row), phase, step, dur, count


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
    """Return the time of every row in every step, in one pass over the events."""
    if not run.has("dur"):
        return StepTimes(run, look, pl.DataFrame(schema=_SUMS))
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    step = pl.col("step") if run.has("step") else pl.lit(None, pl.Int64)
    each = ("name", "rank", "phase", step.alias("step"))
    sums = phased(run, look).group_by(each).agg(pl.col("dur").sum(), count=count)
    name = pl.col("name").cast(pl.String).fill_null("–")
    label = pl.when(pl.col("rank").is_null()).then(name).otherwise(pl.format("{}\n{}", name, "rank"))
    label = label.alias("name")
    return StepTimes(
        run, look, sums.with_columns(label, pl.col("phase").cast(pl.String)).select(*_SUMS).collect()
    )


_SUMS: Final = {
    "name": pl.String,
    "phase": pl.String,
    "step": pl.Int64,
    "dur": pl.Int64,
    "count": pl.Int64,
}


def per_step(
    times: StepTimes, phase: str | None, picked: pl.DataFrame, names: Sequence[Sequence[str]]
) -> Floats:
    """Return rows × aligned steps, in ns per token; a row that is absent in a step took 0 there."""
    columns = picked.select("step").with_row_index("column")
    kept = _placed(times, phase, names).join(columns, on="step")
    place = kept["row"].to_numpy() * picked.height + kept["column"].to_numpy()
    out = np.bincount(place, weights=kept["dur"].to_numpy(), minlength=len(names) * picked.height)
    return np.asarray(out.reshape(len(names), picked.height) / picked["tokens"].to_numpy())


def per_launch(times: StepTimes, phase: str | None, names: Sequence[Sequence[str]]) -> Floats:
    """Return rows × 1: the mean of a launch, in ns."""
    sums = _placed(times, phase, names).group_by("row").agg(pl.col("dur", "count").sum())
    out = np.zeros((len(names), 1))
    out[sums["row"].to_numpy(), 0] = (sums["dur"] / sums["count"]).to_numpy()
    return out


def launches(times: StepTimes, phase: str | None, names: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Return of each row how many launches it had."""
    sums = _placed(times, phase, names).group_by("row").agg(pl.col("count").sum())
    out = np.zeros(len(names), dtype=np.int64)
    out[sums["row"].to_numpy()] = sums["count"].to_numpy()
    return out


def _placed(times: StepTimes, phase: str | None, names: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Return the sums of a phase, each with the number of the row that it belongs to."""
    sums = times.sums.filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    return sums.with_columns(row=_places(sums["name"], names)).drop_nulls("row")


def _places(labels: pl.Series, names: Sequence[Sequence[str]]) -> pl.Series:
    place = {name: i for i, group in enumerate(names) for name in group}
    return labels.replace_strict(place, default=None, return_dtype=pl.Int64)
