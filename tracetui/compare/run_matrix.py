"""Compare many runs in a matrix: a column per run, verdicts against a baseline, and how rows scale."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis.frames.selection import common_value
from tracetui.analysis.kernels import compute_total_table
from tracetui.compare import params
from tracetui.compare.diff import compare_runs, sum_rows
from tracetui.compare.pairing import row_matching
from tracetui.look import Look
from tracetui.units import ABSENT

_NOT_RENAMED: Final = ("exact", "cut name", "new", "gone")  # matches of equal names, and rows without a match
_LABELS: Final = ("op", "layer", "category", "shape")
_LABELLED_NUMBER: Final = re.compile(r"([A-Za-z_]*?)_?(\d+(?:\.\d+)?)(?![\d.]*[A-Za-z])")
_AXIS_KEYS: Final = ("context", "batch", "layers", "d_model", "tokens")


@dataclass(frozen=True, eq=False)
class RunMatrix:
    """One value of every row in every run."""

    rows: pl.DataFrame  # row, then one column per run
    columns: tuple[str, ...]  # in the order of the runs
    completed_names: Mapping[str, str] = field(default_factory=dict)  # truncated name → its row
    renamed_rows: Mapping[str, str] = field(default_factory=dict)  # name → the same work in the baseline
    ambiguous_count: int = 0  # truncated names that several names could complete, so none does


@dataclass(frozen=True)
class RunAxis:
    """A number in which runs differ; runs of one family differ in nothing else."""

    name: str
    values: tuple[float, ...]
    families: tuple[str, ...]


def build_matrix(runs: Sequence[Run], look: Look, names: Sequence[str] = ()) -> RunMatrix:
    """Build the totals of each row in each run; null if a run lacks the row.

    A row that has another name in the baseline (by default the first run) is in the row of that name.
    """
    tables = [_sum_rows(run, look) for run in runs]
    is_by_name = look.group in (None, "name")
    names_by_run = [table["row"].to_list() for table in tables] if is_by_name else []
    completed = row_matching.complete_truncated(names_by_run)
    base = min(look.terms.baseline or 0, len(runs) - 1)
    renamed_by_run = _match_all_renamed(runs, base, look) if is_by_name else [{} for _ in runs]
    summed = [
        table.with_columns(pl.col("row").replace(completed).replace(renamed))
        .group_by("row", maintain_order=True)
        .agg(pl.col("value").sum())
        for table, renamed in zip(tables, renamed_by_run, strict=True)
    ]
    matrix = join_tables(summed, names or [run.name for run in runs], "_ns")
    return replace(
        matrix,
        completed_names=completed,
        renamed_rows={name: row for renamed in renamed_by_run for name, row in renamed.items()},
        ambiguous_count=row_matching.count_ambiguous(names_by_run, completed),
    )


def join_tables(tables: Sequence[pl.DataFrame], names: Sequence[str], unit: str) -> RunMatrix:
    """Join tables of row and value side by side; column names end in the unit."""
    columns = tuple(f"{name}{unit}" for name in _number_duplicates(names))
    joined: pl.DataFrame | None = None
    for table, column in zip(tables, columns, strict=True):
        values = table.select("row", pl.col("value").alias(column))
        joined = values if joined is None else joined.join(values, on="row", how="full", coalesce=True)
    if joined is None:
        return RunMatrix(pl.DataFrame(), ())
    largest = pl.max_horizontal(columns)
    return RunMatrix(joined.sort(largest, "row", descending=[True, False], nulls_last=True), columns)


def _sum_rows(run: Run, look: Look) -> pl.DataFrame:
    if not run.has("dur"):
        return pl.DataFrame(schema={"row": pl.String, "value": pl.Int64})
    label = pl.col(look.group or "name").cast(pl.String).fill_null(ABSENT)
    return compute_total_table(run, look).select(label.alias("row"), value="total_ns")


def _number_duplicates(names: Sequence[str]) -> list[str]:
    """Append a number to names that repeat: `run #2`."""
    totals, so_far = Counter(names), Counter[str]()
    numbered = []
    for name in names:
        so_far[name] += 1
        numbered.append(f"{name} #{so_far[name]}" if totals[name] > 1 else name)
    return numbered


def normalise_to_baseline(table: RunMatrix, baseline: int, unit: str = "_ns") -> RunMatrix:
    """Divide every cell by the same row of the baseline run."""
    base = pl.col(table.columns[baseline])
    columns = tuple(f"{c.removesuffix(unit)}_times" for c in table.columns)
    multiples = ((pl.col(c) / base).alias(n) for c, n in zip(table.columns, columns, strict=True))
    return replace(table, rows=table.rows.select("row", *multiples), columns=columns)


def find_axis(runs: Sequence[Run]) -> RunAxis | None:
    """Find a number in which the runs differ, in their metadata, else in their names; None if none."""
    axes = (*_find_metadata_axes(runs), *_find_name_axes(runs))
    return next((axis for axis in axes if _is_usable_axis(axis)), None)


def _find_metadata_axes(runs: Sequence[Run]) -> list[RunAxis]:
    """Find numbers in the metadata; a family is the rest of a run's name."""
    axes = []
    for key in _AXIS_KEYS:
        values = [r.meta.get(key) for r in runs]
        if all(isinstance(v, int | float) for v in values):
            numbers = tuple(float(v) for v in values if v is not None)
            families = tuple(_remove_number(r.name, f"{v:g}") for r, v in zip(runs, numbers, strict=True))
            axes.append(RunAxis(key, numbers, families))
    return axes


