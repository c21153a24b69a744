"""Compare two runs row by row: match the rows, split the totals, add the evidence of the samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis import windows
from tracetui.analysis.compare.at_once import both, of_each
from tracetui.analysis.compare.comparable import Comparable, comparable
from tracetui.analysis.compare.links import names_linked
from tracetui.analysis.compare.match import Match, fusions, match
from tracetui.analysis.compare.phase_totals import phase_totals
from tracetui.analysis.compare.row_evidence import Names, row_evidence
from tracetui.analysis.compare.step_times import key_of, phased
from tracetui.analysis.compare.waterfall import parts
from tracetui.analysis.compare.what_it_takes import seconds_each
from tracetui.analysis.packed import grouped
from tracetui.analysis.select import rank_numbers, timed
from tracetui.analysis.steps import idle_ns
from tracetui.look import Look, Terms

IDLE: Final = "idle time between the first and the last kernel of each step"
OUTSIDE: Final = "time of the steps outside the measured kernels"


@dataclass(frozen=True, eq=False)
class Diff:
    """A comparison: its rows, whether it may be made, and how it was made."""

    rows: pl.DataFrame
    comparable: Comparable
    matches: tuple[Match, ...]
    gap_ns: int | None  # change of the time between measured kernels, where both runs know their wall time
    gap_how: str  # what that time is
    how: tuple[str, ...]
    phases: pl.DataFrame  # step time, kernels and time between them of each phase, with verdicts
    seconds: float | None  # that the longest of the recordings lasts


def diff(a: Run, b: Run, look: Look) -> Diff:
    """Return every row of both runs exactly once; a filter never makes a row new or gone."""
    terms = replace(look.terms, changed_only=False, forced=False, ranking="", baseline=None)
    terms = replace(terms, ranks_apart=_same_ranks(a, b, terms))
    return _diff(
        a, b, Look(group=look.group, lens=look.lens, phase=look.phase, window=look.window, terms=terms)
    )


@lru_cache(maxsize=2)  # the views of a pair are looked at one after the other
def _diff(a: Run, b: Run, look: Look) -> Diff:
    (rows, fit, matches, how), (gap, phases) = both(
        lambda: _compared(a, b, look), lambda: (_gap(a, b, look), phase_totals(a, b, look))
    )
    scaled = (f"{run.name}: {note}" for run in (a, b) for note in windows.notes(run, look, scaled=True))
    words = (*look.terms.notes, *_apart(a, look), *how, *scaled)
    every = (a, b, *look.terms.more_a, *look.terms.more_b)
    return Diff(rows, fit, tuple(matches), *gap, words, phases, seconds_each(every))


def _compared(
    a: Run, b: Run, look: Look
) -> tuple[pl.DataFrame, Comparable, Sequence[Match], tuple[str, ...]]:
    """Return the rows, whether they may be compared, how they were matched, and how they were sampled."""
    left, right = of_each(partial(side_rows, look=look), (a, b))
    matches = match(left, right, names_linked(look.terms.links, a, b))
    totals = left["total_ns"].to_list(), right["total_ns"].to_list()
    names = _names(left, right, matches)
    rows = parts(_joined(left, right, matches, names))
    keys = _keys(left, right, matches) if look.terms.ranks_apart else names
    evidence, how = row_evidence(a, b, look, rows, keys)
    members = (_members(f"members_{s}", [pair[i] for pair in names]) for i, s in enumerate("ab"))
    rows = _without_mixtures(rows.hstack(evidence).with_columns(*members))
    rows = rows.sort(pl.col("delta_ns").abs(), "name", descending=[True, False], maintain_order=True)
    return rows, comparable(a, b, matches, totals, look.terms), matches, how


def _same_ranks(a: Run, b: Run, terms: Terms) -> bool:
    """Tell whether all runs are of the same ranks, several of them, which can then be held apart."""
    runs = (a, b, *terms.more_a, *terms.more_b, *terms.same)
    return len({rank_numbers(run) for run in runs}) == 1 and len(rank_numbers(a)) > 1


def _apart(run: Run, look: Look) -> tuple[str, ...]:
    if not look.terms.ranks_apart:
        return ()
    number = len(rank_numbers(run))
    return (f"rows of {number} ranks stand apart; the kernels of a step are those of its slowest rank",)


def _without_mixtures(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows, with no verdict where several kernels have nothing but their category in common."""
    several = (pl.col("members_a").list.len() > 1) | (pl.col("members_b").list.len() > 1)
    mixed = (pl.col("match") == "category") & several
    figures = (pl.when(~mixed).then(c).alias(c) for c in ("p", "p_adjusted"))
    return rows.with_columns(*figures, verdict=pl.when(mixed).then(pl.lit("~")).otherwise("verdict"))


