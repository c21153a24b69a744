"""Sums of rows that stand together: what a sum that runs over all rows adds from the first to the last."""

import polars as pl


def sums(values: pl.Series, begins: pl.Series) -> pl.Series:
    """Return the sum of each stretch of values; `begins` are the rows in which they begin, the first is 0."""
    return grown(values.fill_null(0).cum_sum(), begins)


def grown(running: pl.Series, begins: pl.Series) -> pl.Series:
    """Return by how much what runs over all rows, from 0 before the first, grows in each stretch."""
    until = running.gather(begins.shift(-1, fill_value=running.len()) - 1)
    return until - until.shift(1, fill_value=0)
