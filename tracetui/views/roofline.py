"""Roofline: how fast each op does its work, against the work for each byte, below what is possible."""

from collections.abc import Sequence
from string import ascii_letters
from typing import Final

import polars as pl

from capture.roofs import Roof
from capture.run import Run
from tracetui import units
from tracetui.analysis import roofline, select
from tracetui.analysis.roofline_points import points
from tracetui.look import Look
from tracetui.views import Answer, View, _category, ink
from tracetui.views._summed import summed
from tracetui.views.charts import Mark, Point, log_chart
from tracetui.views.ink import Line, Size

COLUMNS: Final = (
    "mark", "gflop_per_s", "intensity", "roof_share", "bound", "share", "gb_per_s", "total_ns", "count",
    "known_share", "category",
)  # fmt: skip
NAMED: Final = 4  # rows without work that a note names
LOW: Final = 16  # lines below which there is no picture
_BEYOND: Final = 4  # times that the picture reaches beyond its outermost points


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a group with its rates, and a letter for its point; the roof is a part."""
    run = runs[0]
    group = _group(run, look)
    table = points(run, look, group)
    if table.is_empty():
        return Answer(table, (select.why_no_kernels(run),), (group,))
    known = pl.col("intensity").is_not_null() & pl.col("gflop_per_s").is_not_null()
    number = known.cum_sum() - 1
    letters = pl.when(known & (number < len(ascii_letters))).then(number)
    marks = letters.replace_strict(dict(enumerate(ascii_letters)), default=None, return_dtype=pl.String)
    table = table.select(marks.alias("mark"), *table.columns)
    roof = roofline.roof_of(run)
    best = {"byte_per_s": [roof.memory if roof else 0.0], "flop_per_s": [_compute(roof, run)]}
    notes = (*select.stopwatch(run, look), *roofline.notes(run, table), *_lacking(table, group))
    return Answer(table, notes, (group,), {"roof": pl.DataFrame(best)})


def _group(run: Run, look: Look) -> str:
    return look.group or ("op" if run.has("op") else "name")


def _by(run: Run, look: Look) -> tuple[str, ...]:
    return (_group(run, look), "category", "phase")


def _compute(roof: Roof | None, run: Run) -> float:
    return roof.compute(roofline.dtype_of(run)) if roof else 0.0


def _lacking(table: pl.DataFrame, group: str) -> list[str]:
    """Return a note on the time of which the work is not known: no shapes, or nothing that is computed."""
    known = float((table["known_share"].fill_null(0) * table["total_ns"]).sum())
    whole = float(table["total_ns"].sum())
    if not whole or known >= whole * 0.9995:
        return []
    rest = table.filter(pl.col("known_share").fill_null(0) < 1).head(NAMED)
    names = ", ".join(str(name) if name is not None else f"unknown {group}" for name in rest[group])
    return [f"no operations or bytes are known of {units.share(1 - known / whole)} of the time: {names}"]


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw the roofs and a letter for each row above, the table below."""
    if answer.rows.is_empty():
        return []
    height = size.height * 3 // 5 if size.height >= LOW else 0
    least = size.height - answer.rows.height - 1
    legend = _category.below(_category.stated(answer.rows), size)
    least -= len(legend)
    picture = _picture(answer, look, Size(size.width, max(height, min(least, size.height)), size.ascii))
    room = Size(size.width, max(2, size.height - len(picture) - len(legend)), size.ascii)
    tones = _category.tones(answer.rows, names=answer.key)
    table = ink.table(answer.rows, room, (*answer.key, *COLUMNS), look.cursor[0], tones)
    return ink.clip([*picture, *table, *legend], size)


def _picture(answer: Answer, look: Look, size: Size) -> list[Line]:
    rows = answer.rows.filter(pl.col("mark").is_not_null())
    if rows.is_empty():
        return []
    memory, compute = answer.parts["roof"].row(0)
    here = answer.rows["mark"][min(look.cursor[0], answer.rows.height - 1)]
    marks = [
        Mark(letter, (x, y * 1e9), "cursor" if letter == here else _category.inked(category))
        for letter, category, x, y in rows.select("mark", "category", "intensity", "gflop_per_s").iter_rows()
    ]
    xs = [mark.at[0] for mark in marks]
    ridge = [compute / memory] if memory and compute else []
    low, high = min([*xs, *ridge]) / _BEYOND, max([*xs, *ridge]) * _BEYOND
    lines = _roofs(memory, compute, low, high)
    texts = [
        *([f"{units.rate(memory)}B/s"] if memory else []),
        *([f"{units.rate(compute)}FLOP/s"] if compute else []),
    ]
    title = "FLOP/s over FLOP a byte" + (f", below {' and '.join(texts)}" if texts else "")
    return log_chart(lines, marks[::-1], size, title=title, x_label="FLOP a byte")


def _roofs(memory: float, compute: float, low: float, high: float) -> list[Sequence[Point]]:
    """Return the lines of what is possible at each intensity: that of the memory, then that of the units."""
    if memory and compute:
        ridge = compute / memory
        return [[(low, low * memory), (ridge, compute)], [(ridge, compute), (high, compute)]]
    if memory:
        return [[(low, low * memory), (high, high * memory)]]
    return [[(low, compute), (high, compute)]] if compute else []


_NEEDS: Final = frozenset({"dur", "flops", "bytes"})
VIEW = View(
    "roofline",
    "Roofline",
    answer,
    draw,
    needs=_NEEDS,
    merging=summed(answer, _by, _NEEDS),
    columns=COLUMNS,
    group="op",
)
