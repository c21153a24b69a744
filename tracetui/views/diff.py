"""Diff: two runs side by side, what changed and whether the evidence supports it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.matching import fitting
from tracetui.look import Look
from tracetui.views import Answer, Dress, Focus, View, _category

if TYPE_CHECKING:
    from tracetui.analysis.compare.diff import Diff

COLUMNS: Final = (
    "name",
    "total_a_ns",
    "total_b_ns",
    "delta_ns",
    "change_pct",
    "verdict",
    "share",
    "p_adjusted",
    "cliff",
    "count_a",
    "count_b",
    "median_a_ns",
    "median_b_ns",
    "median_delta_ns",
    "median_change_pct",
    "per",
    "low_ns",
    "high_ns",
    "p",
    "n_a",
    "n_b",
    "calls_ns",
    "time_ns",
    "match",
    "fused",
    "op",
    "layer",
    "rank",
    "phase",
    "category",
    "shape",
    "name_a",
    "name_b",
)
SIDES: Final = (
    ("name_a", "count_a", "median_a_ns", "total_a_ns"),
    ("bar", "delta_ns", "change_pct", "verdict", "phase", "p_adjusted", "cliff"),
    ("total_b_ns", "median_b_ns", "count_b", "name_b"),
)
MIDDLE: Final = ("median_a_ns", "median_b_ns", "median_delta_ns", "median_change_pct")
MIDDLE_SIDES: Final = (
    ("name_a", "count_a", "total_a_ns", "median_a_ns"),
    ("bar", "median_delta_ns", "median_change_pct", "verdict", "phase", "per", "p_adjusted", "cliff"),
    ("median_b_ns", "total_b_ns", "count_b", "name_b"),
)
UNEVEN: Final = 0.01  # of the launches, from which totals differ for having more of them
IMPORTANCE: Final = (*COLUMNS[:6], "phase", "bar", *COLUMNS[6:])
MIDDLE_FIRST: Final = (
    "name",
    *MIDDLE,
    "verdict",
    "phase",
    "per",
    "p_adjusted",
    "cliff",
    "share",
    "total_a_ns",
    "total_b_ns",
    "delta_ns",
    "change_pct",
)
UNEQUAL: Final = "the totals are not of equally much work"
VERDICTS: Final = {"slower": "bad", "faster": "good", "new": "warn", "gone": "warn"}
_TIMES: Final = ("median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a kernel of either run; medians stand first where totals would mislead."""
    from tracetui.analysis.compare.decision import sentences
    from tracetui.analysis.compare.diff import diff, weight  # numpy and scipy load with the first question

    compared = diff(runs[0], runs[1], look)
    rows = _with_changes(compared.rows)
    by_medians = _by_medians(rows, look)
    if by_medians:
        decided = pl.col("verdict").is_in(["slower", "faster"])
        order = (decided, weight().abs(), "name")
        rows = rows.sort(*order, descending=[True, True, False], nulls_last=True, maintain_order=True)
    ranked = (*MIDDLE_FIRST, *(c for c in COLUMNS if c not in MIDDLE_FIRST)) if by_medians else COLUMNS
    columns = [c for c in ranked if rows[c].null_count() < rows.height or c in COLUMNS[:6]]
    words = (*notes(runs[0], runs[1], compared, look), *([_medians(rows)] if by_medians else []))
    importance = _importance(rows, (*ranked[:7], "bar", *ranked[7:]) if by_medians else IMPORTANCE)
    rows = shown(rows, look)  # a filter changes neither the columns nor the notes
    whole = Answer(
        rows.select(columns),
        words,
        ("name", "name_b", "phase"),
        {"rows": rows},
        columns=importance,
        leading=len(sentences(compared, look.terms)),
        doubts=() if compared.comparable.ok else compared.comparable.reasons,
    )
    return replace(whole, dress=_dress("median_delta_ns", MIDDLE_SIDES)) if by_medians else whole


