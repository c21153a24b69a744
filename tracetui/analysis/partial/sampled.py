"""What was sampled in many files: the rows of each, on the tracks of its rank."""

from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.partial import standin
from tracetui.analysis.partial.algebra import Partial, Shape

KEY: Final = ("name", "unit", "track")
SHAPES: Final = {"rows": Shape(KEY)}


def rows_of(table: pl.DataFrame, run: Run) -> dict[str, pl.DataFrame]:
    """Return a table of samples as what its run contributes."""
    plain = [standin.plain(run, c) if c in table.columns else pl.lit(None, pl.String).alias(c) for c in KEY]
    return {"rows": table.with_columns(plain)}


def table_of(whole: Partial) -> pl.DataFrame:
    """Return the table of all files, with the columns that any of them has."""
    rows = whole.frames["rows"]
    known = [c for c in KEY if c in ("name", "track") or rows[c].count()]
    return rows.select(*known, pl.exclude(KEY))
