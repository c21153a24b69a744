"""Growth: how each op's time per token moves over the decode steps, and which steps leave the line."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import select, windows
from tracetui.analysis.growth import Growth, growth, stretches
from tracetui.analysis.steps import stated
from tracetui.look import Look
from tracetui.views import Answer, View, charts, ink
from tracetui.views.ink import Line, Size

SHOWN: Final = (
    "trend",
    "first_ns",
    "last_ns",
    "law",
    "slope_ns_per_1k",
    "r2",
    "share_first",
    "share_last",
    "half_step",
    "outliers",
    "name",
    "steps",
    "slope_se_ns_per_1k",
    "total_ns",
)
ON_ITS_LINE: Final = 0.02
NAMED: Final = 8  # slow rows that a note names at most

_AXES: Final = {
    "context": "x is the context length in tokens",
    "tokens": "x is tokens generated: this source does not tell the context length",
    "step": "x is the step number: this source tells neither context length nor tokens of all steps",
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row an op with its law, and notes on the steps that were slow."""
    run = runs[0]
    group = look.group or ("op" if run.has("op") else "name")
    fitted = growth(run, look, group)
    parts = {"series": fitted.series, "steps": fitted.steps, "slow": fitted.slow}
    if fitted.rows.is_empty():
        return Answer(fitted.rows, (select.why_no_kernels(run), *windows.scope(run, look)), (group,), parts)
    printed = stated(run, look.phase or "decode")
    notes = (
        _scope(fitted),
        *([printed] if printed else []),
        _AXES[fitted.axis],
        *windows.scope(run, look),
        *_slow_steps(fitted),
    )
    return Answer(fitted.rows, notes, (group,), parts)


def _scope(fitted: Growth) -> str:
    steps = int(fitted.steps["steps"].sum())
    total = units.duration(int(fitted.steps["dur"].sum()))
    if fitted.axis == "step":
        return f"{steps} steps, {total} measured; values are per step"
    tokens = int(fitted.steps["tokens"].sum())
    return f"{steps} steps, {tokens:,} tokens, {total} measured; values are per token"


def _slow_steps(fitted: Growth) -> list[str]:
    """Return one note for each stretch of steps whose total leaves its line, with what was slow in it."""
    off = fitted.steps.filter("outlier").with_columns(
        stretch=(pl.col("step").diff() != 1).fill_null(True).cum_sum()
    )
    return [_slow_stretch(fitted, part) for _, part in off.group_by("stretch", maintain_order=True)]


def _slow_stretch(fitted: Growth, part: pl.DataFrame) -> str:
    rows = (
        fitted.slow.filter(pl.col("step").is_in(part["step"].implode()))
        .group_by("row")
        .agg(
            pl.col("ratio").min().alias("low"),
            pl.col("ratio").max().alias("high"),
            (pl.col("y") - pl.col("expected")).sum().alias("excess"),
            pl.col("y").sum(),
        )
        .sort("excess", "row", descending=[True, False])
    )
    excess, whole = float(rows["excess"].sum()), float(rows["y"].sum())
    still = rows.filter(
        (pl.col("low") > 1 - ON_ITS_LINE) & (pl.col("high") < 1 + ON_ITS_LINE) & (pl.col("y") > 0.05 * whole)
    )
    slow = rows.filter((pl.col("high") >= 1 + ON_ITS_LINE) & (pl.col("excess") > 0.01 * abs(excess)))
    ratios = (part["y"] / part["expected"]).to_list()
    what = ", ".join(_times(r) for r in slow.head(NAMED).iter_rows(named=True))
    rest = f"; {', '.join(str(r) for r in still['row'])} on the line" if still.height else ""
    span = _range(min(ratios), max(ratios))
    return f"step {stretches(part['step'])}: {span} its line: {what or 'no single row stands out'}{rest}"


def _times(row: dict[str, Any]) -> str:
    return f"{row['row'] or 'other'} {_range(row['low'], row['high'])}"


def _range(low: float, high: float) -> str:
    a, b = (f"{v:.1f}" if v >= 1.95 else f"{v:.2f}" for v in (low, high))
    return f"{a}×" if a == b else f"{a}–{b}×"


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw the table above, the chosen rows as a chart below."""
    if answer.rows.is_empty():
        return []
    below = size.height // 2 if size.height >= 16 else 0
    room = Size(size.width, min(answer.rows.height + 1, size.height - below), size.ascii)
    table = ink.table(answer.rows, room, (*answer.key, *SHOWN), look.cursor[0])
    picture = Size(size.width, size.height - len(table), size.ascii)
    axis = answer.rows["axis"][0] if "axis" in answer.rows.columns else "step"
    chart = charts.chart(_series(answer, look), picture, x_label=str(axis), y_text=units.duration)
    return ink.clip([*table, *chart], size)


def _series(answer: Answer, look: Look) -> dict[str, list[charts.Point]]:
    """Return the points of the chosen rows; without a choice the cursor's, beside the two largest."""
    keys = answer.rows[answer.key[0]].to_list()
    here = keys[look.cursor[0] : look.cursor[0] + 1]
    names = [row[0] for row in look.chosen] or [*here, *(k for k in keys if k not in here)][:3]
    series = answer.parts["series"]
    return {
        str(n if n is not None else "other"): series.filter(pl.col("row").eq_missing(pl.lit(n)))
        .select("x", "y")
        .rows()
        for n in names
    }


VIEW = View(
    "growth",
    "Growth",
    answer,
    draw,
    needs=frozenset({"dur", "step"}),
    columns=("op", *SHOWN),
    group="op",
)
