"""Frames filled from names: layer, op, category and phase, where the source left them open."""

from typing import Final

import polars as pl

from capture.classify.names import PRODUCTS, layer_of, phase_of, places_its_row, role_of, roles_of_scopes

_TIMED: Final = ("kernel", "span")


def fill_from_names(events: pl.DataFrame) -> pl.DataFrame:
    """Return the events with the open columns of timed rows filled; what the source stated stays."""
    if not events["kind"].is_in(list(_TIMED)).any():
        return events
    if "path" in events.columns:
        events = _fill_ops_from_scopes(events)
    events = _fill(events, _by_name(events))
    if "path" in events.columns:
        events = _fill(events, _by_path(events))
    return events


def _by_name(events: pl.DataFrame) -> pl.DataFrame:
    """Return name → layer, op, category for the distinct names of timed rows."""
    names = (
        events.lazy()
        .filter(pl.col("kind").is_in(list(_TIMED)))
        .select(pl.col("name").unique())
        .collect()["name"]
        .cast(pl.String)
        .drop_nulls()
        .to_list()
    )
    roles = [role_of(name) for name in names]
    return pl.DataFrame(
        {
            "name": pl.Series(names, dtype=pl.String).cast(pl.Categorical()),
            "layer": _layers(names),
            "op": pl.Series([op for op, _ in roles], dtype=pl.String).cast(pl.Categorical()),
            "category": pl.Series([c for _, c in roles], dtype=pl.String).cast(pl.Categorical()),
        }
    )


def _by_path(events: pl.DataFrame) -> pl.DataFrame:
    """Return path → layer, phase for the distinct paths."""
    paths = events["path"].unique().cast(pl.String).drop_nulls().to_list()
    return pl.DataFrame(
        {
            "path": pl.Series(paths, dtype=pl.String).cast(pl.Categorical()),
            "layer": _layers(paths),
            "phase": pl.Series([phase_of(path) for path in paths], dtype=pl.String).cast(pl.Categorical()),
        }
    )


def _fill_ops_from_scopes(events: pl.DataFrame) -> pl.DataFrame:
    """Return the events with the op that the scopes of kernels tell, where their names tell no place."""
    kernel = events["kind"] == "kernel"
    paths = events["path"].filter(kernel).unique().drop_nulls()
    roles = roles_of_scopes(paths.cast(pl.String))
    if not roles:
        return events
    said = [roles.get(path) for path in paths.cast(pl.String)]
    names = events["name"].filter(kernel).unique().drop_nulls()
    words = names.cast(pl.String).to_list()
    at, named = positions_of(events["path"], paths), positions_of(events["name"], names)
    of_products = pl.Series([role and role.of_products for role in said], dtype=pl.Boolean).gather(at)
    product = pl.Series([role_of(word)[1] in PRODUCTS for word in words], dtype=pl.Boolean).gather(named)
    if "category" in events.columns:
        product |= events["category"].is_in(list(PRODUCTS)).fill_null(value=False)
    silent = pl.Series([not places_its_row(word) for word in words], dtype=pl.Boolean).gather(named)
    ops = pl.Series([role and role.op for role in said], dtype=pl.String).cast(pl.Categorical()).gather(at)
    op = pl.select(pl.when(kernel & silent & (~of_products | product)).then(ops).alias("op"))["op"]
    if "op" in events.columns:
        op = pl.select(pl.coalesce(events["op"], op).alias("op"))["op"]
    return events.with_columns(op) if op.null_count() < op.len() else events


def _layers(texts: list[str]) -> pl.Series:
    return pl.Series([layer_of(text) for text in texts], dtype=pl.Int32)


def _fill(events: pl.DataFrame, guesses: pl.DataFrame) -> pl.DataFrame:
    """Fill what timed events leave open with the guesses, which are matched by their first column."""
    key, *columns = guesses.columns
    columns = [c for c in columns if guesses[c].null_count() < guesses.height]
    if not columns or guesses.is_empty():
        return events
    timed = events["kind"].is_in(list(_TIMED))
    at = positions_of(events[key], guesses[key])
    guessed = {c: pl.when(timed).then(guesses[c].gather(at)) for c in columns}
    return events.with_columns(
        (pl.coalesce(c, guess) if c in events.columns else guess).alias(c) for c, guess in guessed.items()
    )


def positions_of(column: pl.Series, distinct: pl.Series) -> pl.Series:
    """Return the position of each value of a categorical column among distinct ones; null where absent.

    Matched by the codes of the values: a join would hash every row.
    """
    codes, asked = distinct.to_physical(), column.to_physical()
    highest = max((top for top in (codes.max(), asked.max()) if isinstance(top, int)), default=-1)
    all_codes = pl.select(code=pl.int_range(highest + 1, dtype=pl.UInt32))
    at = codes.to_frame("code").with_row_index("at")
    positions = all_codes.join(at, on="code", how="left", maintain_order="left")["at"]
    return positions.gather(asked)
