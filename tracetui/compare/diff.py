"""Compare two runs row by row: matched rows, exact parts of each change, verdicts, and a waterfall."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final

import polars as pl

from capture.run import Run
from capture.tasks import run_parallel
from tracetui.analysis.frames.codes import group_by_packed_key
from tracetui.analysis.frames.selection import common_value, list_ranks, select_timed
from tracetui.analysis.frames.statistics import MIN_SAMPLES
from tracetui.analysis.time import step_sampling
from tracetui.analysis.time.step_table import compute_idle_ns
from tracetui.compare import params
from tracetui.compare.evidence.phase_totals import compute_phase_totals
from tracetui.compare.evidence.repeat_test import assume_floor
from tracetui.compare.evidence.row_evidence import SideNames, judge_rows
from tracetui.compare.evidence.sample_size import measure_longest_recording
from tracetui.compare.pairing.comparability import Comparability, judge_comparability
from tracetui.compare.pairing.equal_work import WorkDifference, find_work_differences
from tracetui.compare.pairing.row_matching import RowMatch, match_rows, parse_fusions, resolve_links
from tracetui.compare.pairing.run_work import XLA, list_kernel_names
from tracetui.compare.pairing.step_times import make_row_key, select_keyed_rows
from tracetui.compare.replaced_rows import has_other_contents, name_replacements
from tracetui.compare.run_sides import Sides
from tracetui.look import Look

IDLE_TIME: Final = "idle time between the first and the last kernel of each step"
UNMEASURED_TIME: Final = "time of the steps outside the measured kernels"
CHANGE_PARTS: Final = ("calls_ns", "time_ns", "new_ns", "gone_ns")

_TESTED: Final = ("p", "p_adjusted", "low_ns", "high_ns")
_LABELS: Final = {"op": pl.String(), "layer": pl.Int32(), "category": pl.String(), "shape": pl.String()}
_KEY: Final = {"name": pl.String(), "phase": pl.String(), "rank": pl.Int64()}
_ROW_SCHEMA: Final = {
    "name": pl.String(), **_LABELS, "phase": pl.String(),
    **dict.fromkeys(("rank", "count", "total_ns"), pl.Int64()),
}  # fmt: skip
_JOINED_SCHEMA: Final = {
    **dict.fromkeys(("name", "name_a", "name_b", "match", "fused"), pl.String()), **_LABELS,
    "phase": pl.String(),
    **dict.fromkeys(("rank", "count_a", "count_b", "total_a_ns", "total_b_ns"), pl.Int64()),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Diff:
    """A comparison of two runs, with their repeats."""

    sides: Sides
    rows: pl.DataFrame
    comparability: Comparability
    works: tuple[WorkDifference, ...]  # in what the work of the sides differs
    matches: tuple[RowMatch, ...]
    gap_ns: int | None  # change of the time between kernels; None if it is unknown for a run
    gap_label: str  # which time that is
    notes: tuple[str, ...]  # how rows were sampled and scaled
    phases: pl.DataFrame  # step, kernels and time between them of each phase (see phase_totals)
    recording_seconds: float | None  # of the longest recording


def compare_runs(runs: Sequence[Run], look: Look) -> Diff:
    """Compare two runs; the result has every row of both once, so that a filter makes no row new or gone."""
    sides = replace(Sides.from_runs(runs), runs=tuple(runs[:2]))
    sides = replace(sides, floor=assume_floor(sides))
    ranks = {list_ranks(run) for group in sides.groups for run in group}
    has_same_ranks = len(ranks) == 1 and len(ranks.pop()) > 1  # so each can be compared with itself
    terms = replace(look.terms, changed_only=False, forced=False, ranking="", baseline=None)
    terms = replace(terms, ranks_apart=has_same_ranks)
    look = Look(group=look.group, lens=look.lens, phase=look.phase, window=look.window, terms=terms)
    return _compare_cached(sides, look)


@lru_cache(maxsize=2)  # several views of a pair are asked one after the other
def _compare_cached(sides: Sides, look: Look) -> Diff:
    (rows, totals, matches, sampling), (gap, phases, works) = run_parallel((
        lambda: _compare_rows(sides, look),
        lambda: (
            _compute_gap_change(sides, look),
            compute_phase_totals(sides, look),
            find_work_differences(sides[0], sides[1], look.terms.align),
        ),
    ))  # fmt: skip
    main = select_longest_phase(phases)
    unequal = [w for w in works if w.is_work and w.is_about(main)]
    comparability = judge_comparability(sides, matches, totals, unequal)
    rows, phases = clear_unequal_work(rows, works), clear_unequal_work(phases, works)
    phases = phases if sides.has_repeats else _clear_few_steps(phases)
    notes = [*sides.notes]
    if look.terms.ranks_apart:
        ranks = f"rows of {len(list_ranks(sides[0]))} ranks are separate"
        notes.append(f"{ranks}; the kernels of a step are those of its slowest rank")
    notes += sampling
    for run in sides:
        notes += [f"{run.name}: {note}" for note in step_sampling.note_sampling(run, look, scaled=True)]
    a, b, _ = sides.groups
    seconds = measure_longest_recording((*a, *b))
    return Diff(sides, rows, comparability, works, tuple(matches), *gap, tuple(notes), phases, seconds)


def _compare_rows(
    sides: Sides, look: Look
) -> tuple[pl.DataFrame, tuple[list[int], list[int]], Sequence[RowMatch], tuple[str, ...]]:
    """Build the rows, the totals and matches of both sides' rows, and notes on how they were sampled."""
    left, right = run_parallel([partial(sum_rows, run, look=look) for run in sides])
    matches = match_rows(left, right, resolve_links(look.terms.links, *sides))
    totals = left["total_ns"].to_list(), right["total_ns"].to_list()
    names = _list_members(left["name"].to_list(), right["name"].to_list(), matches)
    rows = split_change(_join_sides(left, right, matches, names))
    keys = names
    if look.terms.ranks_apart:
        keys_a, keys_b = (list(map(make_row_key, side["name"], side["rank"])) for side in (left, right))
        keys = _list_members(keys_a, keys_b, matches)
    evidence, notes = judge_rows(sides, look, rows, keys)
    members = (_build_list_column(f"members_{s}", [pair[i] for pair in names]) for i, s in enumerate("ab"))
    rows = _clear_mixed_verdicts(rows.hstack(evidence).with_columns(*members))
    rows = _clear_other_numbers(rows, sides)
    rows = _with_totals(rows, _has_no_median() | _is_cut_differently())
    rows = rows.with_columns(name_replacements(sides, rows))
    rows = rows.sort(pl.col("delta_ns").abs(), "name", descending=[True, False], maintain_order=True)
    return rows, totals, matches, notes


