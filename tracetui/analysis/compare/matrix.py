"""Compare many runs in a matrix: a row a kernel, op or phase, a column a run, and how rows scale."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.compare import truncated_names
from tracetui.analysis.compare.against import renames
from tracetui.analysis.kernels import total_table
from tracetui.look import Look
from tracetui.units import ABSENT

_NUMBERS: Final = re.compile(r"([A-Za-z_]*?)_?(\d+(?:\.\d+)?)(?![\d.]*[A-Za-z])")
_AXES: Final = ("context", "batch", "layers", "d_model", "tokens")
FEWEST: Final = 3  # points that a scaling law needs


@dataclass(frozen=True, eq=False)
class Matrix:
    """One value of every row in every run, and the columns' names in run order."""

    rows: pl.DataFrame  # label, then one column a run
    columns: tuple[str, ...]
    completed: Mapping[str, str] = field(default_factory=dict)  # a name that was cut → the row it stands in
    renamed: Mapping[str, str] = field(default_factory=dict)  # a name → that of the same work in the baseline
    doubtful: int = 0  # names that were cut, stand in one run, and may be several others


@dataclass(frozen=True)
class Axis:
    """A number in which runs differ; those of one family differ in nothing else."""

    name: str
    values: tuple[float, ...]
    families: tuple[str, ...]


def matrix(runs: Sequence[Run], look: Look, names: Sequence[str] = ()) -> Matrix:
    """Return the totals of each row in each run; null where a run lacks the row.

    What a run calls otherwise than the baseline, else than the first run, stands in the row of that one.
    """
    tables = [_totals(run, look) for run in runs]
    by_name = look.group in (None, "name")
    sources = [table["row"].to_list() for table in tables] if by_name else []
    completed = truncated_names.completions(sources)
    base = min(look.terms.baseline or 0, len(runs) - 1)
    others = renames(runs, base, look) if by_name else [{} for _ in runs]
    whole = [
        table.with_columns(pl.col("row").replace(completed).replace(other))
        .group_by("row", maintain_order=True)
        .agg(pl.col("value").sum())
        for table, other in zip(tables, others, strict=True)
    ]
    found = joined(whole, names or [run.name for run in runs], "_ns")
    renamed = {name: row for other in others for name, row in other.items()}
    doubtful = truncated_names.doubtful(sources, completed)
    return replace(found, renamed=renamed, completed=completed, doubtful=doubtful)


def joined(tables: Sequence[pl.DataFrame], names: Sequence[str], unit: str) -> Matrix:
    """Return tables of row and value side by side; the unit ends the names of their columns."""
    columns = tuple(f"{name}{unit}" for name in _distinct(names))
    whole: pl.DataFrame | None = None
    for table, column in zip(tables, columns, strict=True):
        one = table.select("row", pl.col("value").alias(column))
        whole = one if whole is None else whole.join(one, on="row", how="full", coalesce=True)
    if whole is None:
        return Matrix(pl.DataFrame(), ())
    largest = pl.max_horizontal(columns)
    return Matrix(whole.sort(largest, "row", descending=[True, False], nulls_last=True), columns)


def _totals(run: Run, look: Look) -> pl.DataFrame:
    if not run.has("dur"):
        return pl.DataFrame(schema={"row": pl.String, "value": pl.Int64})
    label = pl.col(look.group or "name").cast(pl.String).fill_null(ABSENT)
    return total_table(run, look).select(label.alias("row"), value="total_ns")


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, with a number behind those that repeat."""
    often, seen = Counter(names), Counter[str]()
    out = []
    for name in names:
        seen[name] += 1
        out.append(f"{name} #{seen[name]}" if often[name] > 1 else name)
    return out


def normalised(table: Matrix, baseline: int, unit: str = "_ns") -> Matrix:
    """Return every cell as a multiple of the same row in the baseline run."""
    base = pl.col(table.columns[baseline])
    columns = tuple(f"{c.removesuffix(unit)}_times" for c in table.columns)
    multiples = ((pl.col(c) / base).alias(n) for c, n in zip(table.columns, columns, strict=True))
    return replace(table, rows=table.rows.select("row", *multiples), columns=columns)


def axis(runs: Sequence[Run]) -> Axis | None:
    """Return the number in which the runs differ: stated, else in their names; None where there is none."""
    return next((candidate for candidate in (*_stated(runs), *_named(runs)) if _fits(candidate)), None)


def _stated(runs: Sequence[Run]) -> list[Axis]:
    """Return the numbers of the metadata; a family is the rest of a run's name."""
    axes = []
    for key in _AXES:
        values = [r.meta.get(key) for r in runs]
        if all(isinstance(v, int | float) for v in values):
            numbers = tuple(float(v) for v in values if v is not None)
            same = tuple(_without(r.name, f"{v:g}") for r, v in zip(runs, numbers, strict=True))
            axes.append(Axis(key, numbers, same))
    return axes


def _named(runs: Sequence[Run]) -> list[Axis]:
    """Return the numbers that stand at the same place of all names, the last one first."""
    matches = [list(_NUMBERS.finditer(r.name)) for r in runs]
    count = min((len(m) for m in matches), default=0)
    axes = []
    for place in range(1, count + 1):
        at = [m[-place] for m in matches]
        if len({m[1] for m in at}) == 1:
            families = (r.name[: m.start(2)] + r.name[m.end(2) :] for r, m in zip(runs, at, strict=True))
            axes.append(
                Axis(at[0][1].strip("_") or "number", tuple(float(m[2]) for m in at), tuple(families))
            )
    return axes


def _without(name: str, number: str) -> str:
    return re.sub(rf"(?<![\d.]){re.escape(number)}(?![\d.])", "", name)


def _fits(candidate: Axis) -> bool:
    """Tell whether no value stands twice in a family, and some family has values enough."""
    pairs = list(zip(candidate.families, candidate.values, strict=True))
    sizes = Counter(candidate.families)
    return len(set(pairs)) == len(pairs) and max(sizes.values(), default=0) >= FEWEST


def scaling(table: Matrix, along: Axis) -> pl.DataFrame:
    """Return exponent and R² of value ∝ x^exponent for each row, one slope through all families."""
    rows = [_law(along, row) for row in table.rows.select(table.columns).iter_rows()]
    return pl.DataFrame(rows, schema={"exponent": pl.Float64, "r2": pl.Float64}, orient="row")


def _law(along: Axis, values: Sequence[float | None]) -> tuple[float | None, float | None]:
    points_by_family = sorted(
        (family, np.log(x), np.log(y))
        for family, x, y in zip(along.families, along.values, values, strict=True)
        if y is not None and y > 0 and x > 0
    )
    a, b = [], []
    for _, members in groupby(points_by_family, key=lambda point: point[0]):
        points = np.array([point[1:] for point in members])
        if len(points) > 1:
            a.append(points[:, 0] - points[:, 0].mean())
            b.append(points[:, 1] - points[:, 1].mean())
    x, y = (np.concatenate(side) if side else np.empty(0) for side in (a, b))
    if len(x) - len(a) < FEWEST - 1:
        return None, None
    slope = float(x @ y / (x @ x))
    spread = float(y @ y)
    return slope, 1 - float(((y - slope * x) ** 2).sum()) / spread if spread else 1.0
