"""The points of a roofline: how much work a byte is used for, and how fast that work is done."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import roofline, select
from tracetui.look import Look

_KNOWN: Final = (pl.col("flops") > 0).fill_null(False) & (pl.col("bytes") > 0).fill_null(False)
_RATES: Final = {
    "intensity": pl.Float64, "gflop_per_s": pl.Float64, "gb_per_s": pl.Float64, "roof_share": pl.Float64,
    "bound": pl.String,
}  # fmt: skip


def points(run: Run, look: Look, group: str) -> pl.DataFrame:
    """Return one row a group, largest total first: its rates, its operations per byte, and the part of its
    time of which the work is known. Rates and intensity are of that part, and null where there is none.
    """
    rows = select.with_group(run, select.timed(run, look), group)
    category = pl.col("category").cast(pl.String) if run.has("category") else pl.lit(None, pl.String)
    rows = rows.with_columns(kind_of_work=category, launches=select.standing_for(run))
    sums = rows.group_by(group).agg(
        pl.col("launches").sum().cast(pl.Int64),
        pl.col("dur").sum().alias("all_ns"),
        pl.col("launches").filter(_KNOWN).sum().cast(pl.Int64).alias("count"),
        pl.col("dur").filter(_KNOWN).sum().alias("total_ns"),
        pl.col(*roofline.WORK).filter(_KNOWN).sum(),
    )
    table = sums.collect().join(_kinds(rows, group), on=group, how="left", nulls_equal=True)
    table = table.with_columns(intensity=pl.when(pl.col("bytes") > 0).then(pl.col("flops") / pl.col("bytes")))
    rated = roofline.with_rates(table, run)
    rates = [pl.col(c) if c in rated.columns else pl.lit(None, t).alias(c) for c, t in _RATES.items()]
    whole = pl.col("all_ns").sum()
    return rated.select(
        pl.col(group).cast(pl.String) if rated.schema[group] == pl.Categorical else group,
        *([] if group == "category" else [pl.col("kind_of_work").alias("category")]),
        *rates,
        share=pl.when(whole > 0).then(pl.col("all_ns") / whole),
        total_ns="all_ns",
        count="launches",
        known_share=pl.when(pl.col("all_ns") > 0).then(pl.col("total_ns") / pl.col("all_ns")),
    ).sort("total_ns", group, descending=[True, False], nulls_last=True)  # fmt: skip


def _kinds(rows: pl.LazyFrame, group: str) -> pl.DataFrame:
    """Return group → the category of most of its launches."""
    known = rows.filter(pl.col("kind_of_work").is_not_null()).group_by(group, "kind_of_work")
    often = known.agg(pl.col("launches").sum()).collect()
    often = often.sort("launches", "kind_of_work", descending=[True, False])
    return often.group_by(group, maintain_order=True).agg(pl.col("kind_of_work").first())
