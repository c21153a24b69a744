"""Pair: one row of a diff, entered: both distributions and both courses over the steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.pair import pair
from tracetui.look import Look
from tracetui.views import Answer, View, ink
from tracetui.views.ink import Line, Size


def answer(runs: Sequence[Run], look: Look) -> Answer:
    focus = look.focused
    if "name" not in focus:
        return Answer(pl.DataFrame(), ("enter a row of the diff to see it in both runs",))
    group = focus.get("by", "name")
    names = focus["name"], focus.get("name_b") or focus["name"]
    found = pair(runs[:2], [replace(look, focus=_focus(group, name, focus)) for name in names])
    notes = [f"a is {names[0]} in {runs[0].name}", f"b is {names[1]} in {runs[1].name}"]
    if (found.rows["count"] == 0).any():
        notes.append("a side without launches: the row is new, gone, or several kernels of one role")
    return Answer(found.rows, tuple(notes), ("side",), {"bins": found.bins, "series": found.series})


def _focus(group: str, name: str, focus: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    named = (group, int(name) if group == "layer" and name.isdecimal() else name)
    return (named, ("phase", focus["phase"])) if focus.get("phase") is not None else (named,)


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """The figures, the two distributions beside each other, the two courses on one chart."""
    if answer.rows.is_empty():
        return []
    bins, series = answer.parts["bins"], answer.parts["series"]
    lines = [*ink.table(answer.rows, Size(size.width, 3, size.ascii)), ink.line()]
    lines += _distributions(bins, size)
    room = size.height - len(lines)
    points = {s: series.filter(pl.col("side") == s).select("step", "y").rows() for s in ("a", "b")}
    if room >= 8 and all(len(p) > 1 for p in points.values()):
        lines += ink.chart(points, Size(size.width, room, size.ascii), x_label="step", y_text=units.duration)
    return ink.clip(lines, size)


def _distributions(bins: pl.DataFrame, size: Size) -> list[Line]:
    """A line a bin: a to the left of the middle, b to the right."""
    most = max(1, *bins["a"].to_list(), *bins["b"].to_list()) if bins.height else 1
    edges = bins.select("low_ns", "high_ns").rows()
    labels = [f"{units.duration(low)} – {units.duration(high)}" for low, high in edges]
    width = max((len(x) for x in labels), default=0)
    half = max(4, (size.width - width - 3) // 2)
    return [
        ink.line(
            (label.rjust(width) + " ", "dim"),
            (ink.bar(a / most, half, size.ascii), "series0"),
            " ",
            (ink.bar(b / most, half, size.ascii), "series1"),
        )
        for label, a, b in zip(labels, bins["a"], bins["b"], strict=True)
    ]


VIEW = View("pair", "Row a|b", answer, draw, needs=frozenset({"dur"}), runs=2)
