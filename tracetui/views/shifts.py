"""Shifts: a heat map of what got slower and faster, layer by op or by step, between two runs."""

from collections.abc import Sequence
from typing import Any, Final

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis.compare.layer_diff import LayerDiff, layer_diff
from tracetui.analysis.select import NOTHING
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, _category, ink
from tracetui.views._grid import Cell, changed, drawn, entered, grid, legend, place_of
from tracetui.views.diff import parties
from tracetui.views.ink import Line, Size

LEAST: Final = 0.5  # per cent from which a change is written as a number


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a layer and op, or layer and step, that both runs have."""
    a, b = runs[0], runs[1]
    column = _column(runs, look)
    compared = layer_diff(runs[:2], look, column)
    key = ("layer", column)
    if compared.rows.is_empty():
        return Answer(compared.rows, (NOTHING, parties(a, b, look)), key)
    known = _category.known((a, b), column)
    return Answer(compared.rows, (parties(a, b, look), _scope(compared, column)), key, known)


def _column(runs: Sequence[Run], look: Look) -> str:
    """Return what layers are set against: ops, unless another grouping is asked for."""
    if look.group in (None, "layer"):
        return "op" if all(r.has("op") for r in runs) else "name"
    return str(look.group)


def _scope(compared: LayerDiff, column: str) -> str:
    phase = f"{compared.phase} alone; " if compared.phase else ""
    other = "" if column == "step" else "; o sets layers against steps"
    return f"{phase}each cell is the change in per cent {compared.how}{other}"


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw layers down, ops or steps across; below, the cell under the cursor and the scale."""
    if answer.rows.is_empty():
        return []
    shown = grid(answer, look, "b_ns")
    wide = shown.wide(size)

    def paint(cell: Cell | None, _: Any, here: bool) -> ink.Span:
        """Return the cell as a span."""
        return _cell(cell, wide, size.ascii, here)

    scale = legend(glyphs.DRIFTS, "same", wide, size)
    categories = dict(zip(shown.acrosses, _category.of_values(answer.parts, shown.acrosses), strict=True))
    foot = [*_category.below(categories.values(), size), scale, _cursor_line(shown.here, shown.column)]
    return drawn(shown, size, paint, foot, categories)


def _cell(cell: Cell | None, wide: int, ascii: bool, here: bool) -> ink.Span:
    """Return the change in per cent where there is room, else in signs, which need no colour."""
    if cell is None or cell["change_pct"] is None:
        return ink.Span(" " * wide, "cursor" if here else "")
    span = changed(cell["change_pct"], wide, glyphs.DRIFTS, LEAST, ascii=ascii)
    return ink.Span(span.text, "cursor") if here else span


def _cursor_line(cell: Cell | None, column: str) -> Line:
    if cell is None:
        return ink.line(("not in both runs", "dim"))
    times = f"{units.duration(cell['a_ns'])} → {units.duration(cell['b_ns'])}  "
    change = units.cell("change_pct", cell["change_pct"])
    delta = units.difference(cell["delta_ns"])
    tone = glyphs.sign_tone(cell["delta_ns"])
    where = f"{place_of(cell, column)}: "
    return ink.line((where, "dim"), times, (f"{delta}  {change}", tone))


def enter(answer: Answer, look: Look) -> Focus:
    """Return the layer and the column under the cursor."""
    return entered(answer, look, "b_ns")


VIEW = View(
    "shifts", "Layers a|b", answer, draw, needs=frozenset({"dur", "layer"}), runs=2, group="op", enter=enter
)
