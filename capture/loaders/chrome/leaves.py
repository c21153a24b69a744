"""Which host operations stand for the work of a trace that shows no device."""

from typing import Final

import polars as pl

from capture.classify.cpu_ops import part_of, working_ops
from capture.loaders.chrome.tables import OPERATORS, Complete

_FRAMES: Final = ("user_annotation", "Trace", "python_function")


def working_rows(complete: Complete) -> pl.Series:
    """Return which rows are operations that work; the innermost spans where no operator is recorded."""
    labels = complete.labels.with_columns(pl.col("cat").fill_null(""))
    span = pl.col("kind") == "span"
    op = labels.select(op=pl.col("cat").is_in(OPERATORS) & span)["op"]
    if op.any():
        parts = [part_of(name) for name in labels["name"]]
    else:
        op = labels.select(op=~pl.col("cat").is_in(_FRAMES) & span)["op"]
        parts = ["wrapper"] * labels.height
    label = complete.rows["label"]
    rows = complete.rows.select("t", "dur", place=complete.column("place"), row=pl.int_range(pl.len()))
    part = pl.Series(parts, dtype=pl.String).cast(pl.Categorical()).gather(label)
    working = working_ops(rows.with_columns(part=part).filter(op.gather(label)))
    return pl.select(pl.int_range(complete.rows.height).is_in(working["row"].implode()))[:, 0]
