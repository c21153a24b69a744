"""Tables on their way from a scanner to polars, by the Arrow C data interface."""

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
