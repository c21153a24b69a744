"""Waterfall: where the difference of two runs went, exactly, bar by bar."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.look import Look
from tracetui.views import Answer, View, _category, ink
from tracetui.views.diff import notes
from tracetui.views.ink import Line, Size

GROUPS: Final = ("op", "layer", "phase", "category")
TIMES: Final = 24  # cells of the times of both runs
TIMES_FROM: Final = 60  # cells beside the labels from which they are written


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one bar a group, which add up to the difference of the totals."""
    from tracetui.analysis.compare.diff import diff  # numpy and scipy load with the first question
    from tracetui.analysis.compare.waterfall import waterfall

    a, b = runs[0], runs[1]
    compared = diff(a, b, look)
    by = look.group if look.group in GROUPS else "op" if a.has("op") and b.has("op") else "category"
    bars = waterfall(compared.rows, by, compared.gap_ns)
    total = int(bars["delta_ns"].sum())
    exact = f"the bars add up to {total:,} ns: Δcalls at the old time per call, Δtime per call, new, gone"
    return Answer(bars, (*notes(a, b, compared, look), exact), (by,), _category.known((a, b), by))


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw a line a bar: label, signed bar from the middle, the change, and the times where there is room."""
    by = answer.key[0]
    legend = _category.below(known := _categories(answer), size)
    styles = pl.Series("style", [_category.toned(category) or "name" for category in known])
    rows = _shortened(answer.rows.with_columns(styles), by, max(2, size.height - 2 - len(legend)))
    largest = max((abs(v) for v in rows["delta_ns"]), default=0) or 1
    label = min(28, max((len(str(v)) for v in rows[by]), default=1))
    times = TIMES if size.width - label >= TIMES_FROM else 0
    half = max(4, (size.width - label - times - 16) // 2)
    whole = int(answer.rows["delta_ns"].sum())
    return [
        ink.line((f"{by} ".ljust(label + half), "dim"), ("faster ◂ ▸ slower", "dim")),
        *(_bar(row, by, label, half, largest, times, size) for row in rows.iter_rows(named=True)),
        ink.line(
            ("in all".ljust(label + 2 * half + 2), "title"), (_change_text(whole), glyphs.sign_tone(whole))
        ),
        *legend,
    ]


def _categories(answer: Answer) -> list[str | None]:
    """Return the category of each bar, as far as it is of one."""
    by = answer.key[0]
    labels = answer.rows[by].to_list()
    return labels if by == "category" else _category.of_values(answer.parts, labels)


def _shortened(rows: pl.DataFrame, by: str, room: int) -> pl.DataFrame:
    """Return as many bars as there is room for; the smallest are added up, so that all still add up."""
    if rows.height <= room:
        return rows
    order = rows.sort(pl.col("delta_ns").abs(), descending=True, maintain_order=True)
    kept, rest = order.head(room - 1), order.tail(-(room - 1))
    named = pl.lit(f"{rest.height} others").alias(by), pl.lit("name").alias("style")
    others = rest.select(pl.exclude(by, "style").sum()).with_columns(*named)
    return pl.concat([kept, others.select(rows.columns)], how="vertical_relaxed")


def _bar(
    row: Mapping[str, Any], by: str, label: int, half: int, largest: int, times: int, size: Size
) -> Line:
    value = row["delta_ns"]
    tone = glyphs.sign_tone(value)
    has_times = times and (row["total_a_ns"] or row["total_b_ns"])
    times_text = (
        f"  {units.duration(row['total_a_ns']):>9} → {units.duration(row['total_b_ns'])}" if has_times else ""
    )
    return ink.line(
        (ink.fit(str(row[by]), label, ascii=size.ascii) + " ", row["style"]),
        (glyphs.signed_bar(value / largest, 2 * half + 1, size.ascii), tone),
        (_change_text(value), tone),
        (times_text, "dim"),
    )


def _change_text(value: int) -> str:
    return f" {_arrow(value)} {units.difference(value):>11}"


def _arrow(value: int) -> str:
    return "▲" if value > 0 else "▼" if value < 0 else " "


VIEW = View("waterfall", "Waterfall", answer, draw, needs=frozenset({"dur"}), runs=2)
