"""Diff: two runs side by side: what changed, and whether the evidence supports it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.energy import note_energy
from tracetui.analysis.frames.name_filter import match_names
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.views import Answer, Focus, TableStyle, View, _category, find_cursor_row

if TYPE_CHECKING:
    from tracetui.compare.diff import Diff

COLUMNS: Final = (
    "name", "total_a_ns", "total_b_ns", "delta_ns", "change_pct", "verdict", "instead", "share", "p_adjusted",
    "cliff", "count_a", "count_b", "median_a_ns", "median_b_ns", "median_delta_ns", "median_change_pct",
    "per", "low_ns", "high_ns", "p", "n_a", "n_b", "calls_ns", "time_ns", "match", "fused", "op", "layer",
    "rank", "phase", "category", "shape", "name_a", "name_b",
)  # fmt: skip
SIDES: Final = (
    ("name_a", "count_a", "median_a_ns", "total_a_ns"),
    ("bar", "delta_ns", "change_pct", "verdict", "phase", "p_adjusted", "cliff"),
    ("total_b_ns", "median_b_ns", "count_b", "name_b"),
)
MEDIAN_COLUMNS: Final = ("median_a_ns", "median_b_ns", "median_delta_ns", "median_change_pct")
MEDIAN_SIDES: Final = (
    ("name_a", "count_a", "total_a_ns", "median_a_ns"),
    ("bar", "median_delta_ns", "median_change_pct", "verdict", "phase", "per", "p_adjusted", "cliff"),
    ("median_b_ns", "total_b_ns", "count_b", "name_b"),
)
UNEQUAL_LAUNCHES_SHARE: Final = 0.01  # more launches than this on one side make totals misleading
IMPORTANCE: Final = (*COLUMNS[:6], "phase", "bar", *COLUMNS[6:])
MEDIANS_FIRST: Final = (
    "name", *MEDIAN_COLUMNS, "verdict", "phase", "instead", "per", "p_adjusted", "cliff", "share",
    "total_a_ns", "total_b_ns", "delta_ns", "change_pct",
)  # fmt: skip
UNEQUAL_TOTALS: Final = "the totals cover unequal amounts of work"
VERDICT_STYLES: Final = {"slower": "bad", "faster": "good", "new": "warn", "gone": "warn"}
_TIME_COLUMNS: Final = ("median_a_ns", "median_b_ns", "median_delta_ns", "low_ns", "high_ns")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per kernel of either run; medians come first if totals would mislead."""
    from tracetui.compare.diff import change_ns, compare_runs
    from tracetui.compare.words.decision import describe_decision

    compared = compare_runs(runs, look)
    rows = _with_changes(compared.rows)
    by_medians = _should_lead_with_medians(rows, look)
    if by_medians:
        decided = pl.col("verdict").is_in(["slower", "faster"])
        order = (decided, change_ns().abs(), "name")
        rows = rows.sort(*order, descending=[True, True, False], nulls_last=True, maintain_order=True)
    ranked = (*MEDIANS_FIRST, *(c for c in COLUMNS if c not in MEDIANS_FIRST)) if by_medians else COLUMNS
    columns = [c for c in ranked if rows[c].null_count() < rows.height or c in COLUMNS[:6]]
    notes = (*build_notes(compared, look), *([_describe_medians(rows)] if by_medians else []))
    importance = _rank_columns(rows, (*ranked[:7], "bar", *ranked[7:]) if by_medians else IMPORTANCE)
    rows = filter_shown_rows(rows, look)  # a filter changes neither the columns nor the notes
    return Answer(
        rows.select(columns),
        notes,
        ("name", "name_b", "phase"),
        {"rows": rows},
        columns=importance,
        table_style=_build_table_style("median_delta_ns", MEDIAN_SIDES) if by_medians else None,
        leading_notes=len(describe_decision(compared, look.terms)),
        doubts=() if compared.comparability.ok else compared.comparability.reasons,
    )


