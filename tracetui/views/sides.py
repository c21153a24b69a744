"""Sides: two groups of files, one row per kernel, with evidence for changes; the file is the sample."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.merged.partial_results import FrameShape, PartialResult, merge_frames
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.views import Answer, Merging, View, _category

_SHAPE: Final = FrameShape(("row", "side"), dict.fromkeys(("files", "logs", "squares"), "sum"))


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Compare loaded runs: the first and its repeats with the second and its repeats."""
    a, b, _ = Sides.from_runs(runs).groups
    moments = (
        _compute_partial(run, look)["sides"].with_columns(side=pl.lit(side, pl.Int64))
        for side, of_side in enumerate((a, b))
        for run in of_side
    )
    compared = _build_answer(reduce(lambda one, other: merge_frames((one, other), _SHAPE), moments), look)
    group = look.group or "name"
    return replace(compared, table_style=_category.build_style_by_column(runs[:2], group, group))


def _compute_partial(run: Run, look: Look) -> Mapping[str, pl.DataFrame]:
    from tracetui.compare.file_groups import collect_row_moments

    return collect_row_moments(run, look)


def finish_answer(merged: PartialResult, look: Look) -> Answer:
    """Return one row per kernel that both sides have."""
    return _build_answer(merged.frames["sides"], look)


def _build_answer(moments: pl.DataFrame, look: Look) -> Answer:
    from tracetui.compare.file_groups import compare_sides

    rows, key = compare_sides(moments, look), (look.group or "name",)
    if rows.is_empty():
        return Answer(rows, ("no row is on both sides",), key)
    one_sided = moments.group_by("row").agg(pl.col("side").n_unique()).filter(pl.col("side") == 1)
    notes = [
        "times are per step, geometric means over the files of a side; each file is one sample",
        "95 % intervals; p from Welch's t-test on logarithms, adjusted for multiple testing",
    ]
    if one_sided.height:
        notes.append(f"{one_sided.height} rows are on one side only and not shown")
    if rows["p"].null_count():
        notes.append("a row in only one file of a side has no p-value")
    return Answer(rows, tuple(notes), key)


VIEW = View(
    "sides",
    "Sides a|b",
    answer,
    needs=frozenset({"dur"}),
    run_count=2,
    merging=Merging(_compute_partial, {"sides": _SHAPE}, finish_answer),
    columns=(
        "name", "change_pct", "verdict", "mean_a_ns", "mean_b_ns", "delta_ns", "p_adjusted", "change_low_pct",
        "change_high_pct", "files_a", "files_b", "p",
    ),
)  # fmt: skip
