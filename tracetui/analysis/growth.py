"""Growth: time per token of each op over the decode steps, against context length, and its law."""

from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from capture.dense_lookup import find_distinct, find_rows
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import line_fit
from tracetui.analysis.frames.codes import group_by_packed_key
from tracetui.analysis.frames.even_fit import MIN_ROWS, compute_pace, fit_even_lines
from tracetui.analysis.frames.selection import select_timed, with_group
from tracetui.analysis.time.step_table import assign_trend_cells, build_step_facts
from tracetui.look import Look

HALF_SHARE: Final = 0.5
TREND_CELLS: Final = 64

MOVING_LAWS: Final = ("linear", "step")  # laws of change; others are flat or noisy
GROWTH_MIN_SHARE: Final = 0.25  # of its first time: an op that grows enough for a headline
HEAVY_MIN_SHARE: Final = 0.05  # of the last time: a smaller op makes no headline
MIN_PACE_CHANGE: Final = 0.01
MIN_MARGIN_SHARE: Final = 0.001  # of a slope: a smaller error is not printed
MAX_SENTENCES: Final = 3  # growing rows described
MAX_EXTRAPOLATION: Final = 100  # times the largest measured x: lines are extrapolated no further
_OF: Final = {"context": "1k tokens of context", "tokens": "1k tokens generated", "step": "1k steps"}
_AT: Final = {"context": "context", "tokens": "token", "step": "step"}
_TRENDS: Final = {"trend": "even_y", "plain_trend": "y"}
_COLUMNS: Final = (
    "row", "trend", "plain_trend", "steps", "tokens", "total_ns", "first_ns", "last_ns", "law", "axis",
    "slope_ns_per_1k", "slope_se_ns_per_1k", "slope_low_ns_per_1k", "slope_high_ns_per_1k", "r2",
    "share_first", "share_last", "half_step", "outliers",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Growth:
    """Rows with their laws, and the data they come from."""

    rows: pl.DataFrame  # one row per op
    series: pl.DataFrame  # one row per op and step: row, step, x, tokens, dur, y (ns per token), even_y
    lines: pl.DataFrame  # one row per op: row, slope, intercept, law …
    steps: pl.DataFrame  # one row per step: step, x, tokens, dur, y, expected, outlier
    slow: pl.DataFrame  # rows of outlier steps: step, row, y, expected, ratio
    axis: str  # meaning of x: context, tokens or step
    pace: pl.DataFrame  # row, x, y: time of the whole step, as a factor of the fastest tenth of the steps


def compute_growth_lines(run: Run, look: Look, group: str) -> pl.DataFrame:
    """Return law, line and total of each group, and the axis."""
    axis, axis_steps = _choose_axis(_select_steps(run, look))
    values, series = _compute_series(run, look, group, axis_steps)
    totals = series.group_by("row").agg(pl.col("dur").sum().alias("total_ns"))
    lines, _ = fit_even_lines(_with_pace(run, look, series, axis_steps))
    table = lines.join(totals, on="row", nulls_equal=True)
    group_value = pl.lit(values).gather(pl.col("row")).alias(group)
    return table.select(group_value, "total_ns", "law", "r2", *_build_slopes_per_1k(), axis=pl.lit(axis))


def compute_growth(run: Run, look: Look, group: str) -> Growth:
    """Return the growth of each group over the selected steps, with its fitted law."""
    axis, axis_steps = _choose_axis(_select_steps(run, look))
    values, series = _compute_series(run, look, group, axis_steps)
    series = _with_pace(run, look, _with_shares(run, look, series), axis_steps)
    lines, even = fit_even_lines(series)
    lines = lines.with_columns(
        pl.col(pl.Float64).round_sig_figs(12)
    )  # sums of threads differ in their last digits
    pace = series.group_by("step").agg(pl.first("x"), y=pl.first("pace").exp(), row=pl.lit("step")).sort("x")
    series = series.with_columns(even_y=even).with_columns(pl.col("even_y").round_sig_figs(12)).drop("pace")
    points = line_fit.fit_lines(series).points.with_columns(series["step"])
    total = _fit_total(series)
    row_value = pl.lit(values).gather(pl.col("row")).alias("row")  # values replace codes at the end
    table = _build_table(series, lines, points, axis).with_columns(row_value)
    table = table.join(_find_single_names(run, look, group), on="row", how="left", nulls_equal=True)
    return Growth(
        rows=table.rename({"row": group}),
        series=series.with_columns(row_value),
        lines=lines.with_columns(row_value),
        steps=total,
        slow=_find_slow_rows(points, total).with_columns(row_value),
        axis=axis,
        pace=pace,
    )


def _with_pace(run: Run, look: Look, series: pl.DataFrame, axis_steps: pl.DataFrame) -> pl.DataFrame:
    """Return the series with the pace of each step, from all names of the step; 0 if it is unknown."""
    if not _has_names_of_every_step(run, series["step"].n_unique()):
        return series.with_columns(pace=pl.lit(0.0))
    everything = replace(look, filter="", where=(), focus=())
    _, by_name = _compute_series(run, everything, "name", axis_steps)
    return series.join(compute_pace(by_name), on="step", how="left", maintain_order="left").with_columns(
        pl.col("pace").fill_null(0)
    )


def _has_names_of_every_step(run: Run, steps: int) -> bool:
    """Return False if too few names have as many rows as there are steps: then no step has a pace."""
    counts = run.events.lazy().group_by("name").len().collect()["len"]
    return bool((counts >= steps).sum() >= MIN_ROWS)


def _with_shares(run: Run, look: Look, series: pl.DataFrame) -> pl.DataFrame:
    """Return the series with each row's share of all rows of its step, including filtered ones."""
    step_ns = pl.col("dur").sum().over("step")
    if look.filter or look.where:
        everything = select_timed(run, replace(look, filter="", where=())).group_by("step")
        sums = everything.agg(all_ns=pl.col("dur").sum()).collect()
        series, step_ns = series.join(sums, on="step", how="left", maintain_order="left"), pl.col("all_ns")
    share = pl.when(step_ns > 0).then(pl.col("dur") / step_ns)
    return series.select(pl.exclude("step", "all_ns"), share=share, step="step")


def _select_steps(run: Run, look: Look) -> pl.DataFrame:
    """Return the decode steps; without decode, all steps of the requested phase."""
    step_facts = build_step_facts(run)
    if look.window is not None:
        step_facts = step_facts.filter(pl.col("step").is_between(*look.window))
    phase = look.phase or ("decode" if (step_facts["phase"] == "decode").any() else None)
    return step_facts.filter(pl.col("phase") == phase) if phase else step_facts


def _choose_axis(step_facts: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """Return the name of the x that series are fitted against, and `step`, `x`, `tokens`."""
    complete = [c for c in ("context", "tokens") if step_facts.height and step_facts[c].null_count() == 0]
    tokens = pl.col("tokens").clip(lower_bound=1) if "tokens" in complete else pl.col("steps")
    axis = complete[0] if complete else "step"
    x = tokens.cum_sum() if axis == "tokens" else pl.col(axis)
    return axis, step_facts.select("step", "steps", x=x.cast(pl.Float64), tokens=tokens)


def _find_single_names(run: Run, look: Look, group: str) -> pl.DataFrame:
    """Return the name of each row that has only one, else null."""
    if group == "name":
        return pl.DataFrame(schema={"row": pl.Categorical})
    rows = with_group(run, select_timed(run, look), group).select(pl.col(group).alias("row"), "name")
    only_name = pl.when(pl.col("name").len() == 1).then(pl.col("name").first())
    return group_by_packed_key(rows, ("row", "name")).group_by("row").agg(only_name)


def _compute_series(
    run: Run, look: Look, group: str, axis_steps: pl.DataFrame
) -> tuple[pl.Series, pl.DataFrame]:
    """Return the value of each row code, and the time per token of each row code and step."""
    timed = with_group(run, select_timed(run, look), group)
    rows = timed.select(pl.col(group).alias("row"), "step", "dur").collect()
    values, codes = _encode_values(rows["row"])
    step_index = find_rows(axis_steps["step"], rows["step"], keep="last").cast(pl.Int64)
    key = (codes.cast(pl.Int64) * axis_steps.height + step_index).alias("key")
    sums = pl.DataFrame([key, rows["dur"]]).lazy().drop_nulls().group_by("key").agg(pl.col("dur").sum())
    points = sums.sort("key").collect()
    row, step = points["key"] // max(1, axis_steps.height), points["key"] % max(1, axis_steps.height)
    points = axis_steps[step].with_columns(points["dur"], row=row.cast(pl.UInt32).set_sorted())
    y = pl.col("dur") / pl.col("tokens")
    return values, points.select("row", "x", "steps", "tokens", "dur", y=y, step="step")


def _build_slopes_per_1k() -> list[pl.Expr]:
    """Return the slope of a line, its error and its 95 % interval per thousand units of x."""
    slope, margin = pl.col("slope"), pl.col("slope_margin")
    slopes = {
        "slope": slope,
        "slope_se": pl.col("slope_se"),
        "slope_low": slope - margin,
        "slope_high": slope + margin,
    }
    return [
        (c.cast(pl.Float64) * 1000).round_sig_figs(12).alias(f"{name}_ns_per_1k")
        for name, c in slopes.items()
    ]


def _encode_values(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the distinct values of a column, sorted, null last, and the code of each entry."""
    values = find_distinct(column) if column.dtype == pl.Categorical else column.unique().drop_nulls()
    values = values.sort()
    codes = find_rows(values.to_physical(), column.to_physical(), keep="last").fill_null(values.len())
    return values.extend(values.clear(1)), codes


def _fit_total(series: pl.DataFrame) -> pl.DataFrame:
    """Return the total of each step, and its outliers from its own line."""
    sums = series.group_by("step").agg(pl.col("x", "steps", "tokens").first(), pl.col("dur").sum())
    points = sums.sort("step").with_columns(row=pl.lit("total"), y=pl.col("dur") / pl.col("tokens"))
    return points.drop("row").hstack(line_fit.fit_lines(points).points.select("expected", "outlier"))


def _build_table(series: pl.DataFrame, lines: pl.DataFrame, points: pl.DataFrame, axis: str) -> pl.DataFrame:
    """Return one row per group, largest total first."""
    outliers = points.filter("outlier").group_by("row").agg(pl.col("step").sort())
    numbers = pl.col("step").map_elements(units.format_ranges, return_dtype=pl.String)
    outliers = outliers.select("row", outliers=numbers)
    table = series.group_by("row").agg(_build_end_columns())
    table = table.join(_compute_trends(series), on="row", nulls_equal=True)
    table = table.join(lines, on="row", nulls_equal=True)
    table = table.join(outliers, on="row", how="left", nulls_equal=True)
    table = table.with_columns(*_build_slopes_per_1k(), axis=pl.lit(axis))
    return table.sort("total_ns", "row", descending=[True, False], nulls_last=True).select(_COLUMNS)


def _compute_trends(series: pl.DataFrame) -> pl.DataFrame:
    """Return the even and the measured trend of each row: a value per step, or per cell of folded steps."""
    if not (series["steps"] > 1).any():
        return series.group_by("row").agg(trend="even_y", plain_trend="y")
    step_sizes = series.select("step", "steps").unique().sort("step")
    cells = step_sizes.select("step", cell=assign_trend_cells(step_sizes, TREND_CELLS))
    placed = series.join(cells, on="step", maintain_order="left")
    tokens = pl.col("tokens")
    means = {name: (pl.col(y) * tokens).sum() / tokens.sum() for name, y in _TRENDS.items()}
    cells = placed.group_by("row", "cell").agg(**means).sort("cell")
    return cells.group_by("row").agg(pl.col(*_TRENDS))


def _build_end_columns() -> list[pl.Expr]:
    share, y = pl.col("share"), pl.col("y")
    crossed = (share >= HALF_SHARE) & (share.first() < HALF_SHARE)
    return [
        pl.col("steps").sum(),
        pl.col("tokens").sum(),
        pl.col("dur").sum().alias("total_ns"),
        y.first().round().cast(pl.Int64).alias("first_ns"),
        y.last().round().cast(pl.Int64).alias("last_ns"),
        share.first().alias("share_first"),
        share.last().alias("share_last"),
        pl.col("step").filter(crossed).first().alias("half_step"),
    ]


def _find_slow_rows(points: pl.DataFrame, total: pl.DataFrame) -> pl.DataFrame:
    """Return every row of each outlier step against the expectation of its own line."""
    outlier_steps = total.filter("outlier")["step"]
    ratio = pl.when(pl.col("expected") > 0).then(pl.col("y") / pl.col("expected"))
    slow = points.filter(pl.col("step").is_in(outlier_steps.implode()))
    return slow.select("step", "row", "y", "expected", ratio=ratio)


def describe_pace(fitted: Growth) -> list[str]:
    """Return notes on the pace that was taken out, and on its change over the steps; none if it is steady."""
    slowest = fitted.pace["y"].max() if fitted.pace.height else None
    if not isinstance(slowest, float) or slowest < 1 + MIN_PACE_CHANGE:
        return []
    notes = [f"slopes and trends are corrected for slowdowns of whole steps (up to {slowest:.2f}×)"]
    lines, _ = fit_even_lines(fitted.pace.with_columns(pace=0.0))
    slope, level, law = lines.select("slope", "intercept", "law").row(0)
    if law in MOVING_LAWS and slope is not None:
        first, last = (level + slope * fitted.pace["x"][at] for at in (0, -1))
        change = units.format_change(100 * (last / first - 1))
        notes.append(f"all rows together: {change} over the steps, which no row shows")
    return notes


def list_growing_rows(fitted: Growth) -> list[Any]:
    """Return the rows that grow, the largest rise over the run first."""
    return _select_rising(fitted)["row"].to_list()


def describe_growing_rows(fitted: Growth) -> list[str]:
    """Return a sentence for each of the rows that grow most."""
    largest = _select_rising(fitted).head(MAX_SENTENCES)
    rows = largest.iter_rows(named=True)
    return [_describe_growth(fitted, row) + _describe_crossing(fitted, row) for row in rows]


def describe_main_growth(run: Run) -> tuple[str, str] | None:
    """Return the op that grows most, and its growth in words by the law of its view; None if none matters."""
    fitted = compute_growth(run, Look(), "op")
    shares = dict(fitted.rows.select("op", "share_last").iter_rows())
    for row in _select_rising(fitted).iter_rows(named=True):
        before = row["intercept"] + row["slope"] * row["first"]
        is_heavy = (shares.get(row["row"]) or 0) >= HEAVY_MIN_SHARE
        if row["row"] is not None and is_heavy and row["rise"] >= GROWTH_MIN_SHARE * before:
            return row["row"], _describe_growth(fitted, row)
    return None


def _select_rising(fitted: Growth) -> pl.DataFrame:
    """Return the rising lines, with the first and last x of their rows."""
    x = pl.col("x")
    extent = fitted.series.group_by("row").agg(first=x.min(), last=x.max(), dur=pl.col("dur").sum())
    lines = fitted.lines.join(extent, on="row", nulls_equal=True)
    rise_ns = pl.col("slope") * (pl.col("last") - pl.col("first"))
    rising = lines.with_columns(rise=rise_ns).filter(pl.col("law").is_in(MOVING_LAWS), pl.col("rise") > 0)
    return rising.sort("rise", "row", descending=[True, False], nulls_last=True)


def format_row_name(value: Any) -> str:
    """Format what a row is grouped by: an op, a name, a layer; null is unknown."""
    return units.ABSENT if value is None else str(value)


def _describe_growth(fitted: Growth, row: dict[str, Any]) -> str:
    """Describe it: attn.core grows by +440 µs ± 9 µs per 1k tokens of context: 9 µs at 1, 45 µs at 9."""
    slope, level, *ends = (row[c] for c in ("slope", "intercept", "first", "last"))
    times = [f"{units.format_duration(level + slope * x)} at {units.format_number(round(x))}" for x in ends]
    margin = row["slope_margin"] or 0
    error = f" ± {units.format_duration(1000 * margin)}" if margin > MIN_MARGIN_SHARE * slope else ""
    corrected = " (corrected)" if describe_pace(fitted) else ""
    rate = f"{units.format_difference(1000 * slope)}{error} per {_OF[fitted.axis]}{corrected}"
    return f"{format_row_name(row['row'])} grows by {rate}: {', '.join(times)}"


def _describe_crossing(fitted: Growth, row: dict[str, Any]) -> str:
    """Describe where a row's line meets that of the largest other row, as the end of a sentence."""
    dur = fitted.series.group_by("row").agg(dur=pl.col("dur").sum())
    others = fitted.lines.join(dur, on="row", nulls_equal=True)
    others = others.filter(pl.col("row").ne_missing(pl.lit(row["row"])), pl.col("slope").is_not_null())
    if others.is_empty():
        return ""
    other = others.sort("dur", "row", descending=[True, False], nulls_last=True).row(0, named=True)
    slope_difference = row["slope"] - other["slope"]
    x = (other["intercept"] - row["intercept"]) / slope_difference if slope_difference > 0 else 0
    if not row["first"] < x <= MAX_EXTRAPOLATION * row["last"]:
        return ""
    name, position = format_row_name(other["row"]), f"{_AT[fitted.axis]} {units.format_number(round(x))}"
    if x <= row["last"]:
        return f"; longer than {name} from {position} on"
    return f"; extrapolated, as long as {name} at {position}"


@dataclass(frozen=True, eq=False)
class GrowthComparison:
    """One row per op that both runs have, and the growth of both runs."""

    rows: pl.DataFrame
    a: Growth
    b: Growth


def compare_growth(a: Run, b: Run, look: Look, group: str) -> GrowthComparison:
    """Compare the fitted lines of both runs: growing rows first, then by size.

    Noisy rows have a slope by chance, so only lines are compared.
    """
    left, right = compute_growth(a, look, group), compute_growth(b, look, group)
    both = _select_side(left.rows, group, "a").join(_select_side(right.rows, group, "b"), on=group)
    rows = both.join(_find_crossings(left, right), left_on=group, right_on="row", how="left")
    laws = pl.col("law_a"), pl.col("law_b")
    are_linear = pl.all_horizontal(law == "linear" for law in laws)
    slope_a, slope_b = pl.col("slope_a_ns_per_1k"), pl.col("slope_b_ns_per_1k")
    ratio = pl.when(are_linear & (slope_a != 0)).then(slope_b / slope_a)
    are_straight = pl.all_horizontal(law.is_in(["linear", "flat"]) for law in laws)
    rows = rows.with_columns(slope_ratio=ratio, cross=pl.when(are_straight).then(pl.col("cross")))
    grows = pl.any_horizontal(law == "linear" for law in laws)
    size = pl.col("total_a_ns") + pl.col("total_b_ns")
    return GrowthComparison(rows.sort(grows, size, group, descending=[True, True, False]), left, right)


def _select_side(rows: pl.DataFrame, group: str, side: str) -> pl.DataFrame:
    """Select columns, named with their side: slope_ns_per_1k of a is slope_a_ns_per_1k."""
    columns = ("law", "slope_ns_per_1k", "r2", "first_ns", "last_ns", "total_ns")
    parts = ((column, *column.partition("_ns")) for column in columns)
    renamed = {f"{head}_{side}{unit}{tail}": column for column, head, unit, tail in parts}
    return rows.select(pl.col(group).cast(pl.String), **renamed)


def _find_crossings(a: Growth, b: Growth) -> pl.DataFrame:
    """Find for each row the x at which both lines are equal, within the measured range."""
    left, right = (g.lines.with_columns(pl.col("row").cast(pl.String)) for g in (a, b))
    both = left.join(right, on="row", suffix="_b")
    x = (pl.col("intercept_b") - pl.col("intercept")) / (pl.col("slope") - pl.col("slope_b"))
    measured = pl.concat([a.series["x"], b.series["x"]])
    is_measured = x.is_between(pl.lit(measured.min()), pl.lit(measured.max())) & x.is_finite()
    return both.select("row", cross=pl.when(is_measured).then(x))