def _importance(rows: pl.DataFrame, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns by falling importance, the phase first where several rows have one name."""
    if rows["name"].n_unique() == rows.height:
        return () if columns == IMPORTANCE else columns  # empty: the own order of the view
    return ("name", "phase", *(c for c in columns if c not in ("name", "phase")))


def _with_changes(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with their changes in per cent, their share of both runs, and times in whole ns."""
    total_a, total_b = pl.col("total_a_ns"), pl.col("total_b_ns")
    whole = total_a.sum() + total_b.sum()
    median = pl.col("median_a_ns")
    return rows.with_columns(
        change_pct=pl.when(total_a > 0).then(100 * pl.col("delta_ns") / total_a),
        median_change_pct=pl.when(median > 0).then(100 * pl.col("median_delta_ns") / median),
        share=pl.when(whole > 0).then((total_a + total_b) / whole),
        **{c: pl.col(c).round().cast(pl.Int64) for c in _TIMES},
    )


def _by_medians(rows: pl.DataFrame, look: Look) -> bool:
    """Tell whether medians stand first: verdicts are about them, they are asked for, or totals mislead."""
    both = rows.filter(pl.col("median_delta_ns").is_not_null())
    return bool(both["p"].is_not_null().any()) or (
        not both.is_empty() and (look.per != "total" or _uneven(both))
    )


def _uneven(rows: pl.DataFrame) -> bool:
    """Tell whether one run has more launches to add up."""
    a, b = int(rows["count_a"].sum()), int(rows["count_b"].sum())
    return abs(a - b) > UNEVEN * max(a, b)


def _medians(rows: pl.DataFrame) -> str:
    """Return a note on what the medians are of, and where the totals stand."""
    units_of = (
        rows.filter(pl.col("per").is_not_null())
        .group_by("phase", maintain_order=True)
        .agg(pl.col("per").first())
    )
    each = ", ".join(f"{phase}: per {unit}" if phase else f"per {unit}" for phase, unit in units_of.rows())
    both = rows.filter(pl.col("median_delta_ns").is_not_null())
    totals = (
        UNEQUAL if _uneven(both) else "totals are further right (w shows one wide table, v chooses columns)"
    )
    return f"verdicts are about medians ({each}), so these stand first; {totals}"


def shown(rows: pl.DataFrame, look: Look) -> pl.DataFrame:
    """Return the rows that fit the filter by either name; only changed ones where these are asked for."""
    if look.filter:
        fits = [fitting(rows[c], look.filter).fill_null(False) for c in ("name", "name_b")]
        rows = rows.filter(fits[0] | fits[1])
    return rows.filter(~pl.col("verdict").is_in(["same", "~"])) if look.terms.changed_only else rows


def notes(a: Run, b: Run, compared: "Diff", look: Look) -> tuple[str, ...]:
    """Return who is compared, whether that may be done, and how it was done."""
    from tracetui.analysis.compare.decision import sentences
    from tracetui.analysis.compare.headline import headline

    words = [*sentences(compared, look.terms), headline(compared, look.group), parties(a, b, look)]
    if compared.comparable.reasons:
        word = "comparable with care" if compared.comparable.ok else "NOT comparable"
        words.append(f"{word} ({compared.comparable.score:.2f}): {'; '.join(compared.comparable.reasons)}")
    if compared.gap_ns is not None:
        words.append(_gap_words(compared, compared.gap_ns))
    return (*words, *compared.how)


def _gap_words(compared: "Diff", gap_ns: int) -> str:
    """Return how the time between kernels changed, and how that differs from what the first lines tell."""
    from tracetui.analysis.compare.diff import IDLE
    from tracetui.analysis.compare.phase_totals import GAP

    words = f"{compared.gap_how} changed by {units.difference(gap_ns)} in all"
    further = compared.gap_how == IDLE and GAP in compared.phases["what"]
    return words + "; the first lines count what lies before and after them too" * further


def parties(a: Run, b: Run, look: Look) -> str:
    """Return which run is a and which is b, in words."""
    sides = zip("ab", titles(a, b), (look.terms.more_a, look.terms.more_b), strict=True)
    sentences = (f"{side} is {title}{_repeats(len(more))}" for side, title, more in sides)
    return f"{', '.join(sentences)}; Δ is b − a"


def _repeats(count: int) -> str:
    return f" and {count} repeat{'s' if count > 1 else ''}" if count else ""


def titles(*runs: Run) -> tuple[str, ...]:
    """Return the names of runs, with their files where names are the same."""
    often = Counter(run.name for run in runs)
    return tuple(
        f"{run.name} ({PurePath(run.log.source).name})" if often[run.name] > 1 else run.name for run in runs
    )


def labels(*runs: Run) -> tuple[str, ...]:
    """Return the shortest names that tell runs apart: their files alone where all have one name."""
    files = tuple(PurePath(run.log.source).name for run in runs)
    one_name = len(runs) > 1 and len({run.name for run in runs}) == 1
    return files if one_name and len(set(files)) == len(files) else titles(*runs)


def tones(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """Return colours for slower and faster, and dim for what the samples do not decide."""
    delta = pl.col("delta_ns")
    middle = pl.col("median_delta_ns") if "median_delta_ns" in rows.columns else delta
    judged = (pl.col("n_a") > 0) & pl.col("verdict").is_in(["same", "~"]) if "n_a" in rows.columns else False

    def by_sign(value: pl.Expr) -> pl.Expr:
        """Return the expression of a style by the sign of a value."""
        colour = pl.when(value > 0).then(pl.lit("bad")).when(value < 0).then(pl.lit("good"))
        return pl.when(judged).then(pl.lit("dim")).otherwise(colour.otherwise(pl.lit("")))

    word = pl.col("verdict").replace_strict(VERDICTS, default="dim", return_dtype=pl.String)
    styles = rows.select(sign=by_sign(delta), middle=by_sign(middle), word=word)
    sign, middle_sign = styles["sign"].to_list(), styles["middle"].to_list()
    return {
        "delta_ns": sign,
        "change_pct": sign,
        "median_delta_ns": middle_sign,
        "median_change_pct": middle_sign,
        "verdict": styles["word"].to_list(),
        **_category.tones(rows, names=("name", "name_a", "name_b")),
    }


def _dress(bar: str, sides: tuple[tuple[str, ...], ...]) -> Dress:
    return Dress(tones, bar, sides, _category.legend)


def enter(answer: Answer, look: Look) -> Focus:
    """Return the row's names on both sides, and what they are names of."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height:
        return ()
    named = {c: answer.rows[row, c] for c in answer.key if c in answer.rows.columns}
    if named.get("name_b") == named["name"]:
        named.pop("name_b")
    return (*named.items(), *([("by", look.group)] if look.group else []))


VIEW = View(
    "diff",
    "Diff",
    answer,
    needs=frozenset({"dur"}),
    runs=2,
    key="d",
    columns=IMPORTANCE,
    dress=_dress("delta_ns", SIDES),
    enter=enter,
)
