"""Many runs against one of them: rows that are the same work under another name, verdicts, ratios."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.compare.diff import diff, side_rows
from tracetui.analysis.compare.match import match
from tracetui.look import Look

ELSEWHERE: Final = ("exact", "cut name", "new", "gone")  # matched by their names already, or not at all
_LABELS: Final = ("op", "layer", "category", "shape")


def renamed(base: Run, run: Run, look: Look) -> dict[str, str]:
    """Return the names of a run that stand for a row of another name in the base, as a diff matches them."""
    left, right = (_rows(each, look) for each in (base, run))
    pairs = [m for m in match(left, right) if m.how not in ELSEWHERE and len(m.a) == len(m.b) == 1]
    names = ((str(right["name"][m.b[0]]), str(left["name"][m.a[0]])) for m in pairs)
    return {theirs: ours for theirs, ours in names if theirs != ours}


def _rows(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a name, over all phases; a label stands where all phases agree on it."""
    agreed = (pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()).alias(c) for c in _LABELS)
    table = side_rows(run, look).group_by("name", maintain_order=True)
    return table.agg(*agreed, pl.col("total_ns").sum())


def verdicts_against(base: Run, run: Run, look: Look) -> pl.DataFrame:
    """Return row, verdict: what a diff says of each row of the base, in the phase where it takes longest."""
    rows = diff(base, run, look).rows.drop_nulls("name_a")
    size = pl.col("total_a_ns") + pl.col("total_b_ns")
    longest = rows.sort(size, descending=True, maintain_order=True).unique("name_a", maintain_order=True)
    return longest.select(row="name_a", verdict="verdict")


def geometric_mean(base: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    """Return the geometric mean of the ratios of the rows that both have; None where there is none."""
    pairs = ((x, y) for x, y in zip(base, other, strict=True) if x is not None and y is not None)
    logs = [math.log(y / x) for x, y in pairs if x > 0 and y > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def renames(runs: Sequence[Run], base: int, look: Look) -> list[Mapping[str, str]]:
    """Return for each run the names that stand for another one of the base; none for the base itself."""
    return [{} if i == base else renamed(runs[base], run, look) for i, run in enumerate(runs)]
