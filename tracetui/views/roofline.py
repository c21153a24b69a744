"""Roofline: rate of each op against its arithmetic intensity, below the roofs of the device."""

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters
from typing import Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import roofline
from tracetui.analysis.frames import selection
from tracetui.analysis.roofline import compute_roofline_points
from tracetui.look import Look
from tracetui.views import Answer, View, _category, choose_group, ink
from tracetui.views._merging import build_sum_merging
from tracetui.views.charts import ChartMark, Point, draw_log_chart
from tracetui.views.ink import DrawSize, Line

COLUMNS: Final = (
    "mark", "gflop_per_s", "intensity", "roof_share", "bound", "share", "gb_per_s", "total_ns", "count",
    "known_share", "category",
)  # fmt: skip
MAX_NAMED_ROWS: Final = 4  # of the rows without known work, in a note
MIN_PICTURE_HEIGHT: Final = 16
_AXIS_MARGIN_FACTOR: Final = 4  # by which the axes extend beyond the outermost points


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per group with its rates, and a letter for its point; the roof is a part."""
    run, group = runs[0], choose_group(runs[:1], look.group)
    table = compute_roofline_points(run, look, group)
    if table.is_empty():
        return Answer(table, (selection.explain_no_kernels(run),), (group,))
    everything = table
    if look.filter or look.where:  # a point keeps its letter
        everything = compute_roofline_points(run, replace(look, filter="", where=()), group)
    table = table.join(_choose_letters(everything, group), on=group, how="left", nulls_equal=True)
    table = table.select("mark", *(c for c in table.columns if c != "mark"))
    roof = roofline.find_roof(run)
    peaks = (roof.memory_bytes_per_s, roof.find_flop_rate(roofline.find_dtype(run))) if roof else (0.0, 0.0)
    best = pl.DataFrame([peaks], schema={"byte_per_s": pl.Float64, "flop_per_s": pl.Float64}, orient="row")
    notes = [*selection.note_lens(run, look), *roofline.note_roof(run, table)]
    notes += _describe_unknown_work(table, group)
    return Answer(table, tuple(notes), (group,), {"roof": best})


def _choose_letters(table: pl.DataFrame, group: str) -> pl.DataFrame:
    """Return group and `mark`, the letter of its point; null without a point, or if letters run out."""
    has_point = pl.col("intensity").is_not_null() & pl.col("gflop_per_s").is_not_null()
    number = has_point.cum_sum() - 1
    letters = pl.when(has_point & (number < len(ascii_letters))).then(number)
    marks = letters.replace_strict(dict(enumerate(ascii_letters)), default=None, return_dtype=pl.String)
    return table.select(group, mark=marks)


def _describe_unknown_work(table: pl.DataFrame, group: str) -> list[str]:
    """Return a note on the time of rows whose work is unknown."""
    known_ns = float((table["known_share"].fill_null(0) * table["total_ns"]).sum())
    total_ns = float(table["total_ns"].sum())
    if not total_ns or known_ns >= total_ns * 0.9995:
        return []
    rest = table.filter(pl.col("known_share").fill_null(0) < 1).head(MAX_NAMED_ROWS)
    names = ", ".join(str(name) if name is not None else f"unknown {group}" for name in rest[group])
    return [f"work is unknown for {units.format_share(1 - known_ns / total_ns)} of the time: {names}"]


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw the roofs with a letter per row, the table below."""
    if answer.rows.is_empty():
        return []
    height = size.height * 3 // 5 if size.height >= MIN_PICTURE_HEIGHT else 0
    legend = _category.draw_legend_below(_category.list_row_categories(answer.rows), size)
    spare = size.height - answer.rows.height - 1 - len(legend)
    picture = _draw_picture(answer, look, size.with_height(max(height, min(spare, size.height))))
    room = size.with_height(max(2, size.height - len(picture) - len(legend)))
    tones = _category.select_cell_styles(answer.rows, names=answer.key)
    columns = (*answer.key, *COLUMNS)
    headings = ink.mark_headings(columns, look.sort_orders)
    table = ink.draw_table(answer.rows, room, columns, look.cursor[0], tones, headings)
    return ink.clip_lines([*picture, *table, *legend], size)


def _draw_picture(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    rows = answer.rows.filter(pl.col("mark").is_not_null())
    if rows.is_empty():
        return []
    memory, compute = answer.parts["roof"].row(0)
    letter_at_cursor = answer.rows["mark"][min(look.cursor[0], answer.rows.height - 1)]
    marks = []
    for letter, category, x, y in rows.select("mark", "category", "intensity", "gflop_per_s").iter_rows():
        style = "cursor" if letter == letter_at_cursor else _category.select_ink_style(category)
        marks.append(ChartMark(letter, (x, y * 1e9), style))
    xs = [mark.at[0] for mark in marks]
    ridge = [compute / memory] if memory and compute else []
    low, high = min([*xs, *ridge]) / _AXIS_MARGIN_FACTOR, max([*xs, *ridge]) * _AXIS_MARGIN_FACTOR
    lines = _build_roof_lines(memory, compute, low, high)
    peaks = (memory, "B/s"), (compute, "FLOP/s")
    texts = [f"{units.format_rate(rate)}{unit}" for rate, unit in peaks if rate]
    title = "FLOP/s over FLOP per byte" + (f", below {' and '.join(texts)}" if texts else "")
    return draw_log_chart(lines, marks[::-1], size, title=title, x_label="FLOP per byte")


def _build_roof_lines(memory: float, compute: float, low: float, high: float) -> list[Sequence[Point]]:
    """Return the lines of peak rate by intensity: memory, then compute."""
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
    merging=build_sum_merging(
        answer, lambda run, look: (choose_group([run], look.group), "category", "phase"), _NEEDS
    ),
    columns=COLUMNS,
    default_group="op",
    tab="palette",
)
