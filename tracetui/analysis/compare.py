"""N runs in one matrix: a row a kernel, op or phase, a column a run, and how rows scale along an axis."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.kernels import kernel_table
from tracetui.look import Look

_NUMBERS: Final = re.compile(r"([A-Za-z_]*?)_?(\d+(?:\.\d+)?)(?![\d.]*[A-Za-z])")
_AXES: Final = ("context", "batch", "layers", "d_model", "tokens")
FEWEST: Final = 3  # points that a scaling law needs


@dataclass(frozen=True, eq=False)
class Matrix:
    """Totals of every row in every run, and the columns' names in run order."""

    rows: pl.DataFrame  # label, then one *_ns column a run
    columns: tuple[str, ...]


def matrix(runs: Sequence[Run], look: Look) -> Matrix:
    """Totals per row and run; a row that a run lacks is null there."""
    columns = tuple(f"{name}_ns" for name in _distinct([r.name for r in runs]))
    joined: pl.DataFrame | None = None
    for run, column in zip(runs, columns, strict=True):
        table = _totals(run, look).rename({"total_ns": column})
        joined = table if joined is None else joined.join(table, on="row", how="full", coalesce=True)
    if joined is None:
        return Matrix(pl.DataFrame(), ())
    largest = pl.max_horizontal(columns)
    return Matrix(joined.sort(largest, "row", descending=[True, False], nulls_last=True), columns)


def _totals(run: Run, look: Look) -> pl.DataFrame:
    if not run.has("dur"):
        return pl.DataFrame(schema={"row": pl.String, "total_ns": pl.Int64})
    table = kernel_table(run, look)
    return table.select(pl.col(look.group or "name").cast(pl.String).fill_null("–").alias("row"), "total_ns")


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that repeat get their number behind them."""
    often, seen = Counter(names), Counter[str]()
    out = []
    for name in names:
        seen[name] += 1
        out.append(f"{name} #{seen[name]}" if often[name] > 1 else name)
    return out


def normalised(found: Matrix, baseline: int) -> pl.DataFrame:
    """Every cell as a multiple of the same row in the baseline run."""
    base = pl.col(found.columns[baseline])
    return found.rows.select(
        "row", *((pl.col(c) / base).alias(c.removesuffix("_ns")) for c in found.columns)
    )  # fmt: skip


def axis(runs: Sequence[Run]) -> tuple[str, list[float]] | None:
    """The one number in which the runs differ: in their metadata, else in their names."""
    for key in _AXES:
        values = [r.meta.get(key) for r in runs]
        if all(isinstance(v, int | float) for v in values) and len(set(values)) == len(runs):
            return key, [float(v) for v in values if v is not None]
    found = [_NUMBERS.findall(r.name) for r in runs]
    if found and all(len(f) == len(found[0]) for f in found):
        for i, (label, _) in enumerate(found[0]):
            numbers = [float(f[i][1]) for f in found]
            if len(set(numbers)) == len(runs):
                return label or "number", numbers
    return None


def scaling(found: Matrix, x: Sequence[float]) -> pl.DataFrame:
    """row → exponent and R² of total ∝ x^exponent, where at least three runs have it."""
    log_x = np.log(np.asarray(x, float))
    rows = [_law(log_x, row) for row in found.rows.select(found.columns).iter_rows()]
    return pl.DataFrame(rows, schema={"exponent": pl.Float64, "r2": pl.Float64}, orient="row")


def _law(log_x: np.ndarray, totals: Sequence[int | None]) -> tuple[float | None, float | None]:
    y = np.array([np.nan if v is None or v <= 0 else np.log(v) for v in totals])
    known = ~np.isnan(y)
    if known.sum() < FEWEST:
        return None, None
    a, b = log_x[known] - log_x[known].mean(), y[known] - y[known].mean()
    slope = float(a @ b / (a @ a))
    spread = float(b @ b)
    return slope, 1 - float(((b - slope * a) ** 2).sum()) / spread if spread else 1.0
