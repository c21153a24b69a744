"""Fill missing layer, op, category and phase of events from their names and paths."""

from typing import Final

import polars as pl

from capture.classify.name_rules import (
    PRODUCT_CATEGORIES,
    find_layer,
    find_phase,
    has_model_position,
    infer_op_and_category,
    infer_scope_roles,
)
from capture.dense_lookup import find_positions

_TIMED_KINDS: Final = ("kernel", "span")


def fill_from_names(events: pl.DataFrame) -> pl.DataFrame:
    """Fill the missing columns of timed rows; reported values stay."""
    if not events["kind"].is_in(list(_TIMED_KINDS)).any():
        return events
    if "path" in events.columns:
        events = _fill_ops_from_scopes(events)
    events = _fill_columns(events, _infer_by_name(events))
    if "path" in events.columns:
        events = _fill_columns(events, _infer_by_path(events))
    return events


def _infer_by_name(events: pl.DataFrame) -> pl.DataFrame:
    """Infer layer, op and category of each distinct name of timed rows."""
    names = (
        events.lazy()
        .filter(pl.col("kind").is_in(list(_TIMED_KINDS)))
        .select(pl.col("name").unique())
        .collect()["name"]
        .cast(pl.String)
        .drop_nulls()
        .to_list()
    )
    roles = [infer_op_and_category(name) for name in names]
    return pl.DataFrame(
        {
            "name": pl.Series(names, dtype=pl.String).cast(pl.Categorical()),
            "layer": _find_layers(names),
            "op": pl.Series([op for op, _ in roles], dtype=pl.String).cast(pl.Categorical()),
            "category": pl.Series([c for _, c in roles], dtype=pl.String).cast(pl.Categorical()),
        }
    )


def _infer_by_path(events: pl.DataFrame) -> pl.DataFrame:
    """Infer layer and phase of each distinct path."""
    paths = events["path"].unique().cast(pl.String).drop_nulls().to_list()
    return pl.DataFrame(
        {
            "path": pl.Series(paths, dtype=pl.String).cast(pl.Categorical()),
            "layer": _find_layers(paths),
            "phase": pl.Series([find_phase(path) for path in paths], dtype=pl.String).cast(pl.Categorical()),
        }
    )


def _fill_ops_from_scopes(events: pl.DataFrame) -> pl.DataFrame:
    """Fill the op of kernels from their scopes, unless their names imply a position in the model."""
    kernel = events["kind"] == "kernel"
    paths = events["path"].filter(kernel).unique().drop_nulls()
    roles = infer_scope_roles(paths.cast(pl.String))
    if not roles:
        return events
    names = events["name"].filter(kernel).unique().drop_nulls()
    words = names.cast(pl.String).to_list()
    by_path = [roles.get(path) for path in paths.cast(pl.String)]
    path_index, name_index = find_positions(events["path"], paths), find_positions(events["name"], names)
    products_only = pl.Series([role and role.is_products_only for role in by_path], dtype=pl.Boolean)
    is_product = pl.Series(
        [infer_op_and_category(word)[1] in PRODUCT_CATEGORIES for word in words], dtype=pl.Boolean
    )
    is_product = is_product.gather(name_index)
    if "category" in events.columns:
        is_product |= events["category"].is_in(list(PRODUCT_CATEGORIES)).fill_null(value=False)
    is_open = pl.Series([not has_model_position(word) for word in words], dtype=pl.Boolean).gather(name_index)
    is_filled = kernel & is_open & (~products_only.gather(path_index) | is_product)
    ops = pl.Series([role and role.op for role in by_path], dtype=pl.String).cast(pl.Categorical())
    op = pl.select(pl.when(is_filled).then(ops.gather(path_index)).alias("op"))["op"]
    if "op" in events.columns:
        op = pl.select(pl.coalesce(events["op"], op).alias("op"))["op"]
    return events.with_columns(op) if op.null_count() < op.len() else events


def _find_layers(texts: list[str]) -> pl.Series:
    return pl.Series([find_layer(text) for text in texts], dtype=pl.Int32)


def _fill_columns(events: pl.DataFrame, guesses: pl.DataFrame) -> pl.DataFrame:
    """Fill the missing values of timed events from `guesses`, matched by its first column."""
    key, *columns = guesses.columns
    columns = [c for c in columns if guesses[c].null_count() < guesses.height]
    if not columns or guesses.is_empty():
        return events
    timed = events["kind"].is_in(list(_TIMED_KINDS))
    index = find_positions(events[key], guesses[key])
    guessed = {c: pl.when(timed).then(guesses[c].gather(index)) for c in columns}
    return events.with_columns(
        (pl.coalesce(c, guess) if c in events.columns else guess).alias(c) for c, guess in guessed.items()
    )
