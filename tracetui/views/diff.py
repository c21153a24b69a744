"""Diff: two runs side by side, what changed and whether the evidence carries it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from capture.run import Run
from tracetui.look import Look
from tracetui.views import Answer, Focus, View

if TYPE_CHECKING:
    from tracetui.analysis.diff import Diff

COLUMNS = (
    "name", "total_a_ns", "total_b_ns", "delta_ns", "change_pct", "verdict", "p_adjusted", "cliff", "count_a",
    "count_b", "median_a_ns", "median_b_ns", "low_ns", "high_ns", "p", "n_a", "n_b", "calls_ns", "time_ns",
    "match", "fused", "name_b", "op", "layer", "phase", "category",
)  # fmt: skip


def answer(runs: Sequence[Run], look: Look) -> Answer:
    from tracetui.analysis.diff import diff  # numpy and scipy load with the first question

    found = diff(runs[0], runs[1], look)
    rows = found.rows.with_columns(
        change_pct=pl.when(pl.col("total_a_ns") > 0).then(100 * pl.col("delta_ns") / pl.col("total_a_ns")),
        **{c: pl.col(c).round().cast(pl.Int64) for c in _TIMES},
    )
    if look.terms.changed_only:
        rows = rows.filter(~pl.col("verdict").is_in(["same", "~"]))
    known = [c for c in COLUMNS if rows[c].null_count() < rows.height or c in COLUMNS[:6]]
    return Answer(rows.select(known), notes(runs[0], runs[1], found), ("name", "name_b", "phase"))


_TIMES = ("median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns")


def notes(a: Run, b: Run, found: "Diff") -> tuple[str, ...]:
    """Who is compared, whether that may be done, and how it was done."""
    told = [f"a is {a.name}, b is {b.name}; Δ is b − a"]
    if found.comparable.reasons:
        word = "comparable with care" if found.comparable.ok else "NOT comparable"
        told.append(f"{word} ({found.comparable.score:.2f}): {'; '.join(found.comparable.reasons)}")
    if found.gap_ns is not None:
        told.append(f"time between the measured kernels changed by {found.gap_ns:,} ns")
    return (*told, *found.how)


def enter(answer: Answer, look: Look) -> Focus:
    """The row's names on both sides, and what they are names of."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height:
        return ()
    named = ((c, answer.rows[row, c]) for c in answer.key if c in answer.rows.columns)
    return (*named, ("by", look.group or "name"))


VIEW = View("diff", "Diff", answer, needs=frozenset({"dur"}), runs=2, key="d", columns=COLUMNS, enter=enter)
