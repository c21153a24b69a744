"""Compare: N runs side by side, a row a kernel, op or row of another view, and how each row scales."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui import glyphs
from tracetui.look import Look
from tracetui.units import ABSENT
from tracetui.views import MANY, Answer, Dress, Focus, View, _category, ask, view
from tracetui.views._grid import NOTHING_LEFT
from tracetui.views.diff import labels
from tracetui.views.ink import Line, Span

if TYPE_CHECKING:
    from tracetui.analysis.compare.matrix import Matrix

LAW: Final = ("exponent", "r2")
BOUNDS: Final = (10.0, 25.0, 100.0)  # per cent from the median of a row from which a cell is coloured
_UNITS: Final = {"_ns": "_ns", "bytes": "_bytes"}  # the end of a column's name → that of the matrix
MEASURES: Final = ("total_ns", "dur_ns", "self_ns", "wall_ns", "bytes", "mean", "value", "p50_ns", "mean_ns")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a kernel, with a column a run and, where the runs have an axis, the law along it."""
    return replace(_compared(runs, look), dress=_dressed(runs, look))


def _dressed(runs: Sequence[Run], look: Look) -> Dress:
    """Return the colours of the cells, and of the names where the rows are kernels."""
    if look.terms.of != "kernels":
        return Dress(tones, legend=legend)
    names = _category.by(runs, look.group or "name", "row")

    def both(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
        return {**names.tones(rows), **tones(rows)}

    def told(rows: pl.DataFrame) -> Line:
        return (*legend(rows), *(names.legend(rows) if names.legend else ()))

    return Dress(both, legend=told)


def _compared(runs: Sequence[Run], look: Look) -> Answer:
    """Return the answer without its colours."""
    from tracetui.analysis.compare.matrix import axis, matrix, scaling  # numpy loads with them

    of = look.terms.of
    if of == "kernels" and look.terms.value in ("", "total_ns"):
        table, unit, what = matrix(runs, look, labels(*runs)), "_ns", "total"
    else:
        table, unit, what = _matrix_of_view(view(of), runs, look)
    notes = [f"{len(runs)} runs; {table.rows.height} rows of {of}: {what.replace('_', ' ')}"]
    notes += _cut(table)
    along = axis(runs)
    law = scaling(table, along) if along is not None and table.columns else None
    notes += _means(table, min(look.terms.baseline or 0, len(runs) - 1), unit)
    if table.columns:
        table, how = _divided(table, runs, look, unit)
        notes.append(how)
    if law is None or along is None:
        return Answer(table.rows, tuple(notes), ("row",), {"names": _names(table)})
    families = len(set(along.families))
    within = f", one slope through {families} families" if families > 1 else ""
    notes.append(
        f"exponent: {what.removesuffix('_ns')} ∝ {along.name}^exponent, fitted over {len(runs)} runs{within}"
    )
    rows = pl.concat([table.rows.select("row"), law, table.rows.drop("row")], how="horizontal")
    return Answer(rows, tuple(notes), ("row",), {"names": _names(table)})


def _means(table: "Matrix", base: int, unit: str) -> list[str]:
    """Return a note with the geometric mean of each run's rows, as multiples of one run."""
    from tracetui.analysis.compare.against import geometric_mean

    if len(table.columns) < 2:
        return []
    values = [table.rows[c].to_list() for c in table.columns]
    names = [c.removesuffix(unit) for c in table.columns]
    means = [(n, geometric_mean(values[base], v)) for n, v in zip(names, values, strict=True)]
    told = [f"{name} {mean:.3g}×" for i, (name, mean) in enumerate(means) if i != base and mean is not None]
    return [f"geometric mean of the rows, against {names[base]}: {', '.join(told)}"] if told else []


def _divided(table: "Matrix", runs: Sequence[Run], look: Look, unit: str) -> "tuple[Matrix, str]":
    """Return the matrix by its baseline, with verdicts where its rows are kernels, and a note on it."""
    from tracetui.analysis.compare.matrix import normalised

    if look.terms.baseline is None:
        return table, "colours tell how far a run is from the median of its row; b divides by the run shown"
    base = min(look.terms.baseline, len(runs) - 1)
    multiples = normalised(table, base, unit)
    judged = _judged(multiples, runs, base, look) if look.terms.of == "kernels" else multiples
    name = labels(*runs)[base]
    return judged, f"each cell is a multiple of the same row in {name}; [ ] take another run, b none"


def _judged(table: "Matrix", runs: Sequence[Run], base: int, look: Look) -> "Matrix":
    """Return the matrix with what a diff against the baseline says of each cell."""
    from tracetui.analysis.compare.against import verdicts_against

    rows, columns = table.rows, ["row"]
    for i, (run, column) in enumerate(zip(runs, table.columns, strict=True)):
        columns.append(column)
        if i != base:
            named = f"{column.removesuffix('_times')} verdict"
            found = verdicts_against(runs[base], run, look).rename({"verdict": named})
            rows = rows.join(found, on="row", how="left", maintain_order="left")
            columns.append(named)
    return replace(table, rows=rows.select(columns))


def _cut(table: "Matrix") -> list[str]:
    """Return notes on truncated names: how many were completed, and how many may be several others."""
    joined, rows = len(table.completed), len(set(table.completed.values()))
    notes = []
    if table.renamed:
        count = len(table.renamed)
        notes.append(f"rows that are the same work under another name, matched as in a diff: {count}")
    if joined:
        notes.append(f"names cut at different lengths, which one alone completes: {joined}, in {rows} rows")
    if table.doubtful:
        notes.append(
            f"cut names that stand alone, since several complete them or none does: {table.doubtful}"
        )
    return notes


def _names(table: "Matrix") -> pl.DataFrame:
    """Return row, names: what a row is called in the runs, where these differ."""
    others = {**table.renamed, **table.completed}
    completed = pl.DataFrame({"name": list(others), "row": list(others.values())}, _NAMES)
    return completed.group_by("row", maintain_order=True).agg(pl.col("name").alias("names"))


_NAMES: Final = {"name": pl.String, "row": pl.String}


def _matrix_of_view(asked: View, runs: Sequence[Run], look: Look) -> "tuple[Matrix, str, str]":
    """Return the rows of a view of one run by their keys, the unit and the name of the column compared.

    Raise UsageError where the view has no rows with keys, or not this column.
    """
    from tracetui.analysis.compare.matrix import joined

    answers = [ask(asked, [run], look) for run in runs] if asked.runs == 1 else []
    first = next((a for a in answers if not a.rows.is_empty()), None)
    if first is None or not first.key:
        raise UsageError(f"the {asked.name} view has no rows to set beside each other", todo="--view kernels")
    value = _measure(asked, first, look)
    unit = next((unit for suffix, unit in _UNITS.items() if value.endswith(suffix)), "")
    return joined([_column(a, first.key, value) for a in answers], labels(*runs), unit), unit, value


def _measure(asked: View, answer: Answer, look: Look) -> str:
    """Return the column to compare: the one asked for, else the first of MEASURES."""
    numbers = [c for c, kind in answer.rows.schema.items() if kind.is_numeric()]
    value = look.terms.value or next((c for c in MEASURES if c in answer.rows.columns), "")
    if value in numbers:
        return value
    choice = ", ".join(c for c in numbers if c not in answer.key)
    raise UsageError(f"the {asked.name} view has no number {value!r}", todo=f"--value {choice}")


def _column(answer: Answer, key: Sequence[str], value: str) -> pl.DataFrame:
    """Return row, value: the key of a row as one text; rows of the same key are added up."""
    if answer.rows.is_empty() or value not in answer.rows.columns:
        return pl.DataFrame(schema={"row": pl.String, "value": pl.Float64})
    named = pl.concat_str([pl.col(k).cast(pl.String).fill_null("–") for k in key], separator=" · ")
    rows = answer.rows.select(named.alias("row"), pl.col(value).alias("value"))
    return rows.group_by("row", maintain_order=True).agg(pl.col("value").sum())


def tones(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """Return for each cell of a row the style of how far it is from their median; of a multiple of a
    baseline that of the change.
    """
    columns = [c for c, t in rows.schema.items() if t.is_numeric() and c not in LAW]
    painted = [_row_styles(columns, row) for row in rows.select(columns).iter_rows()]
    return {c: [styles[i] for styles in painted] for i, c in enumerate(columns)}


def _row_styles(columns: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """Return a style for each cell of a row; none where it is near to what it is held against."""
    multiples = columns and columns[0].endswith("_times")
    known = [v for v in values if v is not None]
    usual, bounds = (1.0, glyphs.DRIFTS) if multiples else (median(known) if known else 0.0, BOUNDS)
    changes = [None if v is None else 100 * (v / usual - 1) if usual > 0 else 0.0 for v in values]
    return ["dim" if c is None else glyphs.drift(c, bounds) if abs(c) >= bounds[0] else "" for c in changes]


def legend(rows: pl.DataFrame) -> Line:
    """Return what the colours of the cells mean."""
    multiples = any(c.endswith("_times") for c in rows.columns)
    bounds, over = (glyphs.DRIFTS, " ") if multiples else (BOUNDS, " over the median of the row  ")
    steps = (*(-b for b in reversed(bounds) if b < NOTHING_LEFT), *bounds)
    return (*(Span(f" {b:+.0f}% ", glyphs.drift(b, bounds)) for b in steps), Span(over, "dim"))


def enter(answer: Answer, look: Look) -> Focus:
    """Return the row in the run that is shown."""
    row = look.cursor[0]
    if not 0 <= row < answer.rows.height or look.terms.of != "kernels":
        return ()
    group, value = look.group or "name", answer.rows[row, "row"]
    names = answer.parts["names"].filter(pl.col("row") == value)["names"].to_list()
    if names:
        return ((group, tuple(names[0])),)
    if value == ABSENT:
        return ((group, None),)
    return ((group, int(value) if group in ("layer", "step") and value.isdecimal() else value),)


VIEW = View(
    "compare",
    "Compare",
    answer,
    needs=frozenset({"dur"}),
    runs=MANY,
    columns=("row", *LAW),
    dress=Dress(tones, legend=legend),
    enter=enter,
)
