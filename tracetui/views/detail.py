"""Detail: one row of another view, entered: distribution, course over steps, layers, launches."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.classify.names import roles_of_scopes
from capture.run import Run
from tracetui import units
from tracetui.analysis import detail as analysis
from tracetui.analysis import select, why, windows
from tracetui.look import Look
from tracetui.views import Answer, View, _category, charts, ink
from tracetui.views.ink import Line, Size

_FIGURES: Final = ("count", "total_ns", "mean_ns", "p50_ns", "p95_ns", "p99_ns", "min_ns", "max_ns")


def detail(runs: Sequence[Run], look: Look) -> Answer:
    """Return the launches of the row in focus, with its statistics, histogram, steps and layers as parts."""
    run = runs[0]
    rows = analysis.launches(run, look)
    about = " and ".join(look.focus_words) or "all rows"
    notes = (about, *windows.scope(run, look, scaled=True))
    if rows.is_empty():
        return Answer(rows, (select.why_no_kernels(run), *notes))
    parts = {
        "statistics": analysis.statistics(run, look),
        "histogram": analysis.histogram(rows["dur_ns"]),
        "steps": analysis.by_step(run, look),
        "layers": analysis.by_layer(run, look),
        "forms": analysis.forms(rows),
        "category": analysis.category(run, look),
    }
    return Answer(rows, (*notes, *_why(run, look), *_notes(run)), parts=parts)


def _why(run: Run, look: Look) -> list[str]:
    """Return why the one kernel in focus has its op and category; nothing for other rows."""
    if "name" not in look.focused:
        return []
    rows = select.timed(run, look).head(1).collect()
    name, op, category, path = (
        rows[c].cast(pl.String)[0] if c in rows.columns else None for c in ("name", "op", "category", "path")
    )
    if name is None or category is None:
        return []
    scope = roles_of_scopes([path]).get(path or "")
    return [f"op {op or 'unknown'}, category {category}: {why.reason(run, name, op, category, scope)}"]


def _notes(run: Run) -> list[str]:
    if select.step_sums(run):
        return ["each row is the sum of one step: the distribution is of steps, not of launches"]
    if select.aggregates(run):
        return ["some rows stand for many launches: the distribution is of rows"]
    return []


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw as many of the parts as there is room for, the distribution first."""
    if answer.rows.is_empty():
        return []
    lines = _statistics(answer)
    if answer.rows.height > 1:  # one row, of however many launches, has no distribution
        lines += [ink.line(), ink.line(("distribution", "title"))]
        lines += _histogram(answer, Size(size.width, max(5, min(10, size.height // 4)), size.ascii))
    left = size.height - len(lines)
    if left >= 11:
        lines += _over_steps(answer, Size(size.width, min(14, max(8, left // 2)), size.ascii))
    left = size.height - len(lines)
    forms = answer.parts["forms"]
    if forms.width and left >= 6:
        lines += [ink.line(), *ink.table(forms, Size(size.width, min(forms.height + 1, 4), size.ascii))]
    left = size.height - len(lines)
    layers = answer.parts["layers"]
    if layers.height > 1 and left >= 8:
        lines += _layers(answer, Size(size.width, min(layers.height, left // 2 - 1), size.ascii))
    left = size.height - len(lines)
    if left >= 4:
        lines += [ink.line(), *ink.table(answer.rows, Size(size.width, left - 1, size.ascii))]
    return ink.clip(lines, size)


def _statistics(answer: Answer) -> list[Line]:
    """Return two lines: how much, and how it is spread."""
    row = answer.parts["statistics"].row(0, named=True)
    lines = []
    for columns in (_FIGURES[:3], _FIGURES[3:]):
        present = [c for c in columns if row[c] is not None]
        spans = ((units.heading(c) + " ", "dim") for c in present)
        values = (units.cell(c, row[c]) + "  " for c in present)
        lines.append(ink.line(*(part for pair in zip(spans, values, strict=True) for part in pair)))
    category = _category_of(answer)
    lines[0] = ink.line(
        *lines[0], *([("category ", "dim"), (category, _category.toned(category))] if category else [])
    )
    return [ln for ln in lines if ln]


def _category_of(answer: Answer) -> str:
    """Return the category that all rows are of; empty where there is none, or are several."""
    alone = answer.parts["category"]["category"]
    return str(alone[0]) if alone.len() == 1 else ""


def _style(answer: Answer) -> str:
    """Return the style of bars and courses: that of the category, where there is one."""
    return _category.toned(_category_of(answer)) or "series0"


def _histogram(answer: Answer, size: Size) -> list[Line]:
    bins = answer.parts["histogram"]
    labels = [f"{units.duration(low)} – {units.duration(high)}" for low, high, _ in bins.iter_rows()]
    room = Size(size.width, bins.height, size.ascii)
    return ink.bars(bins["count"].to_list(), labels, room, styles=[_style(answer)] * len(labels))


def _over_steps(answer: Answer, size: Size) -> list[Line]:
    steps = answer.parts["steps"]
    decode = steps.filter(pl.col("phase") == "decode")
    steps = decode if decode.height else steps
    if steps.height < 2:
        return []
    per_token = steps["per_token_ns"].null_count() == 0
    points = steps.select("step", "per_token_ns" if per_token else "total_ns").rows()
    name = "per token" if per_token else "per step"
    return charts.chart({name: points}, size, x_label="step", y_text=units.duration, styles=[_style(answer)])


def _layers(answer: Answer, size: Size) -> list[Line]:
    layers = answer.parts["layers"]
    labels = [f"layer {n}" for n in layers["layer"]]
    return [
        ink.line(("layers", "title")),
        *ink.bars(
            layers["total_ns"].to_list(), labels, size, units.duration, styles=[_style(answer)] * len(labels)
        ),
    ]


VIEW = View("detail", "Detail", detail, draw, needs=frozenset({"dur"}), alone="it shows single launches")
