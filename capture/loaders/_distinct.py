"""Columns that are computed of each distinct row once: tables repeat few words many times."""

from collections.abc import Sequence

import polars as pl

from capture.classify.positions import kinds_of


def of_distinct(rows: pl.DataFrame, columns: Sequence[str], told: pl.Expr) -> pl.Series:
    """Return the words that an expression makes of some columns of text, which nothing else may enter.

    Columns that the rows do not have are passed over; the expression must not ask for them.
    """
    varying = [
        rows[column] for column in columns if column in rows.columns and not _is_one_word(rows[column])
    ]
    if rows.is_empty() or not varying:
        words = _words(rows.head(1).select(told))
        return words.new_from_index(0, rows.height) if rows.height else words.clear()
    kind, samples = kinds_of(varying[0].cast(pl.Categorical()).to_physical())
    for column in varying[1:]:
        more, others = kinds_of(column.cast(pl.Categorical()).to_physical())
        kind, samples = kinds_of(kind.cast(pl.Int64) * others.len() + more)
    return _words(rows[samples].select(told)).gather(kind)


def fixed(**words: str) -> list[pl.Expr]:
    """Return a column of each name, in which every row has the same word."""
    return [pl.lit(word, dtype=pl.Categorical()).alias(column) for column, word in words.items()]


def _is_one_word(texts: pl.Series) -> bool:
    return texts.null_count() == 0 and texts.len() > 0 and bool((texts == texts[0]).all())


def _words(told: pl.DataFrame) -> pl.Series:
    return told.to_series().cast(pl.Categorical())
