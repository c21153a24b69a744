"""Which category the kernels of a name are of."""

import polars as pl

from capture.run import Run
from tracetui.analysis import select


@select.once
def categories(run: Run) -> dict[str, str]:
    """Return name → category of the kernels whose name stands for one category alone."""
    if not run.has("category"):
        return {}
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("category").is_not_null())
    pairs = rows.select("name", "category").unique().collect().cast(pl.String)
    alone = pairs.filter(pl.col("name").is_unique()).drop_nulls()
    return dict(zip(alone["name"].to_list(), alone["category"].to_list(), strict=True))
