"""The bytes that a decode step moves in two runs, beside the time that it takes."""

import math
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.look import Look

CHANGED: Final = 0.1  # bytes that differ by less explain nothing
NEAR: Final = 0.75  # a change of time is explained when the bytes foretell so much of it, and not much more


@dataclass(frozen=True)
class Traffic:
    """A role, or a whole step: bytes and ns of the median step, before and after."""

    op: str | None
    bytes_a: float
    bytes_b: float
    ns_a: float
    ns_b: float

    @property
    def bytes_ratio(self) -> float:
        """Return the bytes after over those before."""
        return self.bytes_b / self.bytes_a

    @property
    def time_ratio(self) -> float:
        """Return the time after over that before."""
        return self.ns_b / self.ns_a

    @property
    def explained(self) -> float:
        """Return the share of the change of time, as a factor, that as many bytes at the same rate make."""
        return math.log(self.bytes_ratio) / math.log(self.time_ratio) if self.time_ratio != 1 else 0.0

    @property
    def explains(self) -> bool:
        """Tell whether the bytes explain the change of time."""
        return NEAR <= self.explained <= 1 / NEAR


def traffic(a: Run, b: Run, look: Look) -> list[Traffic]:
    """Return the whole step and every role whose bytes changed, the longest before first.

    Nothing where a run does not tell the bytes of its rows, or they are the same.
    """
    return [t for t in roles(a, b, look) if abs(t.bytes_ratio - 1) >= CHANGED]


def roles(a: Run, b: Run, look: Look) -> list[Traffic]:
    """Return the whole step first, then every role that tells its bytes in both runs."""
    left, right = _by_op(a, look), _by_op(b, look)
    if left is None or right is None:
        return []
    whole = Traffic(None, *_step(left, right, "bytes"), *_step(left, right, "dur"))
    both = (
        _middle(left).join(_middle(right), on="op", suffix="_b").sort("dur", "op", descending=[True, False])
    )
    rows = [Traffic(*row) for row in both.select("op", "bytes", "bytes_b", "dur", "dur_b").iter_rows()]
    return [t for t in (whole, *rows) if min(t.bytes_a, t.bytes_b, t.ns_a, t.ns_b) > 0]


def _by_op(run: Run, look: Look) -> pl.DataFrame | None:
    """Return bytes and ns of each role in each decode step; None where no row tells its bytes."""
    if not all(run.has(c) for c in ("bytes", "dur", "step", "op", "phase")):
        return None
    rows = select.timed(run, look).filter(
        (pl.col("phase") == "decode") & pl.col("bytes").is_not_null() & pl.col("step").is_not_null()
    )
    sums = rows.group_by("step", pl.col("op").cast(pl.String)).agg(pl.col("bytes", "dur").sum()).collect()
    return None if sums.is_empty() else sums


def _middle(sums: pl.DataFrame) -> pl.DataFrame:
    return sums.drop_nulls("op").group_by("op").agg(pl.col("bytes", "dur").median())


def _step(left: pl.DataFrame, right: pl.DataFrame, column: str) -> tuple[float, float]:
    """Return a column of the median step, of either side."""
    a, b = (float(s.group_by("step").agg(pl.col(column).sum())[column].median() or 0) for s in (left, right))  # type: ignore[arg-type]
    return a, b
