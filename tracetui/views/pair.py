"""Pair: one row of a diff, entered: distributions, courses over the steps, counters and launches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import glyphs, units
from tracetui.look import Look
from tracetui.views import Answer, View, charts, ink
from tracetui.views.diff import titles
from tracetui.views.ink import Line, Size

CHART: Final = (9, 14)  # lines of the course over the steps, at least and at most
COUNTERS: Final = 8


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a side, with bins, series, launches and counters as parts."""
    from tracetui.analysis.compare.row_diff import row_diff  # numpy and scipy load with the first question

    focus = look.focused
    if "name" not in focus:
        return Answer(pl.DataFrame(), ("enter a row of the diff to see it in both runs",))
    row = _row(runs, look, focus)
    names = row["members_a"] or [], row["members_b"] or []
    group = focus.get("by") or "name"
    compared = row_diff(runs[:2], names, group, replace(look, phase=row["phase"]))
    parts = {
        "bins": compared.bins,
        "series": compared.series,
        "launches": compared.launches,
        "counters": compared.counters,
    }
    return Answer(compared.rows, tuple(_notes(runs, row, names)), ("side",), parts)


def _row(runs: Sequence[Run], look: Look, focus: dict[str, Any]) -> dict[str, Any]:
    """Return the row of the diff that was entered; where the runs have grown and lost it, its name."""
    from tracetui.analysis.compare.diff import diff

    rows = diff(runs[0], runs[1], replace(look, group=focus.get("by"))).rows
    same = pl.repeat(True, rows.height, eager=True)
    for column in ("name", "name_b", "phase"):
        if column in focus:
            same &= rows[column].eq_missing(pl.Series([focus[column]], dtype=pl.String))
    entered = rows.filter(same)
    if entered.height:
        return entered.row(0, named=True)
    alone = [str(focus["name"])]
    return {
        "members_a": alone,
        "members_b": alone,
        "phase": focus.get("phase"),
        "verdict": None,
        "match": "name",
    }


def _notes(runs: Sequence[Run], row: dict[str, Any], names: Sequence[Sequence[str]]) -> list[str]:
    notes = []
    if row["verdict"] is not None:
        notes.append(f"{row['verdict']}{_middle(row)}, Δ {units.difference(row['delta_ns'])} in all")
        if row["match"] != "exact":
            notes.append(f"matched: {row['match']}")
    for side, run, of in zip("ab", titles(runs[0], runs[1]), names, strict=True):
        notes.append(f"{side} is {', '.join(of) or 'nothing'} in {run}")
    return notes


def _middle(row: dict[str, Any]) -> str:
    """Return the medians that the verdict is about, in words."""
    before, after = row["median_a_ns"], row["median_b_ns"]
    if not before or after is None or row["per"] is None:
        return ""
    change = row["median_delta_ns"] / before
    return f" {change:+.1%}: medians {units.duration(before)} → {units.duration(after)} a {row['per']}"


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw from the figures to the single launches; what does not fit is scrolled to."""
    if answer.rows.is_empty():
        return []
    parts = answer.parts
    lines = [*ink.table(answer.rows, Size(size.width, 3, size.ascii)), ink.line()]
    lines += _distributions(parts["bins"], size)
    below = [*_counters(parts["counters"], size), *_launches(parts["launches"], size)]
    room = max(CHART[0], min(CHART[1], size.height - len(lines) - len(below)))
    return [*lines, *_courses(parts["series"], Size(size.width, room, size.ascii)), *below]


def _courses(series: pl.DataFrame, size: Size) -> list[Line]:
    points = {s: series.filter(pl.col("side") == s).select("step", "y").rows() for s in ("a", "b")}
    if not all(len(p) > 1 for p in points.values()):
        return []
    return [ink.line(), *charts.chart(points, size, x_label="step", y_text=units.duration)]


def _counters(counters: pl.DataFrame, size: Size) -> list[Line]:
    if counters.is_empty():
        return [ink.line(), ink.line(("no counter was sampled in both runs", "dim"))]
    table = ink.table(counters, Size(size.width, COUNTERS + 1, size.ascii))
    return [ink.line(), ink.line(("counters while it ran", "title")), *table]


def _launches(launches: pl.DataFrame, size: Size) -> list[Line]:
    if launches.is_empty():
        return []
    table = ink.table(launches, Size(size.width, launches.height + 1, size.ascii), launches.columns)
    return [ink.line(), ink.line(("the longest launches of either run", "title")), *table]


def _distributions(bins: pl.DataFrame, size: Size) -> list[Line]:
    """Return a line a bin: a to the left of the middle, b to the right."""
    most = max(1, *bins["a"].to_list(), *bins["b"].to_list()) if bins.height else 1
    edges = bins.select("low_ns", "high_ns").rows()
    labels = [f"{units.duration(low)} – {units.duration(high)}" for low, high in edges]
    width = max((len(x) for x in labels), default=0)
    half = max(4, (size.width - width - 3) // 2)
    head = [ink.line(" " * (width + 1), (ink.fit("a", half), "series0"), " ", ("b", "series1"))]
    return head + [
        ink.line(
            (label.rjust(width) + " ", "dim"),
            (glyphs.bar(a / most, half, size.ascii), "series0"),
            " ",
            (glyphs.bar(b / most, half, size.ascii), "series1"),
        )
        for label, a, b in zip(labels, bins["a"], bins["b"], strict=True)
    ]


VIEW = View("pair", "Row a|b", answer, draw, needs=frozenset({"dur"}), runs=2)
