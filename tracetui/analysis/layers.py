"""Compare the layers of a run: time per layer and op (or step), and the layer unlike the others."""

import polars as pl

from capture.run import Run
from tracetui.analysis import laws, roofline, select, steps
from tracetui.look import Look

_DEVIATION = 1.4826  # of a normal distribution, in median absolute deviations


def layer_table(run: Run, look: Look, column: str) -> pl.DataFrame:
    """Return one row a layer and op: its time, also per token, its rates, and how far it is from the rest."""
    rows = select.with_group(run, select.timed(run, look), column).filter(pl.col("layer").is_not_null())
    if column == "step":
        rows = rows.filter(pl.col("step").is_not_null())
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    sums = rows.group_by("layer", column).agg(
        count.cast(pl.Int64).alias("count"), pl.col("dur").sum().alias("total_ns"), *roofline.work(run)
    )
    table = roofline.with_rates(sums.collect(), run)
    tokens = _tokens(run, rows, column)
    if tokens is None:
        table = table.with_columns(per_token_ns=pl.lit(None, pl.Int64))
    else:
        table = table.join(tokens, on=column, how="left", nulls_equal=True).with_columns(
            per_token_ns=(pl.col("total_ns") / pl.col("tokens")).round().cast(pl.Int64)
        )
    table = table.with_columns(_oddness(column)).sort("layer", column, nulls_last=True)
    rates = [c for c in roofline.COLUMNS if c in table.columns]
    return table.select("layer", column, "count", "total_ns", "per_token_ns", *rates, "deviation", "odd")


def _tokens(run: Run, rows: pl.LazyFrame, column: str) -> pl.DataFrame | None:
    """Return column → the tokens of the steps in which its rows stand; None where a step tells none."""
    if not run.has("step") or not run.has("tokens"):
        return None
    marks = steps.marks(run).select(pl.col("step").alias("_n"), "tokens").lazy()
    pairs = rows.select(pl.col(column), pl.col("step").alias("_n")).unique().join(marks, on="_n", how="left")
    sums = (
        pairs.group_by(column)
        .agg(pl.col("tokens").sum(), pl.col("tokens").null_count().alias("unknown"))
        .collect()
    )
    if sums.is_empty() or sums["unknown"].sum() or not sums["tokens"].min():
        return None
    return sums.drop("unknown")


def _oddness(column: str) -> list[pl.Expr]:
    """Return the distance from the median of all layers in robust deviations; odd beyond a bound."""
    value = pl.col("total_ns")
    middle = value.median().over(column)
    off = value - middle
    spread = off.abs().median().over(column) * _DEVIATION
    far = (off.abs() > laws.FAR * spread) & (off.abs() > laws.NEAR * middle)
    enough = pl.len().over(column) >= laws.FEWEST
    return [
        pl.when(enough & (spread > 0)).then(off / spread).alias("deviation"),
        (far & enough).alias("odd"),
    ]
