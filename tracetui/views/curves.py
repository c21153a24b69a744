"""Curves: how the time of an op grows in two runs, on one chart."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.growth import compare_growth
from tracetui.look import Look
from tracetui.views import Answer, View, _category, charts, choose_group, ink
from tracetui.views.diff import describe_sides
from tracetui.views.ink import DrawSize, Line

COLUMNS = (
    "slope_a_ns_per_1k", "slope_b_ns_per_1k", "slope_ratio", "cross", "law_a", "law_b", "r2_a", "r2_b",
    "first_a_ns", "first_b_ns", "last_a_ns", "last_b_ns",
)  # fmt: skip
RATIOS_NOTE = "slope ratios need lines on both sides, crossings need laws that are not noise"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per op: its law and slope in both runs, and where the two lines cross."""
    group = choose_group(runs[:2], look.group)
    compared = compare_growth(runs[0], runs[1], look, group)
    axis = compared.a.axis
    per = "step" if axis == "step" else "token"
    notes = [describe_sides(runs), f"times are per {per} and slopes per 1,000 of {axis}; {RATIOS_NOTE}"]
    if axis != compared.b.axis:
        notes.append(f"b's x is {compared.b.axis}: the x axes differ")
    sides = [
        side.series.select(
            _cast_small_to_text(side.series["row"]), "x", y="even_y", side=pl.lit(s), axis=pl.lit(axis)
        )
        for side, s in ((compared.a, "a"), (compared.b, "b"))
    ]
    parts = {
        "series": pl.concat(sides, how="vertical_relaxed"),
        **_category.build_category_part(runs[:2], group),
    }
    return Answer(compared.rows.select(group, *COLUMNS), tuple(notes), (group,), parts)


def _cast_small_to_text(rows: pl.Series) -> pl.Series:
    """Cast rows to text for comparisons; categorical rows (possibly millions) stay as they are."""
    return rows if rows.dtype == pl.Categorical else rows.cast(pl.String)


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw the table; below it the row under the cursor, in a and in b."""
    if answer.rows.is_empty():
        return []
    table, room = _category.draw_table_above_chart(answer, look, size, COLUMNS)
    name = answer.rows[answer.key[0]][min(look.cursor[0], answer.rows.height - 1)]
    points = answer.parts["series"].filter(pl.col("row") == name)
    lines = {f"{name} in {s}": points.filter(pl.col("side") == s).select("x", "y").rows() for s in "ab"}
    axis = next(iter(points["axis"]), "")
    chart = charts.draw_chart(lines, room, x_label=axis, y_text=units.format_duration)
    return ink.clip_lines([*table, *chart], size)


VIEW = View(
    "curves", "Growth a|b", answer, draw, needs=frozenset({"dur", "step"}), run_count=2, default_group="op"
)
