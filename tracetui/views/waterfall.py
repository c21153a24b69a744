"""Waterfall: where the difference of two runs comes from, exactly, bar by bar."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.glyphs import fit_cells
from tracetui.look import Look
from tracetui.views import Answer, View, _category, ink
from tracetui.views.diff import build_notes
from tracetui.views.ink import DrawSize, Line

GROUPS: Final = ("op", "layer", "phase", "category")
TIMES_CELLS: Final = 24  # for the times of both runs
MIN_TIMES_WIDTH: Final = 60  # right of the labels; narrower drawings omit the times


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one bar per group; the bars sum to the difference of the totals."""
    from tracetui.compare.diff import build_waterfall, compare_runs

    a, b = runs[0], runs[1]
    compared = compare_runs(runs, look)
    by = look.group if look.group in GROUPS else "op" if a.has("op") and b.has("op") else "category"
    bars = build_waterfall(compared.rows, by, compared.gap_ns)
    total = int(bars["delta_ns"].sum())
    exact = f"the bars sum to {total:,} ns: Δcalls at the old time per call, Δtime per call, new, gone"
    notes = (*build_notes(compared, look), exact)
    return Answer(bars, notes, (by,), _category.build_category_part((a, b), by))


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw a line per bar: label, signed bar, change, and both times if there is room."""
    by = answer.key[0]
    labels = answer.rows[by].to_list()
    categories = labels if by == "category" else _category.find_categories(answer.parts, labels)
    legend = _category.draw_legend_below(categories, size)
    styles = pl.Series("style", [_category.select_name_style(category) or "name" for category in categories])
    rows = _sum_smallest_bars(answer.rows.with_columns(styles), by, max(2, size.height - 2 - len(legend)))
    largest = max((abs(v) for v in rows["delta_ns"]), default=0) or 1
    label = min(28, max((len(str(v)) for v in rows[by]), default=1))
    times = TIMES_CELLS if size.width - label >= MIN_TIMES_WIDTH else 0
    half = max(4, (size.width - label - times - 16) // 2)
    total = int(answer.rows["delta_ns"].sum())
    head = ink.make_line((f"{by} ".ljust(label + half), "dim"), ("faster ◂ ▸ slower", "dim"))
    named = rows.iter_rows(named=True)
    bars = [_draw_waterfall_bar(row, by, label, half, largest, times, size) for row in named]
    title = ("total".ljust(label + 2 * half + 2), "title")
    foot = ink.make_line(title, (_format_bar_change(total), glyphs.select_sign_style(total)))
    return [head, *bars, foot, *legend]


def _sum_smallest_bars(rows: pl.DataFrame, by: str, room: int) -> pl.DataFrame:
    """Return as many bars as fit; the smallest are summed into one."""
    if rows.height <= room:
        return rows
    order = rows.sort(pl.col("delta_ns").abs(), descending=True, maintain_order=True)
    largest, rest = order.head(room - 1), order.tail(-(room - 1))
    named = pl.lit(f"{rest.height} others").alias(by), pl.lit("name").alias("style")
    summed = rest.select(pl.exclude(by, "style").sum()).with_columns(*named)
    return pl.concat([largest, summed.select(rows.columns)], how="vertical_relaxed")


def _draw_waterfall_bar(
    row: Mapping[str, Any], by: str, label: int, half: int, largest: int, times: int, size: DrawSize
) -> Line:
    value, times_text = row["delta_ns"], ""
    tone = glyphs.select_sign_style(value)
    if times and (row["total_a_ns"] or row["total_b_ns"]):
        before, after = (units.format_duration(row[c]) for c in ("total_a_ns", "total_b_ns"))
        times_text = f"  {before:>9} → {after}"
    return ink.make_line(
        (fit_cells(str(row[by]), label, ascii=size.ascii) + " ", row["style"]),
        (glyphs.draw_signed_bar(value / largest, 2 * half + 1, size.ascii), tone),
        (_format_bar_change(value), tone),
        (times_text, "dim"),
    )


def _format_bar_change(value: int) -> str:
    arrow = "▲" if value > 0 else "▼" if value < 0 else " "
    return f" {arrow} {units.format_difference(value):>11}"


VIEW = View("waterfall", "Waterfall", answer, draw, needs=frozenset({"dur"}), run_count=2)
