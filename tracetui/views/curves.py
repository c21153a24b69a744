"""Curves: how the same op grows in two runs, on one chart."""

from collections.abc import Sequence

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.compare.curves import curves
from tracetui.look import Look
from tracetui.views import Answer, View, _category, charts, ink
from tracetui.views.diff import parties
from tracetui.views.ink import Line, Size

COLUMNS = (
    "slope_a_ns_per_1k",
    "slope_b_ns_per_1k",
    "slope_ratio",
    "cross",
    "law_a",
    "law_b",
    "r2_a",
    "r2_b",
    "first_a_ns",
    "first_b_ns",
    "last_a_ns",
    "last_b_ns",
)


RATIOS = "a ratio stands where both sides are lines, a crossing where none is noise"


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row an op: its law and slope in both runs, and where the two lines cross."""
    group = look.group or ("op" if all(r.has("op") for r in runs[:2]) else "name")
    compared = curves(runs[0], runs[1], look, group)
    axis = compared.a.axis
    per = "step" if axis == "step" else "token"
    notes = [parties(runs[0], runs[1], look), f"times are per {per} and slopes per 1,000 of {axis}; {RATIOS}"]
    if axis != compared.b.axis:
        notes.append(f"b's x is {compared.b.axis}: the two x axes do not mean the same")
    series = pl.concat(
        [
            g.series.select(_words(g.series["row"]), "x", "y", side=pl.lit(s), axis=pl.lit(axis))
            for g, s in ((compared.a, "a"), (compared.b, "b"))
        ],
        how="vertical_relaxed",
    )
    parts = {"series": series, **_category.known(runs[:2], group)}
    return Answer(compared.rows.select(group, *COLUMNS), tuple(notes), (group,), parts)


def _words(rows: pl.Series) -> pl.Series:
    """Return rows as they compare with words; millions of categories stay what they are."""
    return rows if rows.dtype == pl.Categorical else rows.cast(pl.String)


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw the table above; below it the row under the cursor, in a and in b."""
    if answer.rows.is_empty():
        return []
    below = size.height // 2 if size.height >= 16 else 0
    room = Size(size.width, min(answer.rows.height + 1, size.height - below), size.ascii)
    categories = _category.of_values(answer.parts, answer.rows[answer.key[0]])
    tones = {answer.key[0]: [*map(_category.toned, categories)]}
    table = ink.table(answer.rows, room, (*answer.key, *COLUMNS), look.cursor[0], tones)
    table += _category.below(categories, size)
    here = answer.rows[answer.key[0]][min(look.cursor[0], answer.rows.height - 1)]
    points = answer.parts["series"].filter(pl.col("row") == here)
    lines = {f"{here} in {s}": points.filter(pl.col("side") == s).select("x", "y").rows() for s in "ab"}
    axis = next(iter(points["axis"]), "")
    picture = Size(size.width, size.height - len(table), size.ascii)
    return ink.clip([*table, *charts.chart(lines, picture, x_label=axis, y_text=units.duration)], size)


VIEW = View("curves", "Growth a|b", answer, draw, needs=frozenset({"dur", "step"}), runs=2, group="op")