def _has_no_median() -> pl.Expr:
    """True for rows that run outside of the compared steps, or in fewer than half of them."""
    return (pl.col("median_a_ns") == 0) & (pl.col("median_b_ns") == 0)


def _is_cut_differently() -> pl.Expr:
    """True for rows per launch whose numbers of launches differ in another ratio than those of other rows."""
    has_both = (pl.col("count_a") > 0) & (pl.col("count_b") > 0)
    ratio = pl.when(has_both).then(pl.col("count_b") / pl.col("count_a"))
    typical = ratio.filter(pl.col("match") == "exact").median().over("phase")
    return (pl.col("per") == "launch") & ((ratio / typical.fill_null(1.0)).log().abs() > params.MIN_CHANGE)


def _with_totals(rows: pl.DataFrame, is_by_total: pl.Expr) -> pl.DataFrame:
    """Replace the medians of some rows by the totals of the whole runs, which have no test."""
    is_by_total = is_by_total.fill_null(value=False)
    names = (("median_a_ns", "total_a_ns"), ("median_b_ns", "total_b_ns"), ("median_delta_ns", "delta_ns"))
    medians = (
        pl.when(is_by_total).then(pl.col(total).cast(pl.Float64)).otherwise(median).alias(median)
        for median, total in names
    )
    tested = (pl.when(~is_by_total).then(c).alias(c) for c in (*_TESTED, "cliff"))
    return rows.with_columns(
        *medians, *tested,
        per=pl.when(is_by_total).then(pl.lit("run")).otherwise("per"),
        verdict=pl.when(is_by_total).then(pl.lit("~")).otherwise("verdict"),
    )  # fmt: skip


