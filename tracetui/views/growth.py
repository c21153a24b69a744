"""Growth: how each op's time per token changes over the decode steps, and which steps are outliers."""

from collections.abc import Sequence
from itertools import starmap
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import growth
from tracetui.analysis.frames import selection
from tracetui.analysis.growth import Growth, compute_growth
from tracetui.analysis.time import step_sampling
from tracetui.analysis.time.step_table import describe_reported_phase
from tracetui.look import Look
from tracetui.views import Answer, View, _category, charts, choose_group, ink
from tracetui.views._merging import build_sum_merging
from tracetui.views.ink import DrawSize, Line

SHOWN_COLUMNS: Final = (
    "trend", "first_ns", "last_ns", "law", "slope_ns_per_1k", "slope_low_ns_per_1k", "slope_high_ns_per_1k",
    "share_first", "share_last", "half_step", "outliers", "name", "r2", "steps", "slope_se_ns_per_1k",
    "total_ns", "plain_trend",
)  # fmt: skip
ONE_STEP_COLUMNS: Final = ("total_ns", "share_last", "name")
ON_LINE_TOLERANCE: Final = 0.02
MAX_NAMED_ROWS: Final = 8  # of the slow rows, in a note
MAX_CHARTED_ROWS: Final = 3  # without a selection

