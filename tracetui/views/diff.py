"""Diff: two runs side by side, what changed and whether the evidence carries it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.run import Run
from tracetui.analysis.select import fitting
from tracetui.look import Look
from tracetui.views import Answer, Dress, Focus, View

if TYPE_CHECKING:
    from tracetui.analysis.diff import Diff

COLUMNS: Final = (
    "name", "total_a_ns", "total_b_ns", "delta_ns", "change_pct", "verdict", "share", "p_adjusted", "cliff",
    "count_a", "count_b", "median_a_ns", "median_b_ns", "low_ns", "high_ns", "p", "n_a", "n_b", "calls_ns",
    "time_ns", "match", "fused", "op", "layer", "phase", "category", "name_a", "name_b",
)  # fmt: skip
SIDES: Final = (
    ("name_a", "count_a", "median_a_ns", "total_a_ns"),
    ("bar", "delta_ns", "change_pct", "verdict", "phase", "p_adjusted", "cliff"),
    ("total_b_ns", "median_b_ns", "count_b", "name_b"),
)
IMPORTANCE: Final = (*COLUMNS[:6], "phase", "bar", *COLUMNS[6:])
VERDICTS: Final = {"slower": "bad", "faster": "good", "new": "warn", "gone": "warn"}
_TIMES: Final = ("median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    from tracetui.analysis.diff import diff  # numpy and scipy load with the first question

    found = diff(runs[0], runs[1], look)
    total_a, total_b = pl.col("total_a_ns"), pl.col("total_b_ns")
    whole = total_a.sum() + total_b.sum()
    rows = found.rows.with_columns(
        change_pct=pl.when(total_a > 0).then(100 * pl.col("delta_ns") / total_a),
        share=pl.when(whole > 0).then((total_a + total_b) / whole),
        **{c: pl.col(c).round().cast(pl.Int64) for c in _TIMES},
    )
    rows = shown(rows, look)
    known = [c for c in COLUMNS if rows[c].null_count() < rows.height or c in COLUMNS[:6]]
    doubts = () if found.comparable.ok else found.comparable.reasons
    said = notes(runs[0], runs[1], found)
    return Answer(rows.select(known), said, ("name", "name_b", "phase"), {"rows": rows}, doubts=doubts)


def shown(rows: pl.DataFrame, look: Look) -> pl.DataFrame:
    """The rows that fit the filter by either name, and those alone that changed where that is asked for."""
    if look.filter:
        fits = [fitting(rows[c], look.filter).fill_null(False) for c in ("name", "name_b")]
        rows = rows.filter(fits[0] | fits[1])
    return rows.filter(~pl.col("verdict").is_in(["same", "~"])) if look.terms.changed_only else rows


def notes(a: Run, b: Run, found: "Diff") -> tuple[str, ...]:
    """Who is compared, whether that may be done, and how it was done."""
    told = [parties(a, b)]
    if found.comparable.reasons:
        word = "comparable with care" if found.comparable.ok else "NOT comparable"
        told.append(f"{word} ({found.comparable.score:.2f}): {'; '.join(found.comparable.reasons)}")
    if found.gap_ns is not None:
        told.append(f"time between the measured kernels changed by {found.gap_ns:,} ns")
    return (*told, *found.how)


def parties(a: Run, b: Run) -> str:
    one, other = titles(a, b)
    return f"a is {one}, b is {other}; Δ is b − a"


def titles(*runs: Run) -> tuple[str, ...]:
    """What to call runs: their names, and where these are the same, their files too."""
    often = Counter(run.name for run in runs)
    return tuple(
        f"{run.name} ({PurePath(run.log.source).name})" if often[run.name] > 1 else run.name for run in runs
    )


def tones(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """Slower and faster in their colours; dim what the samples do not decide."""
    delta = pl.col("delta_ns")
    judged = (pl.col("n_a") > 0) & pl.col("verdict").is_in(["same", "~"]) if "n_a" in rows.columns else False
    by_sign = (
        pl.when(judged).then(pl.lit("dim"))
        .when(delta > 0).then(pl.lit("bad"))
        .when(delta < 0).then(pl.lit("good"))
        .otherwise(pl.lit(""))
    )  # fmt: skip
    word = pl.col("verdict").replace_strict(VERDICTS, default="dim", return_dtype=pl.String)
    styles = rows.select(sign=by_sign, word=word)
    sign = styles["sign"].to_list()
    return {
        "delta_ns": sign,
        "change_pct": sign,
        "verdict": styles["word"].to_list(),
        "name_b": [""] * rows.height,
    }


def enter(answer: Answer, look: Look) -> Focus:
    """The row's names on both sides, and what they are names of."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height:
        return ()
    named = ((c, answer.rows[row, c]) for c in answer.key if c in answer.rows.columns)
    return (*named, ("by", look.group or "name"))


VIEW = View(
    "diff",
    "Diff",
    answer,
    needs=frozenset({"dur"}),
    runs=2,
    key="d",
    columns=IMPORTANCE,
    dress=Dress(tones, "delta_ns", SIDES),
    enter=enter,
)