def select_longest_phase(phases: pl.DataFrame) -> str | None:
    """Select the phase that takes longest on both sides; None without phases."""
    size = (pl.col("a_ns") + pl.col("b_ns")) * pl.col("steps").clip(1)
    return phases.sort(size, descending=True, maintain_order=True)["phase"][0] if phases.height else None


def clear_unequal_work(table: pl.DataFrame, works: Sequence[WorkDifference]) -> pl.DataFrame:
    """Clear the verdicts on phases whose steps compute something else: the times stay, as facts."""
    different = [w.phase for w in works if w.is_work]
    if not different:
        return table
    is_unequal = pl.lit(None in different) | pl.col("phase").is_in(different, nulls_equal=True)
    decided = pl.col("verdict").is_in(["slower", "faster", "same"])
    verdict = pl.when(is_unequal & decided).then(pl.lit("~")).otherwise("verdict")
    tested = (pl.when(~is_unequal).then(c).alias(c) for c in _TESTED if c in table.columns)
    return table.with_columns(*tested, verdict=verdict)


def _clear_mixed_verdicts(rows: pl.DataFrame) -> pl.DataFrame:
    """Clear the verdict of rows whose several kernels have only their category in common.

    And of modules whose inner modules have rows of their own on one side only, as of compiled ones.
    """
    has_several = (pl.col("members_a").list.len() > 1) | (pl.col("members_b").list.len() > 1)
    is_mixed = ((pl.col("match") == "category") & has_several) | has_other_contents()
    p_values = (pl.when(~is_mixed).then(c).alias(c) for c in ("p", "p_adjusted"))
    return rows.with_columns(*p_values, verdict=pl.when(is_mixed).then(pl.lit("~")).otherwise("verdict"))


def _clear_other_numbers(rows: pl.DataFrame, sides: Sides) -> pl.DataFrame:
    """Clear the verdicts on operations of XLA if the runs have other ones.

    It names them in order within a program: `fusion.3` of another program is another operation.
    """
    is_xla = all(run.meta.get("producer") in XLA for run in sides)
    if not is_xla or len(set(map(list_kernel_names, sides))) == 1:
        return rows
    is_tested = pl.col("verdict").is_in(["slower", "faster", "same"])
    tested = (pl.lit(None, rows[c].dtype).alias(c) for c in _TESTED)
    return rows.with_columns(*tested, verdict=pl.when(is_tested).then(pl.lit("~")).otherwise("verdict"))


def _clear_few_steps(phases: pl.DataFrame) -> pl.DataFrame:
    """Clear the tests of phases of which a run has few steps: how far their steps differ is unknown."""
    is_few = pl.col("steps") < MIN_SAMPLES
    tested = (pl.when(~is_few).then(c).alias(c) for c in _TESTED if c in phases.columns)
    return phases.with_columns(*tested, verdict=pl.when(is_few).then(pl.lit("~")).otherwise("verdict"))


def change_ns() -> pl.Expr:
    """Change of a row in ns over the whole run: by its medians, else by its totals."""
    medians = pl.col("median_a_ns") + pl.col("median_b_ns")
    totals = pl.col("total_a_ns") + pl.col("total_b_ns")
    typical = pl.when(medians > 0).then(pl.col("median_delta_ns") * totals / medians)
    return pl.coalesce(typical, pl.col("delta_ns").cast(pl.Float64))


