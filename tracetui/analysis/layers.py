"""Time per layer and op (or step), and layers unlike the others."""

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline
from tracetui.analysis.frames import line_fit
from tracetui.analysis.frames.selection import build_totals, select_timed, with_group
from tracetui.analysis.roofline import build_work_sums, with_compute_time, with_rates
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look


def compute_layer_table(run: Run, look: Look, column: str) -> pl.DataFrame:
    """Return one row per layer and op: time, time per token, rates, and deviation from the other layers.

    Kernels of no step are left out if the run has steps: they are of a pass that was recorded in part.
    """
    rows = with_group(run, select_timed(run, look), column).filter(pl.col("layer").is_not_null())
    if run.has("step"):
        is_in_step = pl.col("step").is_not_null()
        rows = rows.filter(is_in_step if column == "step" else is_in_step | ~is_in_step.any())
    rows = with_compute_time(rows, run)
    sums = rows.group_by("layer", column).agg(*build_totals(run), *build_work_sums(run))
    table = with_rates(sums.collect(), run)
    tokens = _sum_tokens(run, rows, column)
    per_token = pl.lit(None, pl.Int64)
    if tokens is not None:
        table = table.join(tokens, on=column, how="left", nulls_equal=True)
        per_token = (pl.col("total_ns") / pl.col("tokens")).round().cast(pl.Int64)
    table = table.with_columns(*_build_deviation_columns(column), per_token_ns=per_token)
    table = table.sort("layer", column, nulls_last=True)
    rates = [c for c in roofline.RATE_COLUMNS if c in table.columns]
    return table.select("layer", column, "count", "total_ns", "per_token_ns", *rates, "deviation", "odd")


def _sum_tokens(run: Run, rows: pl.LazyFrame, column: str) -> pl.DataFrame | None:
    """Return for each value of `column` the tokens of the steps of its rows; None if a step lacks tokens."""
    if not run.has("step") or not run.has("tokens"):
        return None
    step_tokens = build_step_facts(run).select("tokens", _n="step").lazy()
    pairs = rows.select(column, _n="step").unique().join(step_tokens, on="_n", how="left")
    tokens = pl.col("tokens")
    sums = pairs.group_by(column).agg(tokens.sum(), unknown=tokens.null_count()).collect()
    if sums.is_empty() or sums["unknown"].sum() or not sums["tokens"].min():
        return None
    return sums.drop("unknown")


def _build_deviation_columns(column: str) -> list[pl.Expr]:
    """Return `deviation` from the median of all layers in robust SDs, and `odd` beyond the outlier limits."""
    value = pl.col("total_ns")
    median = value.median().over(column)
    off = value - median
    spread = off.abs().median().over(column) * line_fit.MAD_TO_SD
    is_far = off.abs() > line_fit.OUTLIER_DEVIATIONS * spread
    is_far &= off.abs() > line_fit.OUTLIER_MIN_SHARE * median
    has_enough = pl.len().over(column) >= line_fit.MIN_POINTS
    deviation = pl.when(has_enough & (spread > 0)).then(off / spread)
    return [deviation.alias("deviation"), (is_far & has_enough).alias("odd")]
