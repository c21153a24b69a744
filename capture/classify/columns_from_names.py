"""Fill missing layer, op, category and phase of events from their names and paths."""

from collections.abc import Iterable

import polars as pl

from capture.classify.name_rules import (
    PRODUCT_CATEGORIES,
    find_layer,
    find_phase,
    has_model_position,
    infer_op_and_category,
    infer_scope_roles,
)
from capture.dense_lookup import fill_nulls, find_distinct, find_positions, keep_where, put_columns


def fill_from_names(events: pl.DataFrame) -> pl.DataFrame:
    """Fill the missing columns of timed rows; reported values stay."""
    kinds = events["kind"]
    is_timed = (kinds == "kernel") | (kinds == "span")
    if not is_timed.any():
        return events
    if "path" not in events.columns:
        return _fill_columns(events, _infer_by_name(events["name"].filter(is_timed)), is_timed)
    events = _fill_ops_from_scopes(events)
    events = _fill_columns(events, _infer_by_name(events["name"].filter(is_timed)), is_timed)
    return _fill_columns(events, _infer_by_path(events), is_timed)


def _infer_by_name(column: pl.Series) -> pl.DataFrame:
    """Infer layer, op and category of each distinct name of a column without null."""
    distinct = find_distinct(column)
    names = distinct.cast(pl.String).to_list()
    roles = [infer_op_and_category(name) for name in names]
    columns = {
        "layer": _find_layers(names),
        "op": as_categories(op for op, _ in roles),
        "category": as_categories(category for _, category in roles),
    }
    return pl.DataFrame({"name": distinct, **columns})


def _infer_by_path(events: pl.DataFrame) -> pl.DataFrame:
    """Infer layer and phase of each distinct path."""
    distinct = events["path"].unique().drop_nulls()
    paths = distinct.cast(pl.String).to_list()
    return pl.DataFrame(
        {"path": distinct, "layer": _find_layers(paths), "phase": as_categories(map(find_phase, paths))}
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
    are_products = [infer_op_and_category(word)[1] in PRODUCT_CATEGORIES for word in words]
    is_product = pl.Series(are_products, dtype=pl.Boolean)[name_index]
    if "category" in events.columns:
        is_product |= events["category"].is_in(list(PRODUCT_CATEGORIES)).fill_null(value=False)
    is_open = pl.Series([not has_model_position(word) for word in words], dtype=pl.Boolean)[name_index]
    is_filled = kernel & is_open & (~products_only[path_index] | is_product)
    ops = as_categories(role and role.op for role in by_path)
    op = pl.select(pl.when(is_filled).then(ops[path_index]).alias("op"))["op"]
    if "op" in events.columns:
        op = pl.select(pl.coalesce(events["op"], op).alias("op"))["op"]
    return events.with_columns(op) if op.null_count() < op.len() else events


def as_categories(words: Iterable[str | None]) -> pl.Series:
    """Return words as a categorical column."""
    return pl.Series(list(words), dtype=pl.String).cast(pl.Categorical())


def _find_layers(texts: list[str]) -> pl.Series:
    return pl.Series([find_layer(text) for text in texts], dtype=pl.Int32)


def _fill_columns(events: pl.DataFrame, guesses: pl.DataFrame, is_timed: pl.Series) -> pl.DataFrame:
    """Fill the missing values of timed events from `guesses`, matched by its first column."""
    key, *columns = guesses.columns
    columns = [c for c in columns if guesses[c].null_count() < guesses.height]
    if not columns or guesses.is_empty():
        return events
    index = find_positions(events[key], guesses[key])
    guessed = [keep_where(guesses[c][index], is_timed) for c in columns]
    reported = events.columns
    return put_columns(events, *(fill_nulls(events[c.name], c) if c.name in reported else c for c in guessed))
