"""Compare two runs row by row: match the rows, split the totals, add the evidence of the samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui.analysis import windows
from tracetui.analysis.compare.comparable import Comparable, comparable
from tracetui.analysis.compare.links import names_linked
from tracetui.analysis.compare.match import Match, fusions, match
from tracetui.analysis.compare.phase_totals import phase_totals
from tracetui.analysis.compare.row_evidence import Names, row_evidence
from tracetui.analysis.compare.step_times import key_of, phased
from tracetui.analysis.compare.waterfall import parts
from tracetui.analysis.compare.what_it_takes import seconds_each
from tracetui.analysis.select import rank_numbers, timed
from tracetui.analysis.steps import step_table
from tracetui.look import Look, Terms


@dataclass(frozen=True, eq=False)
class Diff:
    """A comparison: its rows, whether it may be made, and how it was made."""

    rows: pl.DataFrame
    comparable: Comparable
    matches: tuple[Match, ...]
    gap_ns: int | None  # change of the time between measured kernels, where both runs know their wall time
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
    left, right = side_rows(a, look), side_rows(b, look)
    matches = match(left.to_dicts(), right.to_dicts(), names_linked(look.terms.links, a, b))
    totals = left["total_ns"].to_list(), right["total_ns"].to_list()
    names = _names(left, right, matches)
    rows = parts(_joined(left, right, matches))
    evidence, how = row_evidence(a, b, look, rows, names)
    sides = ("members_a", left, "a"), ("members_b", right, "b")
    members = {s: [[side["name"][i] for i in getattr(m, x)] for m in matches] for s, side, x in sides}
    rows = rows.hstack(evidence).with_columns(pl.Series(s, m, pl.List(pl.String)) for s, m in members.items())
    rows = _without_mixtures(rows)
    rows = rows.sort(pl.col("delta_ns").abs(), "name", descending=[True, False], maintain_order=True)
    scaled = (f"{run.name}: {note}" for run in (a, b) for note in windows.notes(run, look, scaled=True))
    gap, words = _gap(a, b, look), (*look.terms.notes, *_apart(a, look), *how, *scaled)
    every = (a, b, *look.terms.more_a, *look.terms.more_b)
    fit = comparable(a, b, matches, totals, look.terms)
    return Diff(rows, fit, tuple(matches), gap, words, phase_totals(a, b, look), seconds_each(every))


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
    sums = (
        windows.stretched(run, look, phased(run, look))
        .group_by("name", "phase", "rank", *labels)
        .agg(count.cast(pl.Int64).alias("count"), total_ns=pl.col("dur").sum())
        .group_by("name", "phase", "rank")
        .agg(*agreed, pl.col("count", "total_ns").sum())
        .with_columns(pl.lit(None, t).alias(c) for c, t in _LABELS.items() if c not in labels)
    )
    named = sums.with_columns(pl.col("name").cast(pl.String).fill_null("–"))
    rows = named.select(pl.col(c).cast(t) for c, t in _NOTHING.schema.items()).collect()
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
    """Return for each match by what the samples of its rows on either side are found."""
    keys = [list(map(key_of, side["name"], side["rank"])) for side in (left, right)]
    return [([keys[0][i] for i in m.a], [keys[1][j] for j in m.b]) for m in matches]


def _joined(left: pl.DataFrame, right: pl.DataFrame, matches: Sequence[Match]) -> pl.DataFrame:
    """Return one row a match; several rows of one role are added up."""
    out = [_row(_pick(left, m.a), _pick(right, m.b), m.how) for m in matches]
    return pl.DataFrame(out, schema=_JOINED, orient="row")


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


def _pick(side: pl.DataFrame, places: Sequence[int]) -> list[dict[str, Any]]:
    return [side.row(i, named=True) for i in places]


def _row(a: list[dict[str, Any]], b: list[dict[str, Any]], how: str) -> dict[str, Any]:
    """Return a row of the diff; either side may have no row, but not both."""
    first = (a or b)[0]
    name_a, name_b = _title(a), _title(b)
    name = name_a if a else name_b
    return {
        "name": f"{name} · rank {first['rank']}" if first["rank"] is not None else name,
        "name_a": name_a,
        "name_b": name_b,
        "match": how,
        "fused": _fused(a, b) if a and b else None,
        **{c: first[c] for c in ("op", "layer", "category", "shape", "phase", "rank")},
        "count_a": sum(r["count"] for r in a),
        "count_b": sum(r["count"] for r in b),
        "total_a_ns": sum(r["total_ns"] for r in a),
        "total_b_ns": sum(r["total_ns"] for r in b),
    }


def _fused(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> str | None:
    """Return what is fused into the kernels of one side alone; None where both do the same."""
    on_a, on_b = ({f for row in side for f in fusions(row["name"])} for side in (a, b))
    return ", ".join(sorted(on_a ^ on_b)) or None


def _title(rows: list[dict[str, Any]]) -> str | None:
    """Return what to call the rows of one side; None where there is none."""
    if not rows:
        return None
    if len(rows) == 1:
        return str(rows[0]["name"])
    return f"{rows[0]['op'] or rows[0]['category']} ({len(rows)} kernels)"


def _gap(a: Run, b: Run, look: Look) -> int | None:
    """Return the change of the time between measured kernels: of the devices' idle time where both runs tell
    it, as the steps view does, else of what kernels leave of the wall; None where a run tells neither.
    """
    for between in (_idle, _unmeasured):
        before, after = between(a, look), between(b, look)
        if before is not None and after is not None:
            return after - before
    return None


def _idle(run: Run, look: Look) -> int | None:
    partly = look.filter or look.focus or windows.coverage(run, look) is not None
    if partly or not (run.has("step") and run.has("dur")):
        return None
    table = step_table(run, look)
    known = "idle_ns" in table.columns and not table["idle_ns"].has_nulls()
    return int(table["idle_ns"].sum()) if known else None


def _unmeasured(run: Run, look: Look) -> int | None:
    if not (run.has("step") and run.has("dur")) or windows.coverage(run, look) is not None:
        return None
    marks = run.events.filter((pl.col("kind") == "step") & pl.col("dur").is_not_null())
    if look.phase is not None:
        marks = marks.filter(pl.col("phase") == look.phase)
    if marks.is_empty():
        return None
    inside = timed(run, look).filter(pl.col("step").is_in(marks["step"].implode()))
    return int(marks["dur"].sum()) - int(inside.select(pl.col("dur").sum()).collect().item())
