"""Layers: a heat map of layer by op, or by step, with the odd layer out marked."""

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import roofline, select, windows
from tracetui.analysis.layers import layer_table
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, _category, ink
from tracetui.views._grid import Cell, Grid, changed, drawn, entered, grid, legend, place_of
from tracetui.views._summed import summed
from tracetui.views.ink import Line, Size

NAMED: Final = 8  # odd layers that a note names at most
ROOM_FOR_SHARE: Final = 5  # cells that a share of the roof takes
# Per cent from the median of its column from which a layer is coloured: fixed, so that noise has no colour.
BOUNDS: Final = (10.0, 25.0, 100.0)


def layers(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a layer and op, or layer and step."""
    run, column = runs[0], _column(runs[0], look)
    table = layer_table(run, look, column)
    if table.is_empty():
        return Answer(table, (select.why_no_kernels(run), *windows.scope(run, look)), ("layer", column))
    notes = (*windows.scope(run, look), *_notes(table, column), *roofline.notes(run, table))
    return Answer(table, notes, ("layer", column), _category.known([run], column))


def _column(run: Run, look: Look) -> str:
    """Return what layers are set against: ops, unless another grouping is asked for."""
    if look.group in (None, "layer"):
        return "op" if run.has("op") else "name"
    return str(look.group)


def _notes(table: pl.DataFrame, column: str) -> list[str]:
    per = "token" if table["per_token_ns"].null_count() == 0 else "whole run"
    notes = [f"each cell is per {per}; colours tell how far it is from the median of its {column}"]
    odd = table.filter("odd").group_by("layer").agg(column).sort("layer").rows()
    if odd:
        notes.append(
            "unlike the other layers: " + ", ".join(_odd(n, where, column) for n, where in odd[:NAMED])
        )
    return notes


def _odd(layer: int, where: list[Any], column: str) -> str:
    """Write where a layer is odd: layer 3 in mlp.down, attn.out; beyond three only how many."""
    if len(where) > 3:
        return f"layer {layer} in {len(where)} {column}s"
    places = sorted(f"{column} {w}" if isinstance(w, int) else str(w or f"unknown {column}") for w in where)
    return f"layer {layer} in {', '.join(places)}"


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw layers down, ops or steps across; the last line describes the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    shown = grid(answer, look, "total_ns")
    wide, across = shown.wide(size), shown.across(size)
    usual = {a: _usual(shown, a) for a in across}

    def paint(cell: Cell | None, a: Any, here: bool) -> ink.Span:
        """Return the cell as a span."""
        return _cell(cell, usual[a], wide, size, here)

    scale = legend(BOUNDS, "median", wide, size, f"over the median of its {shown.column}")
    cursor = _cursor_line(shown.here, shown.column, usual[shown.acrosses[shown.place]])
    categories = dict(zip(across, _category.of_values(answer.parts, across), strict=True))
    told = _category.below(categories.values(), size)
    foot = [_roofs(answer, across, wide), *told, scale, cursor]
    return drawn(shown, size, paint, foot if foot[0] or not told else foot[1:], categories)


def _usual(shown: Grid, across: Any) -> float:
    """Return what a layer takes in a column at the median."""
    return float(
        median(shown.cells[d, across]["total_ns"] for d in shown.downs if (d, across) in shown.cells)
    )


def _over(cell: Cell, usual: float) -> float:
    """Return by how many per cent a cell is over what is usual in its column."""
    return 100 * (cell["total_ns"] / usual - 1) if usual else 0.0


def _cell(cell: Cell | None, usual: float, wide: int, size: Size, here: bool) -> ink.Span:
    """Return a cell in the colour of how far it is from the median, and an exclamation mark on an odd one."""
    if cell is None:
        return ink.Span(" " * wide, "cursor" if here else "")
    mark = "!" if cell["odd"] else " "
    span = changed(_over(cell, usual), wide, BOUNDS, BOUNDS[0], ascii=size.ascii, mark=mark)
    return ink.Span(span.text, "cursor") if here else span


def _roofs(answer: Answer, shown: Sequence[Any], wide: int) -> Line:
    """Return the line of roof shares below the ops, empty where they are unknown or have no room."""
    if "roof_share" not in answer.rows.columns or wide < ROOM_FOR_SHARE:
        return ink.line()
    at_best = (pl.col("roof_share") * pl.col("total_ns")).sum() / pl.col("total_ns").sum()
    complete = pl.col("roof_share").null_count() == 0
    table = answer.rows.group_by(answer.key[1]).agg(pl.when(complete).then(at_best).alias("share"))
    shares = dict(table.iter_rows())
    cells = (units.ABSENT if shares[a] is None else f"{100 * shares[a]:.0f}%" for a in shown)
    return ink.line((" roof ", "dim"), *(ink.fit(cell, wide) for cell in cells))


def _cursor_line(cell: Cell | None, column: str, usual: float) -> Line:
    if cell is None:
        return ink.line(("nothing ran here", "dim"))
    per = cell["per_token_ns"]
    value = f"{units.duration(per)} per token" if per is not None else units.duration(cell["total_ns"])
    over = round(_over(cell, usual))
    value += f"  {over:+}% over the median" if over else ""
    odd = "  unlike the other layers" if cell["odd"] else ""
    rates = "".join(f"  {text}" for text in _rates(cell))
    return ink.line((f"{place_of(cell, column)}: ", "dim"), value, (odd, "warn"), rates)


def _rates(cell: Cell) -> list[str]:
    """Write the rates of a cell: 97.1% of the roof (memory), 33.6 GB/s."""
    named = ((c, units.heading(c)) for c in roofline.RATES)
    rates = [f"{units.cell(c, cell[c])} {unit}" for c, unit in named if cell.get(c) is not None]
    if cell.get("roof_share") is None:
        return rates
    return [f"{units.share(cell['roof_share'])} of the roof ({cell['bound']})", *rates]


def enter(answer: Answer, look: Look) -> Focus:
    """Return the layer and the column under the cursor."""
    return entered(answer, look, "total_ns")


def _by(run: Run, look: Look) -> tuple[str, ...]:
    return ("layer", _column(run, look), "step", "phase")


_NEEDS: Final = frozenset({"dur", "layer"})
VIEW = View(
    "layers",
    "Layers",
    layers,
    draw,
    needs=_NEEDS,
    merging=summed(layers, _by, _NEEDS),
    group="op",
    enter=enter,
)
