"""The C scanner, if built: events (`_events.c`), lines (`lines.h`), cells (`cells.h`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import polars as pl

from capture.extensions import Extension

_PART: Final = Extension(f"{__name__}._events", 10, "the slower readers give the same")

state = _PART.describe_state


def load_scanner() -> ModuleType | None:
    """Return the scanner, or None if it is missing, outdated or disabled."""
    return _PART.load()


@dataclass(frozen=True)
class _ArrowCapsules:
    capsules: tuple[Any, Any]

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self.capsules


def read_arrow_table(capsules: tuple[Any, Any]) -> pl.DataFrame:
    """Convert a table that the scanner exported to a frame."""
    return pl.Series(_ArrowCapsules(capsules)).struct.unnest()


def read_arrow_columns(capsules: Iterable[tuple[Any, Any]], names: Iterable[str]) -> pl.DataFrame:
    """Convert columns that the scanner exported one by one to a frame with these names."""
    named = zip(capsules, names, strict=True)
    return pl.DataFrame([pl.Series(_ArrowCapsules(column)).alias(name) for column, name in named])
