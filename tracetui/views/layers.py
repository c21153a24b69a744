"""Layers: a heat map of layer by op, or by step, with odd layers marked."""

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import roofline
from tracetui.analysis.frames import selection
from tracetui.analysis.layers import compute_layer_table
from tracetui.analysis.time import step_sampling
from tracetui.cell_width import fit_cells
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, _category, ink
from tracetui.views._grid import (
    Cell,
    Grid,
    build_grid,
    describe_cell,
    draw_change,
    draw_change_legend,
    draw_grid,
    find_cell_focus,
)
from tracetui.views._merging import build_sum_merging
from tracetui.views.ink import DrawSize, Line

MAX_NAMED_LAYERS: Final = 8  # of the odd layers, in a note
MIN_SHARE_CELLS: Final = 5  # for a share of the roof
# Distances from the column median at which the colour changes: fixed, so that noise has no colour.
BOUNDS_PCT: Final = (10.0, 25.0, 100.0)


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per layer and op, or layer and step."""
    run, column = runs[0], _choose_column(runs[0], look)
    table = compute_layer_table(run, look, column)
    if table.is_empty():
        return Answer(
            table,
            (selection.explain_no_kernels(run), *step_sampling.note_lens_and_sampling(run, look)),
            ("layer", column),
        )
    notes = (
        *step_sampling.note_lens_and_sampling(run, look),
        *_build_notes(table, column),
        *roofline.note_roof(run, table),
    )
    return Answer(table, notes, ("layer", column), _category.build_category_part([run], column))


def _choose_column(run: Run, look: Look) -> str:
    """Return the columns of the grid: ops, unless another grouping is requested."""
    if look.group in (None, "layer"):
        return "op" if run.has("op") else "name"
    return str(look.group)


def _build_notes(table: pl.DataFrame, column: str) -> list[str]:
    per = "token" if table["per_token_ns"].null_count() == 0 else "whole run"
    notes = [f"each cell is per {per}; colours show the distance from the median of its {column}"]
    odd = table.filter("odd").group_by("layer").agg(column).sort("layer").rows()
    if odd:
        notes.append(
            "unlike the other layers: "
            + ", ".join(_describe_odd_layer(n, where, column) for n, where in odd[:MAX_NAMED_LAYERS])
        )
    return notes


def _describe_odd_layer(layer: int, where: list[Any], column: str) -> str:
    """Describe an odd layer: layer 3 in mlp.down, attn.out; for more than three columns their number."""
    if len(where) > 3:
        return f"layer {layer} in {len(where)} {column}s"
    places = sorted(f"{column} {w}" if isinstance(w, int) else str(w or f"unknown {column}") for w in where)
    return f"layer {layer} in {', '.join(places)}"


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw layers down, ops or steps across; the last line describes the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    grid = build_grid(answer, look, "total_ns")
    wide, across = grid.cell_width(size), grid.select_columns(size)
    medians = {a: _compute_median(grid, a) for a in across}

    def paint(cell: Cell | None, a: Any, is_here: bool) -> ink.Span:
        return _draw_cell(cell, medians[a], wide, size, is_here)

    scale = draw_change_legend(BOUNDS_PCT, "median", wide, size, f"over the median of its {grid.column_name}")
    cursor = _draw_cursor_line(
        grid.cell_at_cursor, grid.column_name, medians[grid.columns[grid.column_index]]
    )
    categories = dict(zip(across, _category.find_categories(answer.parts, across), strict=True))
    category_legend = _category.draw_legend_below(categories.values(), size)
    foot = [_draw_roof_line(answer, across, wide), *category_legend, scale, cursor]
    return draw_grid(grid, size, paint, foot if foot[0] or not category_legend else foot[1:], categories)


def _compute_median(grid: Grid, across: Any) -> float:
    """Return the median time of a layer in a column."""
    return float(median(grid.cells[d, across]["total_ns"] for d in grid.rows if (d, across) in grid.cells))


def _compute_excess_pct(cell: Cell, median_ns: float) -> float:
    """Return the distance of a cell from the median of its column, in per cent."""
    return 100 * (cell["total_ns"] / median_ns - 1) if median_ns else 0.0


def _draw_cell(cell: Cell | None, median_ns: float, width: int, size: DrawSize, is_here: bool) -> ink.Span:
    """Draw a cell in the colour of its distance from the median; an exclamation mark for an odd one."""
    if cell is None:
        return ink.Span(" " * width, "cursor" if is_here else "")
    mark = "!" if cell["odd"] else " "
    span = draw_change(
        _compute_excess_pct(cell, median_ns), width, BOUNDS_PCT, BOUNDS_PCT[0], ascii=size.ascii, mark=mark
    )
    return ink.Span(span.text, "cursor") if is_here else span


def _draw_roof_line(answer: Answer, columns: Sequence[Any], width: int) -> Line:
    """Draw the roof shares below the ops; empty if unknown or too narrow."""
    if "roof_share" not in answer.rows.columns or width < MIN_SHARE_CELLS:
        return ink.make_line()
    at_best = (pl.col("roof_share") * pl.col("total_ns")).sum() / pl.col("total_ns").sum()
    complete = pl.col("roof_share").null_count() == 0
    table = answer.rows.group_by(answer.key[1]).agg(pl.when(complete).then(at_best).alias("share"))
    shares = dict(table.iter_rows())
    cells = (units.ABSENT if shares[a] is None else f"{100 * shares[a]:.0f}%" for a in columns)
    return ink.make_line((" roof ", "dim"), *(fit_cells(cell, width) for cell in cells))


def _draw_cursor_line(cell: Cell | None, column: str, median_ns: float) -> Line:
    if cell is None:
        return ink.make_line(("nothing ran here", "dim"))
    per = cell["per_token_ns"]
    value = (
        f"{units.format_duration(per)} per token"
        if per is not None
        else units.format_duration(cell["total_ns"])
    )
    over = round(_compute_excess_pct(cell, median_ns))
    value += f"  {over:+}% over the median" if over else ""
    odd = "  unlike the other layers" if cell["odd"] else ""
    rates = "".join(f"  {text}" for text in _format_rates(cell))
    return ink.make_line((f"{describe_cell(cell, column)}: ", "dim"), value, (odd, "warn"), rates)


def _format_rates(cell: Cell) -> list[str]:
    """Format the rates of a cell: 97.1% of the roof (memory), 33.6 GB/s."""
    named = ((c, units.format_heading(c)) for c in roofline.RATES)
    rates = [f"{units.format_cell(c, cell[c])} {unit}" for c, unit in named if cell.get(c) is not None]
    if cell.get("roof_share") is None:
        return rates
    return [f"{units.format_share(cell['roof_share'])} of the roof ({cell['bound']})", *rates]


def find_focus(answer: Answer, look: Look) -> Focus:
    """Return the layer and the column under the cursor."""
    return find_cell_focus(answer, look, "total_ns")


def _list_sum_keys(run: Run, look: Look) -> tuple[str, ...]:
    return ("layer", _choose_column(run, look), "step", "phase")


_NEEDS: Final = frozenset({"dur", "layer"})
VIEW = View(
    "layers",
    "Layers",
    answer,
    draw,
    needs=_NEEDS,
    merging=build_sum_merging(answer, _list_sum_keys, _NEEDS),
    default_group="op",
    find_focus=find_focus,
)