_AXIS_NOTES: Final = {
    "context": "x is the context in tokens; slopes are per 1,000 of them",
    "tokens": "x is tokens generated, slopes are per 1,000: this source does not report the context length",
    "step": "x is the step number: this source reports neither context length nor tokens of all steps",
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per op with its growth law; notes name the slow steps."""
    run, group = runs[0], choose_group(runs[:1], look.group)
    fitted = compute_growth(run, look, group)
    parts = {"series": fitted.series, "steps": fitted.steps, "slow": fitted.slow, "lines": fitted.lines}
    parts |= _category.build_category_part([run], group)
    sampling = step_sampling.note_lens_and_sampling(run, look)
    if fitted.rows.is_empty():
        return Answer(fitted.rows, (selection.explain_no_kernels(run), *sampling), (group,), parts)
    printed = describe_reported_phase(run, look.phase or "decode")
    notes = (
        *growth.describe_growing_rows(fitted),
        _describe_scope(fitted),
        *growth.describe_pace(fitted),
        *([printed] if printed else []),
        _AXIS_NOTES[fitted.axis],
        *sampling,
        *_describe_slow_steps(fitted),
    )
    return Answer(_sort_growing_first(fitted, group), notes, (group,), parts)


def _sort_growing_first(fitted: Growth, group: str) -> pl.DataFrame:
    """Sort the growing rows first, by their growth; the others keep their order."""
    order = growth.list_growing_rows(fitted)
    rank_by_name = {name: at for at, name in enumerate(order)}
    at = [rank_by_name.get(name, len(order)) for name in fitted.rows[group].to_list()]
    return fitted.rows.sort(pl.Series(at, dtype=pl.Int64), maintain_order=True)


def _describe_scope(fitted: Growth) -> str:
    steps = int(fitted.steps["steps"].sum())
    total = units.format_duration(int(fitted.steps["dur"].sum()))
    count = f"{steps} step{'s' * (steps != 1)}"
    if fitted.axis == "step":
        return f"{count}, {total} measured; values are per step, slopes per 1,000 steps"
    tokens = int(fitted.steps["tokens"].sum())
    return f"{count}, {tokens:,} tokens, {total} measured; values are per token"


def _describe_slow_steps(fitted: Growth) -> list[str]:
    """Return a note per sequence of steps above the fitted line, with the slow rows in it."""
    off = fitted.steps.filter("outlier").with_columns(
        stretch=(pl.col("step").diff() != 1).fill_null(True).cum_sum()
    )
    return [_describe_slow_stretch(fitted, part) for _, part in off.group_by("stretch", maintain_order=True)]


def _describe_slow_stretch(fitted: Growth, part: pl.DataFrame) -> str:
    slow = fitted.slow.filter(pl.col("step").is_in(part["step"].implode()))
    low, high, y, expected = pl.col("ratio").min(), pl.col("ratio").max(), pl.col("y"), pl.col("expected")
    rows = slow.group_by("row").agg(y.sum(), low=low, high=high, excess=(y - expected).sum())
    rows = rows.sort("excess", "row", descending=[True, False])
    excess, total = float(rows["excess"].sum()), float(rows["y"].sum())
    is_above = pl.col("high") >= 1 + ON_LINE_TOLERANCE
    still = rows.filter(~is_above, pl.col("low") > 1 - ON_LINE_TOLERANCE, y > 0.05 * total)
    slow = rows.filter(is_above, pl.col("excess") > 0.01 * abs(excess))
    ratios = (part["y"] / part["expected"]).to_list()
    what = ", ".join(_format_row_ratio(r) for r in slow.head(MAX_NAMED_ROWS).iter_rows(named=True))
    rest = f"; {', '.join(map(growth.format_row_name, still['row']))} on the line" if still.height else ""
    span = _format_range(min(ratios), max(ratios))
    steps = units.format_ranges(part["step"])
    return f"step {steps}: {span} its line: {what or 'no single row stands out'}{rest}"


def _format_row_ratio(row: dict[str, Any]) -> str:
    return f"{growth.format_row_name(row['row'])} {_format_range(row['low'], row['high'])}"


def _format_range(low: float, high: float) -> str:
    a, b = (f"{v:.1f}" if v >= 1.95 else f"{v:.2f}" for v in (low, high))
    return f"{a}×" if a == b else f"{a}–{b}×"


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw the table, and the selected rows as a chart below."""
    if answer.rows.is_empty():
        return []
    tones, is_one_step = _select_trend_styles(answer.rows), int(answer.rows["steps"].max() or 0) < 2  # type: ignore[arg-type]
    columns = ONE_STEP_COLUMNS if is_one_step else SHOWN_COLUMNS
    axis = str(answer.rows["axis"][0]) if "axis" in answer.rows.columns else "step"
    headings = {"slope_ns_per_1k": f"slope/1k {'steps' if axis == 'step' else 'tokens'}"}
    table, room = _category.draw_table_above_chart(answer, look, size, columns, tones, headings)
    points = _build_series(answer, look)
    if len({x for series in points.values() for x, _ in series}) < 2:
        sentence = f"one {axis} only: nothing can be said about growth"
        return ink.clip_lines([*table, ink.make_line(), ink.make_line((sentence, "dim"))], size)
    chart = charts.draw_chart(points, room, x_label=axis, y_text=units.format_duration)
    return ink.clip_lines([*table, *chart], size)


def _select_trend_styles(rows: pl.DataFrame) -> dict[str, Sequence[str]]:
    """Return the style of each trend: growing, shrinking or with spikes."""
    columns = rows.select("law", "slope_ns_per_1k", "outliers").iter_rows()
    return {"trend": list(starmap(_select_trend_style, columns))}


def _select_trend_style(law: str | None, slope: float | None, outliers: str | None) -> str:
    if law in growth.MOVING_LAWS and slope:
        return "bad" if slope > 0 else "good"
    return "warn" if outliers else "dim" if law == "flat" else ""


def _build_series(answer: Answer, look: Look) -> dict[str, list[charts.Point]]:
    """Return the points of the charted rows; growing rows also get their fitted line."""
    grow = _list_growing_rows(answer)
    fitted = answer.parts["lines"].select("row", "slope", "intercept").rows()
    lines = {row: (slope, level) for row, slope, level in fitted if row in grow and slope is not None}
    out: dict[str, list[charts.Point]] = {}
    for name in _select_charted_rows(answer, look, grow):
        own_points = answer.parts["series"].filter(pl.col("row").eq_missing(pl.lit(name)))
        label = growth.format_row_name(name)
        points = out[label] = own_points.select("x", "even_y").rows()
        if name in lines:
            slope, level = lines[name]
            out[f"{label}, fitted line"] = [(x, level + slope * x) for x, _ in (points[0], points[-1])]
    return out


def _select_charted_rows(answer: Answer, look: Look, grow: Sequence[Any]) -> list[Any]:
    """Return the selected rows; without a selection the cursor's row and the growing or largest rows."""
    if look.chosen:
        return [row[0] for row in look.chosen]
    keys = answer.rows[answer.key[0]].to_list()
    at_cursor = keys[look.cursor[0] : look.cursor[0] + 1]
    return [*at_cursor, *(k for k in grow or keys if k not in at_cursor)][:MAX_CHARTED_ROWS]


def _list_growing_rows(answer: Answer) -> list[Any]:
    columns = (answer.key[0], "law", "slope_ns_per_1k")
    return [
        key for key, law, slope in answer.rows.select(columns).iter_rows()
        if law in growth.MOVING_LAWS and (slope or 0) > 0
    ]  # fmt: skip


_NEEDS: Final = frozenset({"dur", "step"})
VIEW = View(
    "growth",
    "Growth",
    answer,
    draw,
    needs=_NEEDS,
    merging=build_sum_merging(
        answer, lambda run, look: (choose_group([run], look.group), "name", "step", "phase"), _NEEDS
    ),
    columns=("op", *SHOWN_COLUMNS),
    default_group="op",
)
