"""Growth: how each op's time per token moves over the decode steps, and which steps leave the line."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import growing, select, windows
from tracetui.analysis.growth import Growth, growth, stretches
from tracetui.analysis.steps import stated
from tracetui.look import Look
from tracetui.views import Answer, View, _category, charts, ink
from tracetui.views._summed import summed
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
CHARTED: Final = 3  # rows without a choice

_AXES: Final = {
    "context": "x is the context length in tokens",
    "tokens": "x is tokens generated: this source does not tell the context length",
    "step": "x is the step number: this source tells neither context length nor tokens of all steps",
}


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row an op with its law, and notes on the steps that were slow."""
    run = runs[0]
    group = _group(run, look)
    fitted = growth(run, look, group)
    rows = _growing_first(fitted, group)
    parts = {
        "series": fitted.series,
        "steps": fitted.steps,
        "slow": fitted.slow,
        "lines": fitted.lines,
        **_category.known([run], group),
    }
    if fitted.rows.is_empty():
        return Answer(fitted.rows, (select.why_no_kernels(run), *windows.scope(run, look)), (group,), parts)
    printed = stated(run, look.phase or "decode")
    notes = (
        *growing.sentences(fitted),
        _scope(fitted),
        *([printed] if printed else []),
        _AXES[fitted.axis],
        *windows.scope(run, look),
        *_slow_steps(fitted),
    )
    return Answer(rows, notes, (group,), parts)


def _growing_first(fitted: Growth, group: str) -> pl.DataFrame:
    """Return the rows, those that grow first and by how much, the others as they come."""
    order = growing.names(fitted)
    place = {name: at for at, name in enumerate(order)}
    at = [place.get(name, len(order)) for name in fitted.rows[group].to_list()]
    return (
        fitted.rows.with_columns(_at=pl.Series(at, dtype=pl.Int64))
        .sort("_at", maintain_order=True)
        .drop("_at")
    )


def _group(run: Run, look: Look) -> str:
    return look.group or ("op" if run.has("op") else "name")


def _by(run: Run, look: Look) -> tuple[str, ...]:
    return (_group(run, look), "name", "step", "phase")


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
    name = answer.key[0]
    categories = _category.of_values(answer.parts, answer.rows[name])
    tones = _tones(answer.rows) | {name: [*map(_category.toned, categories)]}
    table = ink.table(answer.rows, room, (name, *SHOWN), look.cursor[0], tones)
    table += _category.below(categories, size)
    picture = Size(size.width, size.height - len(table), size.ascii)
    axis = answer.rows["axis"][0] if "axis" in answer.rows.columns else "step"
    chart = charts.chart(_series(answer, look), picture, x_label=str(axis), y_text=units.duration)
    return ink.clip([*table, *chart], size)


def _tones(rows: pl.DataFrame) -> dict[str, Sequence[str]]:
    """Return the colour of each course: what grows, what falls, what has spikes; the law says it in words."""
    columns = rows.select("law", "slope_ns_per_1k", "outliers").iter_rows()
    return {"trend": [_tone(*values) for values in columns]}


def _tone(law: str | None, slope: float | None, outliers: str | None) -> str:
    if law in growing.LAWS and slope:
        return "bad" if slope > 0 else "good"
    return "warn" if outliers else "dim" if law == "flat" else ""


def _series(answer: Answer, look: Look) -> dict[str, list[charts.Point]]:
    """Return the points of the rows that are charted, of those that grow with the line fitted to them."""
    grow, fitted = _growing(answer), answer.parts["lines"].select("row", "slope", "intercept").rows()
    lines = {row: (slope, level) for row, slope, level in fitted if row in grow and slope is not None}
    out: dict[str, list[charts.Point]] = {}
    for name in _charted(answer, look, grow):
        own = answer.parts["series"].filter(pl.col("row").eq_missing(pl.lit(name)))
        points = out[str(name if name is not None else "other")] = own.select("x", "y").rows()
        if name in lines:
            slope, level = lines[name]
            out[f"{name}, fitted line"] = [(x, level + slope * x) for x, _ in (points[0], points[-1])]
    return out


def _charted(answer: Answer, look: Look, grow: Sequence[Any]) -> list[Any]:
    """Return the chosen rows; without a choice the cursor's beside what grows, else beside the largest."""
    if look.chosen:
        return [row[0] for row in look.chosen]
    keys = answer.rows[answer.key[0]].to_list()
    here = keys[look.cursor[0] : look.cursor[0] + 1]
    return [*here, *(k for k in grow or keys if k not in here)][:CHARTED]


def _growing(answer: Answer) -> list[Any]:
    columns = (answer.key[0], "law", "slope_ns_per_1k")
    return [
        key for key, law, slope in answer.rows.select(columns).iter_rows()
        if law in growing.LAWS and (slope or 0) > 0
    ]  # fmt: skip


_NEEDS: Final = frozenset({"dur", "step"})
VIEW = View(
    "growth",
    "Growth",
    answer,
    draw,
    needs=_NEEDS,
    merging=summed(answer, _by, _NEEDS),
    columns=("op", *SHOWN),
    group="op",
)
