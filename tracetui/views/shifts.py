"""Shifts: a heat map of changes between two runs, layer by op or by step."""

from collections.abc import Sequence
from typing import Any, Final

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis.frames.selection import NO_MATCH
from tracetui.compare.layer_diff import LayerDiff, compare_layers
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, _category, ink
from tracetui.views._grid import (
    Cell,
    build_grid,
    describe_cell,
    draw_change,
    draw_change_legend,
    draw_grid,
    find_cell_focus,
)
from tracetui.views.diff import describe_sides
from tracetui.views.ink import DrawSize, Line

MIN_NUMBER_PCT: Final = 0.5  # smaller changes show a sign instead of a number


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per layer and op, or layer and step, that both runs have."""
    a, b = runs[0], runs[1]
    column = _choose_column(runs, look)
    compared = compare_layers(runs[:2], look, column)
    key = ("layer", column)
    if compared.rows.is_empty():
        return Answer(compared.rows, (NO_MATCH, describe_sides(runs)), key)
    parts = _category.build_category_part((a, b), column)
    return Answer(compared.rows, (describe_sides(runs), _describe_scope(compared, column)), key, parts)


def _choose_column(runs: Sequence[Run], look: Look) -> str:
    """Return the columns of the grid: ops, unless another grouping is requested."""
    if look.group in (None, "layer"):
        return "op" if all(r.has("op") for r in runs) else "name"
    return str(look.group)


def _describe_scope(compared: LayerDiff, column: str) -> str:
    phase = f"{compared.phase} only; " if compared.phase else ""
    hint = "" if column == "step" else "; o: layers by step"
    return f"{phase}each cell is the change in per cent {compared.how}{hint}"


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw layers down, ops or steps across; below, the legend and the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    grid = build_grid(answer, look, "b_ns")
    wide = grid.cell_width(size)

    def paint(cell: Cell | None, _: Any, is_here: bool) -> ink.Span:
        return _draw_cell(cell, wide, size.ascii, is_here)

    scale = draw_change_legend(glyphs.CHANGE_BOUNDS_PCT, "same", wide, size)
    categories = dict(zip(grid.columns, _category.find_categories(answer.parts, grid.columns), strict=True))
    foot = [
        *_category.draw_legend_below(categories.values(), size),
        scale,
        _draw_cursor_line(grid.cell_at_cursor, grid.column_name),
    ]
    return draw_grid(grid, size, paint, foot, categories)


def _draw_cell(cell: Cell | None, width: int, ascii: bool, is_here: bool) -> ink.Span:
    """Draw the change in per cent if there is room, else as signs."""
    if cell is None or cell["change_pct"] is None:
        return ink.Span(" " * width, "cursor" if is_here else "")
    span = draw_change(cell["change_pct"], width, glyphs.CHANGE_BOUNDS_PCT, MIN_NUMBER_PCT, ascii=ascii)
    return ink.Span(span.text, "cursor") if is_here else span


def _draw_cursor_line(cell: Cell | None, column: str) -> Line:
    if cell is None:
        return ink.make_line(("not in both runs", "dim"))
    times = f"{units.format_duration(cell['a_ns'])} → {units.format_duration(cell['b_ns'])}  "
    change = units.format_cell("change_pct", cell["change_pct"])
    delta = units.format_difference(cell["delta_ns"])
    tone = glyphs.select_sign_style(cell["delta_ns"])
    where = f"{describe_cell(cell, column)}: "
    return ink.make_line((where, "dim"), times, (f"{delta}  {change}", tone))


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the layer and the column under the cursor."""
    return find_cell_focus(answer, look, "b_ns")


VIEW = View(
    "shifts",
    "Layers a|b",
    answer,
    draw,
    needs=frozenset({"dur", "layer"}),
    run_count=2,
    default_group="op",
    find_focus=find_focus,
)
