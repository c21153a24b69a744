"""Layers: a heat map of layer by op, or by step, with odd layers marked."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.analysis import roofline
from tracetui.analysis.frames import selection
from tracetui.analysis.layers import STACKS, compute_layer_table
from tracetui.analysis.time import step_sampling
from tracetui.glyphs import count_cells, fit_cells
from tracetui.look import Look
from tracetui.views import Answer, View, _category, _grid, ink
from tracetui.views._grid import Cell, ChangeScale, Grid
from tracetui.views._merging import build_sum_merging
from tracetui.views.ink import DrawSize, Line, Span

MAX_NAMED_LAYERS: Final = 8  # of the odd layers, in a note
MIN_LOSS_SHARE: Final = 0.01  # of a layer: a smaller difference has no colour; so is the least lever
TOTALS_LEAST_CELLS: Final = 60  # width of a screen with a column of totals
MIN_SHARE_CELLS: Final = 5  # for a share of the roof
# Distances from the column median at which the colour changes: fixed, so that noise has no colour.
BOUNDS_PCT: Final = (10.0, 25.0, 100.0)
_WEIGHT: Final = "total_ns"  # the column by which columns of the grid are sorted


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per layer and op, or layer and step."""
    run, column = runs[0], _grid.choose_column(runs[:1], look)
    table = compute_layer_table(run, look, column)
    notes = step_sampling.note_lens_and_sampling(run, look)
    if table.is_empty():
        return Answer(table, (selection.explain_no_kernels(run), *notes), ("layer", column))
    notes += [*_build_notes(table, column), *_note_stacks(table), *roofline.note_roof(run, table)]
    key = ("stack", "layer", column) if "stack" in table.columns else ("layer", column)
    unfiltered = table
    if look.is_partial:  # the total of a layer is that of all its ops, also of those that a filter hides
        unfiltered = compute_layer_table(run, replace(look, filter="", where=(), focus=()), column)
    sums = unfiltered.group_by(key[:-1]).agg(pl.col("total_ns", "per_token_ns", "median_ns").sum())
    sums = sums.sort(key[:-1])
    parts = {**_category.build_category_part([run], column), "layers": sums}
    return Answer(table, tuple(notes), key, parts)


def _build_notes(table: pl.DataFrame, column: str) -> list[str]:
    per = "token" if table["per_token_ns"].null_count() == 0 else "whole run"
    notes = [f"time per {per}; colour: difference from the {column}'s median layer, if 1% of a layer or more"]
    by = ["stack", "layer"] if "stack" in table.columns else ["layer"]
    odd = table.filter("odd").group_by(by).agg(column).sort(by).rows()
    if odd:
        named = ", ".join(_describe_odd_layer(*row, column) for row in odd[:MAX_NAMED_LAYERS])
        notes.append(f"unlike the other layers: {named}")
    return notes


def _note_stacks(table: pl.DataFrame) -> list[str]:
    """Name the stack that is drawn, and how to see the other one."""
    if "stack" not in table.columns or table["stack"].n_unique() < 2:
        return []
    drawn = _grid.find_largest_stack(table, _WEIGHT)
    other = next(stack for stack in STACKS.categories if stack != drawn)
    return [f"the picture has the layers of the {drawn}; /path:{other} (--filter) draws those of the {other}"]


def _describe_odd_layer(*row: Any) -> str:
    """Describe an odd layer: layer 3 in mlp.down, attn.out; for more than three columns their number."""
    *stack, layer, where, column = row
    words = " ".join([*filter(None, stack), f"layer {layer}"])
    if len(where) > 3:
        return f"{words} in {len(where)} {column}s"
    places = sorted(f"{column} {w}" if isinstance(w, int) else str(w or f"unknown {column}") for w in where)
    return f"{words} in {', '.join(places)}"


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw layers down, ops or steps across; the last line describes the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    answer = _grid.select_largest_stack(answer, _WEIGHT)
    grid = _grid.build_grid(answer, look, _WEIGHT, has_headings=True)
    if grid.column_name != "step" and size.width >= TOTALS_LEAST_CELLS:
        grid = replace(grid, totals=_draw_totals(answer))
    width, columns = grid.cell_width(size), grid.select_columns(size)
    by_layer = answer.rows.group_by("layer").agg(pl.col("median_ns").sum())
    layer_ns = max(by_layer["median_ns"].to_list(), default=0)

    def find_excess_pct(cell: Cell) -> float:
        median_ns = cell["median_ns"]  # of all layers of its kind, also of those that a filter hides
        return 100 * (cell["total_ns"] / median_ns - 1) if median_ns else 0.0

    def is_small(cell: Cell) -> bool:
        loss_ns = abs(cell["total_ns"] - (cell["median_ns"] or cell["total_ns"]))
        return grid.column_name != "step" and loss_ns < MIN_LOSS_SHARE * layer_ns

    cursor_cell = grid.cell_at_cursor
    excess = 0.0 if cursor_cell is None else find_excess_pct(cursor_cell)
    scale = ChangeScale(BOUNDS_PCT, BOUNDS_PCT[0], "median", f"over the median of its {grid.column_name}")
    categories = dict(zip(columns, _category.find_categories(answer.parts, columns), strict=True))
    lead = [_draw_roof_line(answer, columns, width, grid.head_cells)]
    cursor_line = _draw_cursor_line(cursor_cell, grid, excess, size)
    if grid.is_on_heading:
        cursor_line = _draw_layer_line(answer, grid.rows[grid.row_index])
    return _grid.draw_grid(
        grid, size, scale, find_excess_pct, cursor_line, lead=lead, categories=categories, is_small=is_small
    )


