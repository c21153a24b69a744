"""Pair: one row of a diff: distributions, trends over the steps, counters and launches on both sides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.glyphs import fit_cells
from tracetui.look import Look
from tracetui.views import Answer, View, charts, ink
from tracetui.views.diff import build_titles
from tracetui.views.ink import DrawSize, Line

CHART_LINES: Final = (9, 14)  # minimum and maximum height of the chart over steps
MAX_COUNTERS: Final = 8


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per side; bins, series, launches and counters as parts."""
    from tracetui.compare.row_diff import compare_row  # numpy and scipy load with the first question

    focus = look.focus_values
    if "name" not in focus:
        return Answer(pl.DataFrame(), ("enter a row of the diff to see it in both runs",))
    row = _find_row(runs, look, focus)
    names = row["members_a"] or [], row["members_b"] or []
    group = focus.get("by") or "name"
    compared = compare_row(runs[:2], names, group, replace(look, phase=row["phase"]), row["rank"])
    parts = {name: getattr(compared, name) for name in ("bins", "series", "launches", "counters")}
    return Answer(compared.rows, tuple(_build_notes(runs, row, names)), ("side",), parts)


def _find_row(runs: Sequence[Run], look: Look, focus: dict[str, Any]) -> dict[str, Any]:
    """Return the row of the diff that was entered; if growing runs have lost it, a row of its name."""
    from tracetui.compare.diff import compare_runs

    rows = compare_runs(runs, replace(look, group=focus.get("by"))).rows
    same = pl.repeat(True, rows.height, eager=True)
    for column in ("name", "name_b", "phase"):
        if column in focus:
            same &= rows[column].eq_missing(pl.Series([focus[column]], dtype=pl.String))
    entered = rows.filter(same)
    if entered.height:
        return entered.row(0, named=True)
    name = [str(focus["name"])]
    members = {"members_a": name, "members_b": name}
    return {**members, "phase": focus.get("phase"), "rank": None, "verdict": None, "match": "name"}


def _build_notes(runs: Sequence[Run], row: dict[str, Any], names: Sequence[Sequence[str]]) -> list[str]:
    notes = []
    if row["verdict"] is not None:
        total = units.format_difference(row["delta_ns"])
        notes.append(f"{row['verdict']}{_describe_medians(row)}, Δ {total} in total")
        if row["match"] != "exact":
            notes.append(f"matched: {row['match']}")
    for side, run, of in zip("ab", build_titles(runs[0], runs[1]), names, strict=True):
        notes.append(f"{side} is {', '.join(of) or 'nothing'} in {run}")
    return notes


def _describe_medians(row: dict[str, Any]) -> str:
    """Return the medians that the verdict is about."""
    before, after = row["median_a_ns"], row["median_b_ns"]
    if not before or after is None or row["per"] is None:
        return ""
    change = row["median_delta_ns"] / before
    medians = f"{units.format_duration(before)} → {units.format_duration(after)}"
    return f" {change:+.1%}: medians {medians} per {row['per']}"


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw from the statistics to single launches; the rest is scrolled to."""
    if answer.rows.is_empty():
        return []
    parts = answer.parts
    lines = [*ink.draw_table(answer.rows, size.with_height(3)), ink.make_line()]
    lines += _draw_distributions(parts["bins"], size)
    below = [*_draw_counters(parts["counters"], size), *_draw_launches(parts["launches"], size)]
    room = max(CHART_LINES[0], min(CHART_LINES[1], size.height - len(lines) - len(below)))
    return [*lines, *_draw_trends(parts["series"], size.with_height(room)), *below]


def _draw_trends(series: pl.DataFrame, size: DrawSize) -> list[Line]:
    points = {s: series.filter(pl.col("side") == s).select("step", "y").rows() for s in ("a", "b")}
    if not all(len(p) > 1 for p in points.values()):
        return []
    return [ink.make_line(), *charts.draw_chart(points, size, x_label="step", y_text=units.format_duration)]


def _draw_counters(counters: pl.DataFrame, size: DrawSize) -> list[Line]:
    if counters.is_empty():
        return [ink.make_line(), ink.make_line(("no counter was sampled in both runs", "dim"))]
    table = ink.draw_table(counters, size.with_height(MAX_COUNTERS + 1))
    return [ink.make_line(), ink.make_line(("counters while it ran", "title")), *table]


def _draw_launches(launches: pl.DataFrame, size: DrawSize) -> list[Line]:
    if launches.is_empty():
        return []
    table = ink.draw_table(launches, size.with_height(launches.height + 1), launches.columns)
    return [ink.make_line(), ink.make_line(("the longest launches of either run", "title")), *table]


def _draw_distributions(bins: pl.DataFrame, size: DrawSize) -> list[Line]:
    """Draw a line per bin: a to the left of the middle, b to the right."""
    largest = max(1, *bins["a"].to_list(), *bins["b"].to_list()) if bins.height else 1
    edges = bins.select("low_ns", "high_ns").rows()
    labels = [" – ".join(map(units.format_duration, pair)) for pair in edges]
    width = max((len(x) for x in labels), default=0)
    half = max(4, (size.width - width - 3) // 2)
    head = [ink.make_line(" " * (width + 1), (fit_cells("a", half), "series0"), " ", ("b", "series1"))]
    return head + [
        ink.make_line(
            (label.rjust(width) + " ", "dim"),
            (glyphs.draw_bar(a / largest, half, size.ascii), "series0"),
            " ",
            (glyphs.draw_bar(b / largest, half, size.ascii), "series1"),
        )
        for label, a, b in zip(labels, bins["a"], bins["b"], strict=True)
    ]


VIEW = View("pair", "Row a|b", answer, draw, needs=frozenset({"dur"}), run_count=2)
