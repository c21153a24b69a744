"""Compare: N runs side by side, one row per kernel, op or row of another view, and its scaling law."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

import polars as pl

from capture.errors import UsageError
from capture.run import Run
from tracetui import glyphs
from tracetui.analysis.energy import note_energy
from tracetui.analysis.roofline import ROOF_COLUMNS, unify_roofs
from tracetui.compare.run_sides import Sides
from tracetui.look import Look
from tracetui.units import ABSENT
from tracetui.views import MANY, Answer, Focus, TableStyle, View, _category, ask, find_cursor_row, load_view
from tracetui.views._grid import FULL_LOSS_PCT
from tracetui.views.diff import build_labels
from tracetui.views.ink import Line, Span

if TYPE_CHECKING:
    from tracetui.compare.run_matrix import RunMatrix

LAW_COLUMNS: Final = ("exponent", "r2")
BOUNDS_PCT: Final = (10.0, 25.0, 100.0)  # distances from the row median at which the colour changes
_UNITS: Final = {"_ns": "_ns", "bytes": "_bytes"}  # suffix of the compared column → suffix in the matrix
VALUE_COLUMNS: Final = (
    "total_ns", "dur_ns", "self_ns", "wall_ns", "bytes", "mean", "value", "p50_ns", "mean_ns",
)  # fmt: skip


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per kernel, with a column per run and, if the runs have an axis, the law along it."""
    return replace(_build_answer(runs, look), table_style=_build_table_style(runs, look))


