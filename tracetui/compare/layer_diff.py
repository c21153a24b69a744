"""Compare two runs layer by layer: the change of each op, or of each step, in each layer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.statistics import MIN_SAMPLES
from tracetui.compare.pairing.step_times import align_steps
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class LayerDiff:
    """One row per layer and op (or pair of steps) that both runs have."""

    rows: pl.DataFrame  # layer, op or step, a_ns, b_ns, delta_ns, change_pct
    phase: str | None
    how: str  # what a cell is: `of the whole run`


def compare_layers(runs: Sequence[Run], look: Look, column: str) -> LayerDiff:
    """Compare the cells of the look's phase, else of decode, else of the first common phase.

    `column` is op or step.
    """
    phase = look.phase or _find_common_phase(runs)
    look = replace(look, phase=phase, per="total", focus=())
    aligned = align_steps(runs, phase, look.terms.align)
    sides = list(zip(runs, aligned.sides, strict=True))
    if column == "step":
        tables = [_sum_by_step(run, look, steps) for run, steps in sides]
        steps_of_a = aligned.sides[0].select(index=pl.int_range(pl.len()), step="step")
        both = _join_sides(tables, "index").join(steps_of_a, on="index").drop("index")
        how = f"per token; {aligned.height} {aligned.how} paired"
    elif aligned.height >= MIN_SAMPLES:
        both = _join_sides([_compute_step_medians(run, look, column, steps) for run, steps in sides], column)
        how = f"per token, the median of {aligned.height} {aligned.how}"
    else:
        rows = (_select_layer_rows(run, look, column).group_by("layer", column) for run in runs)
        both = _join_sides([groups.agg(y=pl.col("dur").sum()).collect() for groups in rows], column)
        how = "of the whole run"
    delta = pl.col("b_ns") - pl.col("a_ns")
    change = pl.when(pl.col("a_ns") > 0).then(100 * delta / pl.col("a_ns"))
    table = both.select("layer", column, "a_ns", "b_ns", delta_ns=delta, change_pct=change)
    return LayerDiff(table.sort("layer", column, nulls_last=True), phase, how)


def _find_common_phase(runs: Sequence[Run]) -> str | None:
    """Find the phase to compare: decode, else the first that all runs have; None without phases."""
    first, *others = (selection.list_phases(run) for run in runs)
    shared = [p for p in first if all(p in other for other in others)]
    return "decode" if "decode" in shared else shared[0] if shared else None


def _select_layer_rows(run: Run, look: Look, column: str) -> pl.LazyFrame:
    """Select timed rows with a layer; the column becomes text, because categories of two runs differ."""
    rows = selection.with_group(run, selection.select_timed(run, look), column)
    rows = rows.filter(pl.col("layer").is_not_null())
    return rows.with_columns(pl.col(column).cast(pl.Int64 if column == "step" else pl.String))


def _sum_by_step(run: Run, look: Look, steps: pl.DataFrame) -> pl.DataFrame:
    """Sum by layer and aligned step: layer, index, y (ns per token)."""
    aligned = steps.with_columns(index=pl.int_range(pl.len())).lazy()
    sums = _select_layer_rows(run, look, "step").group_by("layer", "step").agg(pl.col("dur").sum())
    joined = sums.join(aligned, on="step")
    return joined.select("layer", "index", y=pl.col("dur") / pl.col("tokens")).collect()


def _compute_step_medians(run: Run, look: Look, column: str, steps: pl.DataFrame) -> pl.DataFrame:
    """Compute layer, column, y: the median over the steps in ns per token, which outliers do not move."""
    sums = _select_layer_rows(run, look, column).group_by("step", "layer", column).agg(pl.col("dur").sum())
    per_token = sums.join(steps.lazy(), on="step").group_by("layer", column)
    return per_token.agg(y=(pl.col("dur") / pl.col("tokens")).median()).collect()


def _join_sides(tables: Sequence[pl.DataFrame], column: str) -> pl.DataFrame:
    a, b = (table.select("layer", column, pl.col("y").round().cast(pl.Int64)) for table in tables)
    both = a.join(b, on=("layer", column), nulls_equal=True, suffix="_b")
    return both.rename({"y": "a_ns", "y_b": "b_ns"})
