"""Tables on their way from a scanner to polars, by the Arrow C data interface."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl


@dataclass(frozen=True)
class _Arrow:
    capsules: tuple[Any, Any]

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self.capsules


def table(capsules: tuple[Any, Any]) -> pl.DataFrame:
    """Return a table that a scanner gave away."""
    return pl.Series(_Arrow(capsules)).struct.unnest()


def columns(capsules: Iterable[tuple[Any, Any]], names: Iterable[str]) -> pl.DataFrame:
    """Return columns that a scanner gave away one by one, under their names."""
    named = zip(capsules, names, strict=True)
    return pl.DataFrame([pl.Series(_Arrow(column)).alias(name) for column, name in named])