def sum_rows(run: Run, look: Look) -> pl.DataFrame:
    """Sum a run's rows by name (the look's grouping), phase and rank, largest first.

    A label is kept if all rows of a sum agree on it.
    """
    if not run.has("dur"):
        return pl.DataFrame(schema=_ROW_SCHEMA)
    labels = [c for c in _LABELS if run.has(c)]
    has_count = run.has("count") or step_sampling.compute_coverage(run, look) is not None
    count = pl.col("count").fill_null(1).sum().round() if has_count else pl.len()
    timed = step_sampling.scale_rows(run, look, select_keyed_rows(run, look))
    totals = count.cast(pl.Int64).alias("count"), pl.col("dur").sum().alias("total_ns")
    by_labels = group_by_packed_key(timed, (*_KEY, *labels), totals).group_by(*_KEY)
    sums = by_labels.agg(*map(common_value, labels), pl.col("count", "total_ns").sum())
    sums = sums.with_columns(pl.lit(None, t).alias(c) for c, t in _LABELS.items() if c not in labels)
    named = sums.with_columns(pl.col("name").cast(pl.String).fill_null("–"))
    rows = named.select(pl.col(c).cast(t) for c, t in _ROW_SCHEMA.items())
    return rows.sort("total_ns", *_KEY, descending=[True, *(False for _ in _KEY)], nulls_last=True)


def _list_members(a: Sequence[str], b: Sequence[str], matches: Sequence[RowMatch]) -> list[SideNames]:
    """List the names of each match's rows on either side, given those of all rows."""
    return [([a[i] for i in m.a], [b[j] for j in m.b]) for m in matches]


def _build_list_column(column: str, names: Sequence[Sequence[str]]) -> pl.Series:
    """Build a column of lists of strings: polars would infer its type from the first of 20,000 lists."""
    rows = pl.Series("row", [i for i, members in enumerate(names) for _ in members], dtype=pl.Int64)
    values = pl.Series([name for members in names for name in members], dtype=pl.String)
    lists = pl.DataFrame({"row": rows, column: values}).group_by("row", maintain_order=True).agg(column)
    index = pl.DataFrame({"row": pl.int_range(len(names), eager=True)})
    return index.join(lists, on="row", how="left", maintain_order="left")[column].fill_null([])


def _join_sides(
    left: pl.DataFrame, right: pl.DataFrame, matches: Sequence[RowMatch], names: Sequence[SideNames]
) -> pl.DataFrame:
    """Join both sides to one row per match, summing the rows of a match."""
    first = [m.a[0] if m.a else left.height + m.b[0] for m in matches]
    labels = pl.concat([left, right])[pl.Series(first, dtype=pl.UInt32)]
    columns: dict[str, list[Any]] = {}
    for side, rows, members in (("a", left, [m.a for m in matches]), ("b", right, [m.b for m in matches])):
        columns[f"name_{side}"] = _name_members(rows, members)
        columns[f"count_{side}"] = _sum_members(rows["count"], members)
        columns[f"total_{side}_ns"] = _sum_members(rows["total_ns"], members)
    columns["match"] = [m.how for m in matches]
    columns["fused"] = [_describe_fusion_change(*pair) for pair in names]
    table = labels.with_columns(pl.Series(c, v, _JOINED_SCHEMA[c]) for c, v in columns.items())
    name = pl.coalesce("name_a", "name_b")
    with_rank = pl.format("{} · rank {}", name, "rank")
    name = pl.when(pl.col("rank").is_null()).then(name).otherwise(with_rank)
    return table.with_columns(name=name).select(*_JOINED_SCHEMA)


def _name_members(side: pl.DataFrame, members: Sequence[Sequence[int]]) -> list[str | None]:
    """Name the members of each match: `attention (3 kernels)` for several, None for none."""
    names, ops, categories = (side[c].to_list() for c in ("name", "op", "category"))

    def name_rows(rows: Sequence[int]) -> str | None:
        if len(rows) < 2:
            return names[rows[0]] if rows else None
        return f"{ops[rows[0]] or categories[rows[0]]} ({len(rows)} kernels)"

    return [name_rows(rows) for rows in members]


def _sum_members(values: pl.Series, members: Sequence[Sequence[int]]) -> list[int]:
    items = values.to_list()
    return [items[rows[0]] if len(rows) == 1 else sum(items[i] for i in rows) for rows in members]