def _rank_columns(rows: pl.DataFrame, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Rank the columns by importance, the phase first if several rows share a name."""
    if rows["name"].n_unique() == rows.height:
        return () if columns == IMPORTANCE else columns  # empty: the order of the view
    return ("name", "phase", *(c for c in columns if c not in ("name", "phase")))


def _with_changes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add changes in per cent and the share of both runs; round times to ns."""
    total_a, total_b = pl.col("total_a_ns"), pl.col("total_b_ns")
    both_totals = total_a.sum() + total_b.sum()
    median = pl.col("median_a_ns")
    return rows.with_columns(
        change_pct=pl.when(total_a > 0).then(100 * pl.col("delta_ns") / total_a),
        median_change_pct=pl.when(median > 0).then(100 * pl.col("median_delta_ns") / median),
        share=pl.when(both_totals > 0).then((total_a + total_b) / both_totals),
        **{c: pl.col(c).round().cast(pl.Int64) for c in _TIME_COLUMNS},
    )


def _should_lead_with_medians(rows: pl.DataFrame, look: Look) -> bool:
    """Whether medians come first: verdicts are about them, or totals mislead."""
    both = rows.drop_nulls("median_delta_ns")
    return bool(both["p"].is_not_null().any()) or (
        not both.is_empty() and (look.per != "total" or _has_unequal_launches(both))
    )


def _has_unequal_launches(rows: pl.DataFrame) -> bool:
    """Whether one run has clearly more launches to sum."""
    a, b = int(rows["count_a"].sum()), int(rows["count_b"].sum())
    return abs(a - b) > UNEQUAL_LAUNCHES_SHARE * max(a, b)


def _describe_medians(rows: pl.DataFrame) -> str:
    """Return a note on the unit of the medians, and on the totals."""
    units_of = rows.drop_nulls("per").group_by("phase", maintain_order=True).agg(pl.col("per").first())
    per_unit = ", ".join(f"per {per} in {phase}" if phase else f"per {per}" for phase, per in units_of.rows())
    totals = "totals are further right (w: one wide table, v: choose columns)"
    if _has_unequal_launches(rows.drop_nulls("median_delta_ns")):
        totals = UNEQUAL_TOTALS
    return f"medians are {per_unit}; median of Δ: of b − a in each pair of steps; {totals}"


def filter_shown_rows(rows: pl.DataFrame, look: Look) -> pl.DataFrame:
    """Filter by either name; keep only changed rows if requested."""
    if look.filter:
        fits = [match_names(rows[c], look.filter).fill_null(False) for c in ("name", "name_b")]
        rows = rows.filter(fits[0] | fits[1])
    return rows.filter(~pl.col("verdict").is_in(["same", "~"])) if look.terms.changed_only else rows


def build_notes(compared: "Diff", look: Look) -> tuple[str, ...]:
    """Return notes: what is compared, whether it is comparable, and how it was done."""
    from tracetui.compare.words.decision import describe_decision, format_headline

    lines = [
        *describe_decision(compared, look.terms),
        format_headline(compared, look.group),
        describe_sides(compared.sides),
    ]
    comparability = compared.comparability
    if comparability.reasons:
        word = "comparable with care" if comparability.ok else "NOT comparable"
        lines.append(f"{word} ({comparability.score:.2f}): {'; '.join(comparability.reasons)}")
    if compared.gap_ns is not None:
        lines.append(_describe_gap_change(compared, compared.gap_ns))
    side_a, side_b, _ = compared.sides.groups
    return (*lines, *note_energy([("a", side_a), ("b", side_b)], look.price), *compared.notes)


def _describe_gap_change(compared: "Diff", gap_ns: int) -> str:
    from tracetui.compare.diff import IDLE_TIME
    from tracetui.compare.evidence.phase_totals import GAP

    text = f"{compared.gap_label} changed by {units.format_difference(gap_ns)} in total"
    further = compared.gap_label == IDLE_TIME and GAP in compared.phases["what"]
    return text + "; the first lines include the time before and after them" * further


def describe_sides(runs: Sequence[Run]) -> str:
    """Name both sides: a is X, b is Y; Δ is b − a."""
    sides = Sides.from_runs(runs)
    titles = zip("ab", build_titles(*sides[:2]), (sides.more_a, sides.more_b), strict=True)
    sentences = []
    for side, title, more in titles:
        repeats = f" and {len(more)} repeat{'s' * (len(more) > 1)}" if more else ""
        sentences.append(f"{side} is {title}{repeats}")
    return f"{', '.join(sentences)}; Δ is b − a"


def build_titles(*runs: Run) -> tuple[str, ...]:
    """Return the names of runs, with their files if names coincide."""
    often, files = Counter(run.name for run in runs), _find_distinct_files(runs)
    return tuple(
        run.name
        if often[run.name] == 1
        else file
        if PurePath(file).name == run.name
        else f"{run.name} ({file})"
        for run, file in zip(runs, files, strict=True)
    )


def build_labels(*runs: Run) -> tuple[str, ...]:
    """Return the shortest distinct names of runs: their files alone if all have one name."""
    files = _find_distinct_files(runs)
    one_name = len(runs) > 1 and len({run.name for run in runs}) == 1
    return files if one_name and len(set(files)) == len(files) else build_titles(*runs)


def _find_distinct_files(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the files of runs with as many of their folders as tell them apart, if any do."""
    paths = [PurePath(run.log.source).parts for run in runs]
    for depth in range(1, max(map(len, paths), default=0) + 1):
        ends = tuple(str(PurePath(*parts[-depth:])) if parts else "" for parts in paths)
        if len(set(ends)) == len(set(paths)):
            return ends
    return tuple("" for _ in paths)


def select_cell_styles(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """Return colours for slower and faster, and dim for undecided rows."""
    delta, is_unchanged = pl.col("delta_ns"), pl.col("verdict").is_in(["same", "~"])
    median_delta = pl.col("median_delta_ns") if "median_delta_ns" in rows.columns else delta

    def by_sign(value: pl.Expr) -> pl.Expr:
        colour = pl.when(value > 0).then(pl.lit("bad")).when(value < 0).then(pl.lit("good"))
        return pl.when(is_unchanged).then(pl.lit("dim")).otherwise(colour.otherwise(pl.lit("")))

    word = pl.col("verdict").replace_strict(VERDICT_STYLES, default="dim", return_dtype=pl.String)
    styles = rows.select(sign=by_sign(delta), middle=by_sign(median_delta), word=word)
    return {
        **dict.fromkeys(("delta_ns", "change_pct"), styles["sign"].to_list()),
        **dict.fromkeys(("median_delta_ns", "median_change_pct"), styles["middle"].to_list()),
        "verdict": styles["word"].to_list(),
        **_category.select_cell_styles(rows, names=("name", "name_a", "name_b")),
    }


def _build_table_style(bar: str, sides: tuple[tuple[str, ...], ...]) -> TableStyle:
    return TableStyle(select_cell_styles, bar, sides, _category.draw_legend)


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the row's names on both sides, and the column that they are from."""
    row = find_cursor_row(answer, look)
    if row is None:
        return ()
    named = {c: row[c] for c in answer.key if c in row}
    if named.get("name_b") == named["name"]:
        named.pop("name_b")
    return (*named.items(), *([("by", look.group)] if look.group else []))


VIEW = View(
    "diff",
    "Diff",
    answer,
    needs=frozenset({"dur"}),
    run_count=2,
    shortcut="d",
    columns=IMPORTANCE,
    table_style=_build_table_style("delta_ns", SIDES),
    find_focus=find_focus,
)
