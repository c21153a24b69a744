"""Compare two runs layer by layer: how each cell of layer by op, or by step, changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.compare.align import align
from tracetui.look import Look

FEWEST: Final = 6  # pairs of steps from which their median is worth more than the sum

_SIDES: Final = ("a_ns", "b_ns")


@dataclass(frozen=True, eq=False)
class LayerDiff:
    """One row for each layer and op (or pair of steps) that both runs have."""

    rows: pl.DataFrame  # layer, op or step, a_ns, b_ns, delta_ns, change_pct
    phase: str | None
    how: str  # what a cell is made of


def layer_diff(runs: Sequence[Run], look: Look, column: str) -> LayerDiff:
    """Return the cells of one phase: the one asked for, else decode where both runs have it."""
    phase = look.phase or _common(runs)
    look = replace(look, phase=phase, per="total", focus=())
    aligned = align(runs, phase, look.terms.align)
    if column == "step":
        tables = [_by_step(run, look, steps) for run, steps in zip(runs, aligned.sides, strict=True)]
        first = aligned.sides[0].select(place=pl.int_range(pl.len()), step="step")
        both = _joined(tables, "place").join(first, on="place").drop("place")
        how = f"per token; {aligned.height} {aligned.how} paired"
    elif aligned.height >= FEWEST:
        tables = [_medians(run, look, column, steps) for run, steps in zip(runs, aligned.sides, strict=True)]
        both, how = _joined(tables, column), f"per token, the median of {aligned.height} {aligned.how}"
    else:
        both, how = _joined([_totals(run, look, column) for run in runs], column), "of the whole run"
    return LayerDiff(_changes(both, column), phase, how)


def _common(runs: Sequence[Run]) -> str | None:
    """Return the phase to compare: decode, else the first that all runs have; None without phases."""
    first, *others = (select.phases(run) for run in runs)
    shared = [p for p in first if all(p in other for other in others)]
    return "decode" if "decode" in shared else shared[0] if shared else None


def _cells(run: Run, look: Look, column: str) -> pl.LazyFrame:
    """Return timed rows of known layers, with the column as text: categoricals of two runs differ."""
    rows = select.with_group(run, select.timed(run, look), column).filter(pl.col("layer").is_not_null())
    return rows.with_columns(pl.col(column).cast(pl.Int64 if column == "step" else pl.String))


def _by_step(run: Run, look: Look, steps: pl.DataFrame) -> pl.DataFrame:
    """Return layer, place, y: ns per token in each of the steps, by the place in their alignment."""
    places = steps.with_columns(place=pl.int_range(pl.len())).lazy()
    sums = (
        _cells(run, look, "step").group_by("layer", "step").agg(pl.col("dur").sum()).join(places, on="step")
    )
    return sums.select("layer", "place", y=pl.col("dur") / pl.col("tokens")).collect()


def _medians(run: Run, look: Look, column: str, steps: pl.DataFrame) -> pl.DataFrame:
    """Return layer, column, y: the median over the steps, which no single spike can move."""
    each = ("step", "layer", column)
    sums = _cells(run, look, column).group_by(each).agg(pl.col("dur").sum()).join(steps.lazy(), on="step")
    return sums.group_by("layer", column).agg(y=(pl.col("dur") / pl.col("tokens")).median()).collect()


def _totals(run: Run, look: Look, column: str) -> pl.DataFrame:
    return _cells(run, look, column).group_by("layer", column).agg(y=pl.col("dur").sum()).collect()


def _joined(tables: Sequence[pl.DataFrame], column: str) -> pl.DataFrame:
    sides = [
        t.select("layer", column, pl.col("y").round().cast(pl.Int64).alias(side))
        for t, side in zip(tables, _SIDES, strict=True)
    ]
    return sides[0].join(sides[1], on=("layer", column), nulls_equal=True)


def _changes(both: pl.DataFrame, column: str) -> pl.DataFrame:
    delta = pl.col("b_ns") - pl.col("a_ns")
    change = pl.when(pl.col("a_ns") > 0).then(100 * delta / pl.col("a_ns"))
    rows = both.with_columns(delta_ns=delta, change_pct=change)
    return rows.select("layer", column, *_SIDES, "delta_ns", "change_pct").sort(
        "layer", column, nulls_last=True
    )