def _describe_fusion_change(a: Sequence[str], b: Sequence[str]) -> str | None:
    """Describe what is fused into the kernels of one side only; None if the sides do not differ."""
    if not a or not b or a == b:
        return None
    fusions_a, fusions_b = ({f for name in side for f in parse_fusions(name)} for side in (a, b))
    return ", ".join(sorted(fusions_a ^ fusions_b)) or None


def _compute_gap_change(sides: Sides, look: Look) -> tuple[int | None, str]:
    """Compute the change of the time between kernels, and which time that is.

    It is the idle time of the devices, as in the steps view, or else what kernels leave of the wall time;
    None if a run has neither.
    """
    for compute, label in ((_compute_idle_ns, IDLE_TIME), (_compute_unmeasured_ns, UNMEASURED_TIME)):
        before, after = run_parallel([partial(compute, run, look=look) for run in sides])
        if before is not None and after is not None:
            return after - before, label
    return None, ""


def _compute_idle_ns(run: Run, look: Look) -> int | None:
    is_partial = look.is_partial or step_sampling.compute_coverage(run, look) is not None
    is_known = run.has("step") and run.has("dur") and not is_partial
    return compute_idle_ns(run, look) if is_known else None


def _compute_unmeasured_ns(run: Run, look: Look) -> int | None:
    if not (run.has("step") and run.has("dur")) or step_sampling.compute_coverage(run, look) is not None:
        return None
    marks = run.events.filter((pl.col("kind") == "step") & pl.col("dur").is_not_null())
    if look.phase is not None and run.has("phase"):
        marks = marks.filter(pl.col("phase") == look.phase)
    if marks.is_empty():
        return None
    inside = select_timed(run, look).filter(pl.col("step").is_in(marks["step"].implode()))
    return int(marks["dur"].sum()) - int(inside.select(pl.col("dur").sum()).collect().item())


def split_change(rows: pl.DataFrame) -> pl.DataFrame:
    """Split each row's change of the total into calls, time per call, new and gone: exact to the nanosecond.

    The change of calls, at the old time per call, is rounded to whole nanoseconds; the rest is time per call.
    A side may have time without calls, from a printed summary: it counts as new or gone, too.
    """
    on_both = pl.when((pl.col("count_a") > 0) & (pl.col("count_b") > 0))
    delta = pl.col("total_b_ns") - pl.col("total_a_ns")
    old_rate = pl.col("total_a_ns") / pl.col("count_a")
    calls = ((pl.col("count_b") - pl.col("count_a")) * old_rate).round().cast(pl.Int64)
    nothing = pl.lit(0, dtype=pl.Int64)
    return rows.with_columns(
        delta_ns=delta,
        calls_ns=on_both.then(calls).otherwise(nothing),
        time_ns=on_both.then(delta - calls).otherwise(nothing),
        new_ns=pl.when(pl.col("count_a") == 0).then(delta).otherwise(nothing),
        gone_ns=pl.when((pl.col("count_a") > 0) & (pl.col("count_b") == 0)).then(delta).otherwise(nothing),
    )


def build_waterfall(rows: pl.DataFrame, by: str, gap_ns: int | None) -> pl.DataFrame:
    """Build one bar per group, largest change first, and one for the gap; they sum to the whole change."""
    split = split_change(rows)
    label = pl.col(by).cast(pl.String) if by in split.columns else pl.lit(None, dtype=pl.String)
    groups = split.group_by(label.fill_null("–").alias(by))
    bars = groups.agg(pl.col("total_a_ns", "total_b_ns", "delta_ns", *CHANGE_PARTS).sum())
    bars = bars.sort(pl.col("delta_ns").abs(), by, descending=[True, False])
    if gap_ns is None:
        return bars
    gap = {c: 0 for c in bars.columns if c != by} | {by: "between the measured kernels", "delta_ns": gap_ns}
    return pl.concat([bars, pl.DataFrame([gap], schema=bars.schema)])