def _build_table_style(runs: Sequence[Run], look: Look) -> TableStyle:
    """Return the colours of the cells, and of the names if the rows are kernels."""
    if look.terms.of != "kernels":
        return TableStyle(select_cell_styles, legend=draw_legend)
    names = _category.build_style_by_column(runs, look.group or "name", "row")

    def select_both_styles(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
        return {**names.cell_styles(rows), **select_cell_styles(rows)}

    def draw_both_legends(rows: pl.DataFrame) -> Line:
        return (*draw_legend(rows), *(names.legend(rows) if names.legend else ()))

    return TableStyle(select_both_styles, legend=draw_both_legends)


def _build_answer(runs: Sequence[Run], look: Look) -> Answer:
    from tracetui.compare.run_matrix import build_matrix, find_axis, fit_scaling  # numpy loads with it

    of, roof_notes = look.terms.of, list[str]()
    if of == "kernels" and look.terms.value in ("", "total_ns"):
        table, unit, what = build_matrix(runs, look, build_labels(*runs)), "_ns", "total"
    else:
        runs, roof_notes = unify_roofs(runs) if look.terms.value in ROOF_COLUMNS else (runs, [])
        table, unit, what = _build_view_matrix(load_view(of), runs, look)
    notes = [f"{len(runs)} runs; {table.rows.height} rows of {of}: {what.replace('_', ' ')}"]
    notes += [*roof_notes, *_describe_cut_names(table)]
    along = find_axis(runs)
    law = fit_scaling(table, along) if along is not None and table.columns else None
    notes += _describe_means(table, min(look.terms.baseline or 0, len(runs) - 1), unit)
    notes += _describe_work(runs, look)
    labelled = zip(build_labels(*runs), runs, strict=True)
    notes += note_energy([(label, [run]) for label, run in labelled], look.price)
    if table.columns:
        table, how = _divide_by_baseline(table, runs, look, unit)
        notes.append(how)
    rows = table.rows
    if law is not None and along is not None:
        families, amount = len(set(along.families)), what.removesuffix("_ns")
        within = f", one slope through {families} families" if families > 1 else ""
        notes.append(f"exponent: {amount} ∝ {along.name}^exponent, fitted over {len(runs)} runs{within}")
        rows = pl.concat([rows.select("row"), law, rows.drop("row")], how="horizontal")
    return Answer(rows, tuple(notes), ("row",), {"names": _list_other_names(table)})


def _describe_means(table: "RunMatrix", base: int, unit: str) -> list[str]:
    """Return a note with the geometric mean of each run's rows, relative to the baseline."""
    from tracetui.compare.run_matrix import compute_geometric_mean

    if len(table.columns) < 2:
        return []
    values = [table.rows[c].to_list() for c in table.columns]
    names = [c.removesuffix(unit) for c in table.columns]
    means = [(n, compute_geometric_mean(values[base], v)) for n, v in zip(names, values, strict=True)]
    ratios = [f"{name} {mean:.3g}×" for i, (name, mean) in enumerate(means) if i != base and mean is not None]
    return [f"geometric mean of the rows, relative to {names[base]}: {', '.join(ratios)}"] if ratios else []


def _describe_work(runs: Sequence[Run], look: Look) -> list[str]:
    """Return a note for each run whose work differs from that of the baseline, if there is one."""
    from tracetui.compare.pairing.equal_work import describe_differences, find_work_differences

    if look.terms.baseline is None:
        return []
    base = min(look.terms.baseline, len(runs) - 1)
    notes = []
    for label, run in zip(build_labels(*runs), runs, strict=True):
        works = find_work_differences(runs[base], run, look.terms.align) if run is not runs[base] else ()
        notes += [f"{label}: {line}" for line in describe_differences(works)]
    return notes


def _divide_by_baseline(
    table: "RunMatrix", runs: Sequence[Run], look: Look, unit: str
) -> "tuple[RunMatrix, str]":
    """Divide the matrix by its baseline, with verdicts if its rows are kernels; also return a note."""
    from tracetui.compare.run_matrix import normalise_to_baseline

    if look.terms.baseline is None:
        return table, "colours show the distance from the row median; b divides by the displayed run"
    base = min(look.terms.baseline, len(runs) - 1)
    table = normalise_to_baseline(table, base, unit)
    if look.terms.of == "kernels":
        table = _add_verdicts(table, runs, base, look)
    name = build_labels(*runs)[base]
    return table, f"cells are multiples of the same row in {name}; [ ] select another run, b ends this"


def _add_verdicts(table: "RunMatrix", runs: Sequence[Run], base: int, look: Look) -> "RunMatrix":
    """Add the verdict of a diff against the baseline next to each cell."""
    from tracetui.compare.run_matrix import judge_against

    rows, columns, sides = table.rows, ["row"], Sides.from_runs(runs).without_repeats()
    for i, (run, column) in enumerate(zip(runs, table.columns, strict=True)):
        columns.append(column)
        if i != base:
            columns.append(f"{column.removesuffix('_times')} verdict")
            verdicts = judge_against(replace(sides, runs=(runs[base], run)), look)
            verdicts = verdicts.rename({"verdict": columns[-1]})
            rows = rows.join(verdicts, on="row", how="left", maintain_order="left")
    return replace(table, rows=rows.select(columns))


def _describe_cut_names(table: "RunMatrix") -> list[str]:
    """Return notes on truncated names: how many were completed, and how many stay ambiguous."""
    renamed, completed = len(table.renamed_rows), len(table.completed_names)
    rows, ambiguous = len(set(table.completed_names.values())), table.ambiguous_count
    notes = (
        (renamed, f"rows matched under another name, as in a diff: {renamed}"),
        (completed, f"truncated names that were completed: {completed}, in {rows} rows"),
        (ambiguous, f"truncated names without a unique completion: {ambiguous}"),
    )
    return [note for count, note in notes if count]


def _list_other_names(table: "RunMatrix") -> pl.DataFrame:
    """Return row, names: the names of a row in the runs, if they differ."""
    row_by_name = {**table.renamed_rows, **table.completed_names}
    schema = {"names": pl.String, "row": pl.String}
    names = pl.DataFrame(list(row_by_name.items()), schema, orient="row")
    return names.group_by("row", maintain_order=True).agg("names")


def _build_view_matrix(view: View, runs: Sequence[Run], look: Look) -> "tuple[RunMatrix, str, str]":
    """Return the rows of a single-run view by key, the unit and the name of the compared column.

    Raise UsageError if the view has no keyed rows, or lacks the column.
    """
    from tracetui.compare.run_matrix import join_tables

    answers = [ask(view, [run], look) for run in runs] if view.run_count == 1 else []
    first = next((a for a in answers if not a.rows.is_empty()), None)
    if first is None or not first.key:
        raise UsageError(f"the {view.name} view has no rows to compare", todo="--view kernels")
    value = _resolve_value_column(view, first, look)
    unit = next((unit for suffix, unit in _UNITS.items() if value.endswith(suffix)), "")
    tables = [_select_value_column(a, first.key, value) for a in answers]
    return join_tables(tables, build_labels(*runs), unit), unit, value


def _resolve_value_column(view: View, answer: Answer, look: Look) -> str:
    """Return the requested numeric column, else the first of VALUE_COLUMNS."""
    numbers = [c for c, kind in answer.rows.schema.items() if kind.is_numeric()]
    value = look.terms.value or next((c for c in VALUE_COLUMNS if c in answer.rows.columns), "")
    if value in numbers:
        return value
    choice = ", ".join(c for c in numbers if c not in answer.key)
    raise UsageError(f"the {view.name} view has no numeric column {value!r}", todo=f"--value {choice}")


def _select_value_column(answer: Answer, key: Sequence[str], value: str) -> pl.DataFrame:
    """Return row, value: the key of a row as one text; equal keys are summed."""
    if answer.rows.is_empty() or value not in answer.rows.columns:
        return pl.DataFrame(schema={"row": pl.String, "value": pl.Float64})
    named = pl.concat_str([pl.col(k).cast(pl.String).fill_null("–") for k in key], separator=" · ")
    rows = answer.rows.select(named.alias("row"), pl.col(value).alias("value"))
    return rows.group_by("row", maintain_order=True).agg(pl.col("value").sum())


def select_cell_styles(rows: pl.DataFrame) -> Mapping[str, Sequence[str]]:
    """Return the style of each cell by its distance from the row median, or from the baseline."""
    columns = [c for c, t in rows.schema.items() if t.is_numeric() and c not in LAW_COLUMNS]
    painted = [_select_row_styles(columns, row) for row in rows.select(columns).iter_rows()]
    return {c: [styles[i] for styles in painted] for i, c in enumerate(columns)}


def _select_row_styles(columns: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """Return a style per cell of a row; plain if the value is close to its reference."""
    reference, bounds = 1.0, glyphs.CHANGE_BOUNDS_PCT
    if not columns or not columns[0].endswith("_times"):
        reference, bounds = median([v for v in values if v is not None] or [0.0]), BOUNDS_PCT
    changes = [None if v is None else 100 * (v / reference - 1) if reference > 0 else 0.0 for v in values]
    return [
        "dim" if c is None else glyphs.select_change_style(c, bounds) if abs(c) >= bounds[0] else ""
        for c in changes
    ]


def draw_legend(rows: pl.DataFrame) -> Line:
    """Draw the legend of the cell colours."""
    bounds, over = BOUNDS_PCT, " over the median of the row  "
    if any(c.endswith("_times") for c in rows.columns):
        bounds, over = glyphs.CHANGE_BOUNDS_PCT, " "
    steps = (*(-b for b in reversed(bounds) if b < FULL_LOSS_PCT), *bounds)
    return (*(Span(f" {b:+.0f}% ", glyphs.select_change_style(b, bounds)) for b in steps), Span(over, "dim"))


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the row in the run that is displayed."""
    row = find_cursor_row(answer, look)
    if row is None or look.terms.of != "kernels":
        return ()
    group, value = look.group or "name", row["row"]
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
    run_count=MANY,
    columns=("row", *LAW_COLUMNS),
    table_style=TableStyle(select_cell_styles, legend=draw_legend),
    find_focus=find_focus,
)
