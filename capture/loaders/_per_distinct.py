"""Evaluate an expression once per distinct row: tables repeat few texts many times."""

from collections.abc import Sequence

import polars as pl

from capture.dense_lookup import encode_dense


def evaluate_per_distinct(rows: pl.DataFrame, columns: Sequence[str], expression: pl.Expr) -> pl.Series:
    """Evaluate an expression of text columns once per distinct combination, as a categorical series.

    `columns` are all columns that the expression reads; those missing from `rows` are ignored.
    """
    expression = expression.cast(pl.Categorical())
    series = [rows[column] for column in columns if column in rows.columns]
    varying_columns = [texts for texts in series if not _is_constant(texts)]
    if rows.is_empty() or not varying_columns:
        result = rows.head(1).select(expression).to_series()
        return result.new_from_index(0, rows.height) if rows.height else result.clear()
    codes, sample_rows = encode_dense(varying_columns[0].cast(pl.Categorical()).to_physical())
    for column in varying_columns[1:]:
        more_codes, more_samples = encode_dense(column.cast(pl.Categorical()).to_physical())
        codes, sample_rows = encode_dense(codes.cast(pl.Int64) * more_samples.len() + more_codes)
    return rows[sample_rows].select(expression).to_series().gather(codes)


def build_constant_columns(**values: str) -> list[pl.Expr]:
    """Build one categorical literal per name."""
    return [pl.lit(value, dtype=pl.Categorical()).alias(column) for column, value in values.items()]


def _is_constant(texts: pl.Series) -> bool:
    return texts.null_count() == 0 and texts.len() > 0 and bool((texts == texts[0]).all())
