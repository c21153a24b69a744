"""Shifts: a heat map of changes between two runs, layer by op or by step."""

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis.frames.selection import NO_MATCH
from tracetui.compare.layer_diff import LayerDiff, compare_layers
from tracetui.look import Look
from tracetui.views import Answer, View, _category, _grid, ink
from tracetui.views._grid import Cell, ChangeScale
from tracetui.views.diff import describe_sides
from tracetui.views.ink import DrawSize, Line

_SCALE: Final = ChangeScale(glyphs.CHANGE_BOUNDS_PCT, 0.5, "same")
_WEIGHT: Final = "b_ns"  # the column by which columns of the grid are sorted


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per layer and op, or layer and step, that both runs have."""
    a, b = runs[0], runs[1]
    column = _grid.choose_column(runs, look)
    compared = compare_layers(runs[:2], look, column)
    key = ("layer", column)
    if compared.rows.is_empty():
        return Answer(compared.rows, (NO_MATCH, describe_sides(runs)), key)
    parts = _category.build_category_part((a, b), column)
    return Answer(compared.rows, (describe_sides(runs), _describe_scope(compared, column)), key, parts)


def _describe_scope(compared: LayerDiff, column: str) -> str:
    phase = f"{compared.phase} only; " if compared.phase else ""
    hint = "" if column == "step" else "; o: layers by step"
    return f"{phase}each cell is the change in per cent {compared.how}{hint}"


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw layers down, ops or steps across; below, the legend and the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    grid = _grid.build_grid(answer, look, _WEIGHT)
    categories = dict(zip(grid.columns, _category.find_categories(answer.parts, grid.columns), strict=True))
    cursor_line = _draw_cursor_line(grid.cell_at_cursor, grid.column_name)
    return _grid.draw_grid(grid, size, _SCALE, itemgetter("change_pct"), cursor_line, categories=categories)


def _draw_cursor_line(cell: Cell | None, column: str) -> Line:
    if cell is None:
        return ink.make_line(("not in both runs", "dim"))
    times = f"{units.format_duration(cell['a_ns'])} → {units.format_duration(cell['b_ns'])}  "
    change = units.format_cell("change_pct", cell["change_pct"])
    delta = units.format_difference(cell["delta_ns"])
    tone = glyphs.select_sign_style(cell["delta_ns"])
    where = f"{_grid.describe_cell(cell, column)}: "
    return ink.make_line((where, "dim"), times, (f"{delta}  {change}", tone))


VIEW = View(
    "shifts",
    "Layers a|b",
    answer,
    draw,
    needs=frozenset({"dur", "layer"}),
    run_count=2,
    default_group="op",
    find_focus=partial(_grid.find_cell_focus, weight=_WEIGHT),
)
