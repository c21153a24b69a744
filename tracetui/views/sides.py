"""Sides: two groups of files, a row a kernel, with evidence for what differs; the file is the sample."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import polars as pl

from capture.run import Run
from tracetui.analysis.partial.algebra import MEMBERS, Partial, Shape, merge
from tracetui.look import Look
from tracetui.views import Answer, Merging, View, _category

SHAPES = {"sides": Shape(("row", "side"), dict.fromkeys(("files", "logs", "squares"), "sum"))}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return the comparison of runs that are here: the first and its repeats, the second and its repeats."""
    from tracetui.analysis.partial.sides import partial

    sides = ((runs[0], *look.terms.more_a), (runs[1], *look.terms.more_b))
    empty = pl.DataFrame({"member": [], "run": []}, schema={"member": pl.Int64, "run": pl.Int64})
    parts = [
        Partial(
            {MEMBERS: empty, "sides": partial(run, look)["sides"].with_columns(side=pl.lit(side, pl.Int64))}
        )
        for side, of_side in enumerate(sides)
        for run in of_side
    ]
    found = of_many(reduce(lambda one, other: merge(one, other, SHAPES), parts), look)
    group = look.group or "name"
    return replace(found, dress=_category.by(runs[:2], group, group))


def of_many(whole: Partial, look: Look) -> Answer:
    """Return one row a kernel that both sides have."""
    from tracetui.analysis.partial.sides import compared

    rows, key = compared(whole, look), (look.group or "name",)
    if rows.is_empty():
        return Answer(rows, ("no row is on both sides",), key)
    alone = whole.frames["sides"].group_by("row").agg(pl.col("side").n_unique()).filter(pl.col("side") == 1)
    notes = [
        "times are of one step, as the geometric mean over the files of a side; the file is the sample",
        "the interval is of 95 %, p by Welch's t-test on logarithms, adjusted for many rows",
    ]
    if alone.height:
        notes.append(f"{alone.height} rows are on one side only and not shown")
    if rows["p"].null_count():
        notes.append("a row that one file of a side has is no evidence")
    return Answer(rows, tuple(notes), key)


def _contribution(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    from tracetui.analysis.partial.sides import partial

    return partial(run, look)


VIEW = View(
    "sides",
    "Sides a|b",
    answer,
    needs=frozenset({"dur"}),
    runs=2,
    merging=Merging(_contribution, SHAPES, of_many, needs=frozenset({"dur"})),
    columns=(
        "name",
        "change_pct",
        "verdict",
        "mean_a_ns",
        "mean_b_ns",
        "delta_ns",
        "p_adjusted",
        "change_low_pct",
        "change_high_pct",
        "files_a",
        "files_b",
        "p",
    ),
)