def weight() -> pl.Expr:
    """Return the expression of a row's change in ns of the whole run: by its medians, else by its totals."""
    medians = pl.col("median_a_ns") + pl.col("median_b_ns")
    totals = pl.col("total_a_ns") + pl.col("total_b_ns")
    typical = pl.when(medians > 0).then(pl.col("median_delta_ns") * totals / medians)
    return pl.coalesce(typical, pl.col("delta_ns").cast(pl.Float64))


def side_rows(run: Run, look: Look) -> pl.DataFrame:
    """Return one row a group, phase and rank held apart, largest first; a label stands where all its rows
    agree on it.
    """
    if not run.has("dur"):
        return _NOTHING
    labels = [c for c in _LABELS if run.has(c)]
    counted = run.has("count") or windows.coverage(run, look) is not None
    count = pl.col("count").fill_null(1).sum().round() if counted else pl.len()
    agreed = (pl.when(pl.col(c).n_unique() == 1).then(pl.col(c).first()).alias(c) for c in labels)
    timed = windows.stretched(run, look, phased(run, look))
    added = count.cast(pl.Int64).alias("count"), pl.col("dur").sum().alias("total_ns")
    sums = (
        grouped(timed, ("name", "phase", "rank", *labels), added)
        .group_by("name", "phase", "rank")
        .agg(*agreed, pl.col("count", "total_ns").sum())
        .with_columns(pl.lit(None, t).alias(c) for c, t in _LABELS.items() if c not in labels)
    )
    named = sums.with_columns(pl.col("name").cast(pl.String).fill_null("–"))
    rows = named.select(pl.col(c).cast(t) for c, t in _NOTHING.schema.items())
    order = {"total_ns": True, "name": False, "phase": False, "rank": False}
    return rows.sort(list(order), descending=list(order.values()), nulls_last=True)


_LABELS: Final = {"op": pl.String(), "layer": pl.Int32(), "category": pl.String(), "shape": pl.String()}
_NOTHING: Final = pl.DataFrame(
    schema={
        "name": pl.String,
        "op": pl.String,
        "layer": pl.Int32,
        "category": pl.String,
        "shape": pl.String,
        "phase": pl.String,
        "rank": pl.Int64,
        "count": pl.Int64,
        "total_ns": pl.Int64,
    }
)


def _names(left: pl.DataFrame, right: pl.DataFrame, matches: Sequence[Match]) -> list[Names]:
    """Return for each match the names of its rows on either side."""
    here, there = left["name"].to_list(), right["name"].to_list()
    return [([here[i] for i in m.a], [there[j] for j in m.b]) for m in matches]


def _keys(left: pl.DataFrame, right: pl.DataFrame, matches: Sequence[Match]) -> list[Names]:
    """Return for each match by what the samples of its rows on either side are found."""
    here, there = (list(map(key_of, side["name"], side["rank"])) for side in (left, right))
    return [([here[i] for i in m.a], [there[j] for j in m.b]) for m in matches]


def _members(column: str, names: Sequence[Sequence[str]]) -> pl.Series:
    """Return a column of lists."""
    rows = pl.Series("row", [i for i, own in enumerate(names) for _ in own], dtype=pl.Int64)
    flat = pl.DataFrame({"row": rows, column: pl.Series([n for own in names for n in own], dtype=pl.String)})
    lists = flat.group_by("row", maintain_order=True).agg(column)
    every = pl.DataFrame({"row": pl.int_range(len(names), eager=True)})
    return every.join(lists, on="row", how="left", maintain_order="left")[column].fill_null([])