def _find_name_axes(runs: Sequence[Run]) -> list[RunAxis]:
    """Find numbers at the same position of all names, the last one first."""
    matches = [list(_LABELLED_NUMBER.finditer(r.name)) for r in runs]
    count = min((len(m) for m in matches), default=0)
    axes = []
    for position in range(1, count + 1):
        numbers = [m[-position] for m in matches]
        if len({m[1] for m in numbers}) == 1:
            families = (r.name[: m.start(2)] + r.name[m.end(2) :] for r, m in zip(runs, numbers, strict=True))
            label = numbers[0][1].strip("_") or "number"
            axes.append(RunAxis(label, tuple(float(m[2]) for m in numbers), tuple(families)))
    return axes


def _remove_number(name: str, number: str) -> str:
    return re.sub(rf"(?<![\d.]){re.escape(number)}(?![\d.])", "", name)


def _is_usable_axis(axis: RunAxis) -> bool:
    """True if no value is in a family twice, and some family has enough values."""
    pairs = list(zip(axis.families, axis.values, strict=True))
    sizes = Counter(axis.families)
    return len(set(pairs)) == len(pairs) and max(sizes.values(), default=0) >= params.MIN_POINTS


def fit_scaling(table: RunMatrix, axis: RunAxis) -> pl.DataFrame:
    """Fit value ∝ x^exponent to each row, one exponent for all families; return exponent and R²."""
    rows = [_fit_power_law(axis, row) for row in table.rows.select(table.columns).iter_rows()]
    return pl.DataFrame(rows, schema={"exponent": pl.Float64, "r2": pl.Float64}, orient="row")


def _fit_power_law(axis: RunAxis, values: Sequence[float | None]) -> tuple[float | None, float | None]:
    points = sorted(
        (family, np.log(x), np.log(y))
        for family, x, y in zip(axis.families, axis.values, values, strict=True)
        if y is not None and y > 0 and x > 0
    )
    log_x, log_y = [], []  # of each family, centred on its mean
    for _, members in groupby(points, key=lambda point: point[0]):
        family = np.array([point[1:] for point in members])
        if len(family) > 1:
            log_x.append(family[:, 0] - family[:, 0].mean())
            log_y.append(family[:, 1] - family[:, 1].mean())
    x, y = (np.concatenate(side) if side else np.empty(0) for side in (log_x, log_y))
    if len(x) - len(log_x) < params.MIN_POINTS - 1:
        return None, None
    slope = float(x @ y / (x @ x))
    spread = float(y @ y)
    return slope, 1 - float(((y - slope * x) ** 2).sum()) / spread if spread else 1.0


def match_renamed(base: Run, run: Run, look: Look) -> dict[str, str]:
    """Map names of a run to different names of the same work in the base, as a diff matches them."""
    left, right = (_sum_rows_by_name(each, look) for each in (base, run))
    matches = row_matching.match_rows(left, right)
    pairs = [m for m in matches if m.how not in _NOT_RENAMED and len(m.a) == len(m.b) == 1]
    names = ((str(right["name"][m.b[0]]), str(left["name"][m.a[0]])) for m in pairs)
    return {name: base_name for name, base_name in names if name != base_name}


def _match_all_renamed(runs: Sequence[Run], base: int, look: Look) -> list[dict[str, str]]:
    return [{} if i == base else match_renamed(runs[base], run, look) for i, run in enumerate(runs)]


def _sum_rows_by_name(run: Run, look: Look) -> pl.DataFrame:
    """Sum rows by name over all phases; a label is kept if all phases agree on it."""
    groups = sum_rows(run, look).group_by("name", maintain_order=True)
    return groups.agg(*map(common_value, _LABELS), pl.col("total_ns").sum())


def judge_against(pair: Sequence[Run], look: Look) -> pl.DataFrame:
    """Judge each row of the first run as a diff does, in the phase where it takes longest: row, verdict."""
    rows = compare_runs(pair, look).rows.drop_nulls("name_a")
    size = pl.col("total_a_ns") + pl.col("total_b_ns")
    longest = rows.sort(size, descending=True, maintain_order=True).unique("name_a", maintain_order=True)
    return longest.select(row="name_a", verdict="verdict")


def compute_geometric_mean(base: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    """Compute the geometric mean ratio of the rows that both have; None if there are none."""
    pairs = ((x, y) for x, y in zip(base, other, strict=True) if x is not None and y is not None)
    logs = [math.log(y / x) for x, y in pairs if x > 0 and y > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None
