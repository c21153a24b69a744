"""Which category the kernels of a name, or of an op, are of."""

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.packed import grouped


def categories(run: Run, column: str = "name") -> dict[str, str]:
    """Return value → category of the names, or ops, whose kernels are of one category alone."""
    if column == "category" or not run.has("category") or column not in _known(run).columns:
        return {}
    pairs = _known(run).select(column, "category").unique().drop_nulls()
    alone = pairs.filter(pl.col(column).is_unique()).sort(column)
    return dict(zip(alone[column].to_list(), alone["category"].to_list(), strict=True))


@select.once
def _known(run: Run) -> pl.DataFrame:
    """Return what is distinct of name, op and category among the kernels of a known category."""
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("category").is_not_null())
    columns = [c for c in ("name", "op", "category") if run.has(c)]
    return grouped(rows, columns).cast(pl.String)