def _joined(
    left: pl.DataFrame, right: pl.DataFrame, matches: Sequence[Match], names: Sequence[Names]
) -> pl.DataFrame:
    """Return one row a match; several rows of one role are added up."""
    first = [m.a[0] if m.a else left.height + m.b[0] for m in matches]
    labels = pl.concat([left, right])[pl.Series(first, dtype=pl.UInt32)]
    columns: dict[str, list[Any]] = {}
    for side, rows, places in (("a", left, [m.a for m in matches]), ("b", right, [m.b for m in matches])):
        columns[f"name_{side}"] = _titles(rows, places)
        columns[f"count_{side}"] = _added(rows["count"], places)
        columns[f"total_{side}_ns"] = _added(rows["total_ns"], places)
    columns["match"] = [m.how for m in matches]
    columns["fused"] = [_fused(here, there) for here, there in names]
    table = labels.with_columns(pl.Series(c, v, _JOINED[c]) for c, v in columns.items())
    name = pl.coalesce("name_a", "name_b")
    of_rank = pl.when(pl.col("rank").is_null()).then(name).otherwise(pl.format("{} · rank {}", name, "rank"))
    return table.with_columns(name=of_rank).select(*_JOINED)


_JOINED: Final = {
    "name": pl.String,
    "name_a": pl.String,
    "name_b": pl.String,
    "match": pl.String,
    "fused": pl.String,
    "op": pl.String,
    "layer": pl.Int32,
    "category": pl.String,
    "shape": pl.String,
    "phase": pl.String,
    "rank": pl.Int64,
    "count_a": pl.Int64,
    "count_b": pl.Int64,
    "total_a_ns": pl.Int64,
    "total_b_ns": pl.Int64,
}


def _titles(side: pl.DataFrame, places: Sequence[Sequence[int]]) -> list[str | None]:
    """Return what to call the rows in these places together; None where there is none."""
    names, ops, categories = (side[c].to_list() for c in ("name", "op", "category"))

    def title(rows: Sequence[int]) -> str | None:
        """Return what to call some rows of the side."""
        if len(rows) < 2:
            return names[rows[0]] if rows else None
        return f"{ops[rows[0]] or categories[rows[0]]} ({len(rows)} kernels)"

    return [title(rows) for rows in places]


def _added(values: pl.Series, places: Sequence[Sequence[int]]) -> list[int]:
    """Return the sums of the values in these places."""
    every = values.to_list()
    return [every[rows[0]] if len(rows) == 1 else sum(every[i] for i in rows) for rows in places]


def _fused(a: Sequence[str], b: Sequence[str]) -> str | None:
    """Return what is fused into the kernels of one side alone; None where both do the same."""
    if not a or not b or a == b:
        return None
    on_a, on_b = ({f for name in side for f in fusions(name)} for side in (a, b))
    return ", ".join(sorted(on_a ^ on_b)) or None


def _gap(a: Run, b: Run, look: Look) -> tuple[int | None, str]:
    """Return the change of the time between measured kernels, and what that is: the devices' idle time where
    both runs tell it, as the steps view does, else what kernels leave of the wall; None where a run tells
    neither.
    """
    for between, how in ((_idle, IDLE), (_unmeasured, OUTSIDE)):
        before, after = of_each(partial(between, look=look), (a, b))
        if before is not None and after is not None:
            return after - before, how
    return None, ""


def _idle(run: Run, look: Look) -> int | None:
    partly = look.partial or windows.coverage(run, look) is not None
    if partly or not (run.has("step") and run.has("dur")):
        return None
    return idle_ns(run, look)


def _unmeasured(run: Run, look: Look) -> int | None:
    if not (run.has("step") and run.has("dur")) or windows.coverage(run, look) is not None:
        return None
    marks = run.events.filter((pl.col("kind") == "step") & pl.col("dur").is_not_null())
    if look.phase is not None and run.has("phase"):
        marks = marks.filter(pl.col("phase") == look.phase)
    if marks.is_empty():
        return None
    inside = timed(run, look).filter(pl.col("step").is_in(marks["step"].implode()))
    return int(marks["dur"].sum()) - int(inside.select(pl.col("dur").sum()).collect().item())
