"""Layers: a heat map of layer by op, or by step, with the odd layer out marked."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import roofline, select
from tracetui.analysis.layers import layer_table
from tracetui.look import Look
from tracetui.views import Answer, Focus, View, ink
from tracetui.views.ink import Line, Size

NAMED: Final = 8  # odd layers that a note names at most
ROOM_FOR_SHARE: Final = 5  # cells that a share of the roof takes


def layers(runs: Sequence[Run], look: Look) -> Answer:
    run, column = runs[0], _column(runs[0], look)
    table = layer_table(run, look, column)
    if table.is_empty():
        return Answer(table, (select.NOTHING, *select.notes(run, look)), ("layer", column))
    notes = (*select.notes(run, look), *_notes(table, column), *roofline.notes(run, table))
    return Answer(table, notes, ("layer", column))


def _column(run: Run, look: Look) -> str:
    """Layers are set against ops, unless another grouping is asked for."""
    if look.group in (None, "layer"):
        return "op" if run.has("op") else "name"
    return str(look.group)


def _notes(table: pl.DataFrame, column: str) -> list[str]:
    per = "token" if table["per_token_ns"].null_count() == 0 else "whole run"
    said = [f"each cell is per {per}; colours compare the layers of one {column}"]
    odd = table.filter("odd").group_by("layer").agg(column).sort("layer").rows()
    if odd:
        said.append(
            "unlike the other layers: " + ", ".join(_odd(n, where, column) for n, where in odd[:NAMED])
        )
    return said


def _odd(layer: int, where: list[Any], column: str) -> str:
    """layer 3 in mlp.down, attn.out; beyond three only how many."""
    if len(where) > 3:
        return f"layer {layer} in {len(where)} {column}s"
    places = sorted(f"{column} {w}" if isinstance(w, int) else str(w) for w in where)
    return f"layer {layer} in {', '.join(places)}"


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Layers down, ops or steps across; the last line tells the cell under the cursor."""
    if answer.rows.is_empty():
        return []
    downs, acrosses = _axes(answer)
    room = size.width - 6
    wide = max(2, min(10, room // len(acrosses)))
    fits = max(1, room // wide)
    row, place = _cursor(look, downs, acrosses)
    left = max(0, min(place - fits // 2, len(acrosses) - fits))
    shown = acrosses[left : left + fits]
    top = max(0, min(row - (size.height - 3) // 2, len(downs) - (size.height - 3)))
    cells = {(r["layer"], r[answer.key[1]]): r for r in answer.rows.iter_rows(named=True)}
    bounds = {a: _bounds(cells, downs, a) for a in shown}
    head = ink.line(("layer ", "title"), (_headings(shown, wide, size), "title"))
    body = [
        ink.line(
            (f"{down!s:>5} ", "dim"),
            *(
                _cell(cells.get((down, a)), bounds[a], wide, size, (down, a) == (downs[row], acrosses[place]))
                for a in shown
            ),
        )
        for down in downs[top : top + max(1, size.height - 3)]
    ]
    told = _told(cells.get((downs[row], acrosses[place])), answer.key[1])
    return ink.clip([head, *body, _roofs(answer, shown, wide), told], size)


def _axes(answer: Answer) -> tuple[list[Any], list[Any]]:
    """Layers in order; ops by falling total, steps and other numbers in order."""
    column = answer.key[1]
    downs = answer.rows["layer"].unique().sort().to_list()
    sums = answer.rows.group_by(column).agg(pl.col("total_ns").sum())
    if answer.rows.schema[column].is_numeric():
        return downs, sums.sort(column)[column].to_list()
    return downs, sums.sort("total_ns", column, descending=[True, False], nulls_last=True)[column].to_list()


def _cursor(look: Look, downs: Sequence[Any], acrosses: Sequence[Any]) -> tuple[int, int]:
    row, place = look.cursor
    return max(0, min(row, len(downs) - 1)), max(0, min(place, len(acrosses) - 1))


def _bounds(
    cells: dict[tuple[Any, Any], dict[str, Any]], downs: Sequence[Any], across: Any
) -> tuple[float, float]:
    values = [float(cells[d, across]["total_ns"]) for d in downs if (d, across) in cells]
    low, high = min(values), max(values)
    middle, least = (low + high) / 2, 0.05 * max(high, 1.0)
    return min(low, middle - least), max(high, middle + least)


def _cell(
    cell: dict[str, Any] | None, bounds: tuple[float, float], wide: int, size: Size, here: bool
) -> ink.Span:
    """A shade as wide as the cell; an exclamation mark on the odd one."""
    if cell is None:
        return ink.Span(" " * wide, "cursor" if here else "")
    value = float(cell["total_ns"])
    text = ink.shade(value, *bounds, size.ascii) * (wide - 1)
    style = "cursor" if here else ink.heat(value, *bounds)
    return ink.Span(text + ("!" if cell["odd"] else " "), style)


def _headings(shown: Sequence[Any], wide: int, size: Size) -> str:
    """A label over each cell; numbers wider than their cell stand over every second, third … one."""
    labels = ["–" if a is None else str(a) for a in shown]
    every = 1
    if all(isinstance(a, int) for a in shown):
        every = -(-(max(map(len, labels)) + 1) // wide)
    return "".join(ink.fit(label, every * wide - 1, ascii=size.ascii) + " " for label in labels[::every])


def _roofs(answer: Answer, shown: Sequence[Any], wide: int) -> Line:
    """Below each op how near it comes to its roof in all layers, where that is known and has room."""
    if "roof_share" not in answer.rows.columns or wide < ROOM_FOR_SHARE:
        return ink.line()
    at_best = (pl.col("roof_share") * pl.col("total_ns")).sum() / pl.col("total_ns").sum()
    known = pl.col("roof_share").null_count() == 0
    table = answer.rows.group_by(answer.key[1]).agg(pl.when(known).then(at_best).alias("share"))
    shares = dict(table.iter_rows())
    cells = (units.ABSENT if shares[a] is None else f"{100 * shares[a]:.0f}%" for a in shown)
    return ink.line((" roof ", "dim"), *(ink.fit(cell, wide) for cell in cells))


def _told(cell: dict[str, Any] | None, column: str) -> Line:
    if cell is None:
        return ink.line(("nothing ran here", "dim"))
    per = cell["per_token_ns"]
    value = f"{units.duration(per)} per token" if per is not None else units.duration(cell["total_ns"])
    odd = "  unlike the other layers" if cell["odd"] else ""
    rates = "".join(f"  {text}" for text in _rates(cell))
    return ink.line((f"layer {cell['layer']}, {column} {cell[column]}: ", "dim"), value, rates, (odd, "warn"))


def _rates(cell: dict[str, Any]) -> list[str]:
    """33.6 GB/s, 97.1% of the roof (memory)."""
    named = ((c, units.heading(c)) for c in roofline.RATES)
    rates = [f"{units.cell(c, cell[c])} {unit}" for c, unit in named if cell.get(c) is not None]
    if cell.get("roof_share") is None:
        return rates
    return [*rates, f"{units.share(cell['roof_share'])} of the roof ({cell['bound']})"]


def enter(answer: Answer, look: Look) -> Focus:
    if answer.rows.is_empty():
        return ()
    downs, acrosses = _axes(answer)
    row, place = _cursor(look, downs, acrosses)
    return (("layer", downs[row]), (answer.key[1], acrosses[place]))


VIEW = View(
    "layers",
    "Layers",
    layers,
    draw,
    needs=frozenset({"dur", "layer"}),
    group="op",
    enter=enter,
)
