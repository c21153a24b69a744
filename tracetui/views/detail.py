"""Detail of one row of another view: distribution, trend over steps, layers, launches."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.classify.name_rules import infer_scope_roles
from capture.run import Run
from tracetui import units
from tracetui.analysis import classification_reasons
from tracetui.analysis import detail as analysis
from tracetui.analysis.frames import selection
from tracetui.analysis.time import step_sampling
from tracetui.look import Look
from tracetui.views import Answer, View, _category, charts, ink
from tracetui.views.ink import DrawSize, Line

_STATISTICS: Final = ("count", "total_ns", "mean_ns", "p50_ns", "p95_ns", "p99_ns", "min_ns", "max_ns")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return the launches of the row in focus; statistics, histogram, steps and layers as parts."""
    run = runs[0]
    rows = analysis.select_launches(run, look)
    about = " and ".join(look.focus_labels) or "all rows"
    notes = (about, *step_sampling.note_lens_and_sampling(run, look, scaled=True))
    if rows.is_empty():
        return Answer(rows, (selection.explain_no_kernels(run), *notes))
    parts = {
        "statistics": analysis.compute_statistics(run, look),
        "histogram": analysis.compute_histogram(rows["dur_ns"]),
        "steps": analysis.sum_by_step(run, look),
        "layers": analysis.sum_by_layer(run, look),
        "forms": analysis.group_launch_configs(rows),
        "category": analysis.list_categories(run, look),
    }
    return Answer(rows, (*notes, *_explain_classification(run, look), *_describe_rows(run)), parts=parts)


def _explain_classification(run: Run, look: Look) -> list[str]:
    """Explain the op and category of the kernel in focus; nothing for other rows."""
    if "name" not in look.focus_values:
        return []
    rows = selection.select_timed(run, look).head(1).collect()
    name, op, category, path = (
        rows[c].cast(pl.String)[0] if c in rows.columns else None for c in ("name", "op", "category", "path")
    )
    if name is None or category is None:
        return []
    scope = infer_scope_roles([path]).get(path or "")
    reason = classification_reasons.explain_kernel(run, name, op, category, scope)
    return [f"op {op or 'unknown'}, category {category}: {reason}"]


def _describe_rows(run: Run) -> list[str]:
    if selection.has_step_sums(run):
        return ["rows are sums per step: the distribution is over steps, not launches"]
    if selection.has_aggregates(run):
        return ["some rows represent many launches: the distribution is over rows"]
    return []


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw as many parts as fit, the distribution first."""
    if answer.rows.is_empty():
        return []
    forms, layers = answer.parts["forms"], answer.parts["layers"]
    lines = _draw_statistics(answer)
    if answer.rows.height > 1:  # a single row has no distribution
        lines += [ink.make_line(), ink.make_line(("distribution", "title"))]
        lines += _draw_histogram(answer, size)
    if (left := size.height - len(lines)) >= 11:
        lines += _draw_steps(answer, size.with_height(min(14, max(8, left // 2))))
    if forms.width and size.height - len(lines) >= 6:
        lines += [ink.make_line(), *ink.draw_table(forms, size.with_height(min(forms.height + 1, 4)))]
    if layers.height > 1 and (left := size.height - len(lines)) >= 8:
        lines += _draw_layers(answer, size.with_height(min(layers.height, left // 2 - 1)))
    if (left := size.height - len(lines)) >= 4:
        lines += [ink.make_line(), *ink.draw_table(answer.rows, size.with_height(left - 1))]
    return ink.clip_lines(lines, size)


def _draw_statistics(answer: Answer) -> list[Line]:
    """Draw two lines: amounts, and their distribution."""
    row = answer.parts["statistics"].row(0, named=True)
    amounts, spread = (
        [
            part
            for c in columns
            if row[c] is not None
            for part in ((f"{units.format_heading(c)} ", "dim"), f"{units.format_cell(c, row[c])}  ")
        ]
        for columns in (_STATISTICS[:3], _STATISTICS[3:])
    )
    if category := _find_only_category(answer):
        amounts += [("category ", "dim"), (category, _category.select_name_style(category))]
    return [ink.make_line(*parts) for parts in (amounts, spread) if parts]


def _find_only_category(answer: Answer) -> str:
    """Return the category that all rows share; empty if there is none, or several."""
    categories = answer.parts["category"]["category"]
    return str(categories[0]) if categories.len() == 1 else ""


def _select_style(answer: Answer) -> str:
    """Return the style of bars and curves: that of the category, if there is one."""
    return _category.select_name_style(_find_only_category(answer)) or "series0"


def _draw_histogram(answer: Answer, size: DrawSize) -> list[Line]:
    bins = answer.parts["histogram"]
    labels = [" – ".join(map(units.format_duration, edges)) for *edges, _ in bins.iter_rows()]
    styles, room = [_select_style(answer)] * len(labels), size.with_height(bins.height)
    return ink.draw_bars(bins["count"].to_list(), labels, room, styles=styles)


def _draw_steps(answer: Answer, size: DrawSize) -> list[Line]:
    steps = answer.parts["steps"]
    decode = steps.filter(pl.col("phase") == "decode")
    steps = decode if decode.height else steps
    if steps.height < 2:
        return []
    is_per_token = steps["per_token_ns"].null_count() == 0
    name, column = ("per token", "per_token_ns") if is_per_token else ("per step", "total_ns")
    points, styles = steps.select("step", column).rows(), [_select_style(answer)]
    return charts.draw_chart(
        {name: points}, size, x_label="step", y_text=units.format_duration, styles=styles
    )


def _draw_layers(answer: Answer, size: DrawSize) -> list[Line]:
    layers = answer.parts["layers"]
    labels, styles = [f"layer {n}" for n in layers["layer"]], [_select_style(answer)] * layers.height
    bars = ink.draw_bars(layers["total_ns"].to_list(), labels, size, units.format_duration, styles=styles)
    return [ink.make_line(("layers", "title")), *bars]


VIEW = View(
    "detail", "Detail", answer, draw, needs=frozenset({"dur"}), not_merged_because="it shows single launches"
)