def _draw_totals(answer: Answer) -> dict[int, Span]:
    """Draw the time of each layer, in the colour of its difference from the median layer."""
    rows = (
        _select_layers(answer)
        .select("layer", pl.col(_choose_time(answer)).alias("time_ns"), "total_ns", "median_ns")
        .rows()
    )
    texts = [units.format_duration(time) for _, time, _, _ in rows]
    width = max(map(count_cells, [*texts, "total"]), default=0)
    excess = [100 * (total / median - 1) if median else 0.0 for *_, total, median in rows]
    styles = [glyphs.select_change_style(percent, BOUNDS_PCT) for percent in excess]
    return {
        row[0]: Span(f"{fit_cells(text, width, right=True)} ", style)
        for row, text, style in zip(rows, texts, styles, strict=True)
    }


def _select_layers(answer: Answer) -> pl.DataFrame:
    """Return the totals of the layers of an answer of one stack."""
    layers = answer.parts["layers"]
    if "stack" not in layers.columns:
        return layers
    return layers.join(answer.rows.select("stack", "layer").unique(), on=["stack", "layer"], how="semi")


def _choose_time(answer: Answer) -> str:
    return "per_token_ns" if answer.rows["per_token_ns"].null_count() == 0 else "total_ns"


def _draw_layer_line(answer: Answer, layer: int) -> Line:
    """Draw the time of a whole layer, and its difference from the median layer."""
    row = _select_layers(answer).row(by_predicate=pl.col("layer") == layer, named=True)
    median, time = row["median_ns"], _choose_time(answer)
    excess = f"  {_describe_excess(100 * (row['total_ns'] / median - 1))}" if median else ""
    value = units.format_duration(round(row[time]))
    unit = " per token" if time == "per_token_ns" else ""
    return ink.make_line((f"layer {layer}: ", "dim"), f"{value}{unit}{excess}", ("  Enter shows it", "dim"))


def _describe_excess(percent: float) -> str:
    side = "above" if percent > 0 else "below"
    return f"{abs(round(percent))}% {side} the median" if round(percent) else "equal to the median"


def _draw_roof_line(answer: Answer, columns: Sequence[Any], width: int, head_cells: int) -> Line:
    """Draw the roof shares below the ops; empty if unknown or too narrow."""
    if "roof_share" not in answer.rows.columns or width < MIN_SHARE_CELLS:
        return ink.make_line()
    at_best = (pl.col("roof_share") * pl.col("total_ns")).sum() / pl.col("total_ns").sum()
    complete = pl.col("roof_share").null_count() == 0
    table = answer.rows.group_by(answer.key[-1]).agg(pl.when(complete).then(at_best).alias("share"))
    shares = dict(table.iter_rows())
    cells = (units.ABSENT if shares[a] is None else f"{100 * shares[a]:.0f}%" for a in columns)
    return ink.make_line(
        (f"{' roof':<{head_cells}}", "dim"), *(f"{fit_cells(cell, width - 1, right=True)} " for cell in cells)
    )


def _draw_cursor_line(cell: Cell | None, grid: Grid, excess_pct: float, size: DrawSize) -> Line:
    if cell is None:
        return ink.make_line(("nothing ran here", "dim"))
    per_token = cell["per_token_ns"]
    if per_token is None:
        value = units.format_duration(cell["total_ns"])
    else:
        value = f"{units.format_duration(per_token)} per token"
    value += f"  {_describe_excess(excess_pct)}"
    odd = ", unlike others" if cell["odd"] else ""
    where = f"{_grid.describe_cell(cell, grid.column_name)}: "
    heading = f"  {'<-' if size.ascii else '←'} layer" if grid.column_index == 0 else ""
    room = size.width - sum(map(count_cells, (where, value, odd, heading)))
    heading = heading if room >= 0 else ""
    rates = _join_fitting([f"  {text}" for text in _format_rates(cell)], room, "~" if size.ascii else "…")
    return ink.make_line((where, "dim"), value, (odd, "warn"), rates, (heading, "dim"))


def _join_fitting(texts: Sequence[str], room: int, cut: str) -> str:
    """Join texts, the last ones left out if they do not fit; then `cut` says so."""
    for count in range(len(texts), 0, -1):
        joined = "".join(texts[:count]) + f"  {cut}" * (count < len(texts))
        if count_cells(joined) <= room:
            return joined
    return ""


def _format_rates(cell: Cell) -> list[str]:
    """Format the rates of a cell: 97.1% of the roof (memory), 33.6 GB/s."""
    named = ((c, units.format_heading(c)) for c in roofline.RATES)
    rates = [f"{units.format_cell(c, cell[c])} {unit}" for c, unit in named if cell.get(c) is not None]
    if cell.get("roof_share") is None:
        return rates
    return [f"{units.format_share(cell['roof_share'])} of the roof ({cell['bound']})", *rates]


_NEEDS: Final = frozenset({"dur", "layer"})
VIEW = View(
    "layers",
    "Layers",
    answer,
    draw,
    needs=_NEEDS,
    merging=build_sum_merging(
        answer, lambda run, look: ("layer", _grid.choose_column([run], look), "step", "phase"), _NEEDS
    ),
    default_group="op",
    numbers="layer",
    find_focus=partial(_grid.find_cell_focus, weight=_WEIGHT, has_headings=True),
    find_cell=partial(_grid.find_cell, weight=_WEIGHT),
)
