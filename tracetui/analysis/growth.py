"""Growth: the time of each op per token, over the decode steps, against the context length."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.classify.positions import distinct, rows_of
from capture.run import Run
from tracetui.analysis import laws, select, steps
from tracetui.analysis.packed import grouped
from tracetui.look import Look

HALF: Final = 0.5
TREND_CELLS: Final = 64


@dataclass(frozen=True, eq=False)
class Growth:
    """Rows with their laws, and what they come from."""

    rows: pl.DataFrame  # one row an op
    series: pl.DataFrame  # one row an op and step: row, step, x, tokens, dur, y (ns per token), share
    lines: pl.DataFrame  # one row an op: row, slope, intercept, law …
    steps: pl.DataFrame  # one row a step: step, x, tokens, dur, y, expected, outlier
    slow: pl.DataFrame  # what was slow in outlier steps: step, row, y, expected, ratio
    axis: str  # what x is: context, tokens or step


def lines(run: Run, look: Look, group: str) -> pl.DataFrame:
    """Return the law alone of every group: what x is, its line, and its total."""
    axis, axis_steps = _axis(_chosen_steps(run, look))
    words, series = _series(run, look, group, axis_steps)
    totals = series.group_by("row").agg(pl.col("dur").sum().alias("total_ns"))
    table = laws.fit(series).lines.join(totals, on="row", nulls_equal=True)
    of_word = pl.lit(words).gather(pl.col("row")).alias(group)
    return table.select(of_word, "total_ns", "law", "r2", *_per_1k(), axis=pl.lit(axis))


def growth(run: Run, look: Look, group: str) -> Growth:
    """Return the growth of every group over the chosen steps, with the law fitted to it."""
    axis, axis_steps = _axis(_chosen_steps(run, look))
    words, series = _series(run, look, group, axis_steps)
    series = _with_shares(series)
    fitted = laws.fit(series)
    judged = fitted.points.with_columns(series["step"])
    whole = _whole(series)
    of_word = pl.lit(words).gather(pl.col("row")).alias("row")  # rows are numbers as long as they are many
    table = _table(series, fitted.lines, judged, axis).with_columns(of_word)
    return Growth(
        rows=table.join(_names(run, look, group), on="row", how="left", nulls_equal=True).rename(
            {"row": group}
        ),
        series=series.with_columns(of_word),
        lines=fitted.lines.with_columns(of_word),
        steps=whole,
        slow=_slow(judged, whole).with_columns(of_word),
        axis=axis,
    )


def _chosen_steps(run: Run, look: Look) -> pl.DataFrame:
    """Return the decode steps; where the source knows no decode, all steps of the phase asked for."""
    marks = steps.marks(run)
    if look.window is not None:
        marks = marks.filter(pl.col("step").is_between(*look.window))
    phase = look.phase or ("decode" if (marks["phase"] == "decode").any() else None)
    return marks.filter(pl.col("phase") == phase) if phase else marks


def _axis(marks: pl.DataFrame) -> tuple[str, pl.DataFrame]:
    """Return the name of the x that series are fitted against, and step → x, tokens."""
    complete = [c for c in ("context", "tokens") if marks.height and marks[c].null_count() == 0]
    tokens = pl.col("tokens").clip(lower_bound=1) if "tokens" in complete else pl.col("steps")
    axis = complete[0] if complete else "step"
    x = tokens.cum_sum() if axis == "tokens" else pl.col(axis)
    return axis, marks.select("step", "steps", x=x.cast(pl.Float64), tokens=tokens)


def _names(run: Run, look: Look, group: str) -> pl.DataFrame:
    """Return row → the one name that stands behind it; null where there are several."""
    if group == "name":
        return pl.DataFrame(schema={"row": pl.Categorical})
    rows = select.with_group(run, select.timed(run, look), group).select(pl.col(group).alias("row"), "name")
    one = pl.when(pl.col("name").len() == 1).then(pl.col("name").first())
    return grouped(rows, ("row", "name")).group_by("row").agg(one)


def _series(run: Run, look: Look, group: str, axis_steps: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Return the word of each row, in order; and row, step → its time per token, by the numbers of the rows
    and by step.
    """
    timed = select.with_group(run, select.timed(run, look), group)
    rows = timed.select(pl.col(group).alias("row"), "step", "dur").collect()
    words, numbers = _numbered(rows["row"])
    place = rows_of(axis_steps["step"], rows["step"], keep="last").cast(pl.Int64)
    key = (numbers.cast(pl.Int64) * axis_steps.height + place).alias("key")
    sums = pl.DataFrame([key, rows["dur"]]).lazy().drop_nulls().group_by("key").agg(pl.col("dur").sum())
    points = sums.sort("key").collect()
    row, step = points["key"] // max(1, axis_steps.height), points["key"] % max(1, axis_steps.height)
    points = axis_steps[step].with_columns(points["dur"], row=row.cast(pl.UInt32).set_sorted())
    y = pl.col("dur") / pl.col("tokens")
    return words, points.select("row", "x", "steps", "tokens", "dur", y=y, step="step")


def _with_shares(series: pl.DataFrame) -> pl.DataFrame:
    """Return the series with the share of each row in all that was measured in its step."""
    total = pl.col("dur").sum().over("step")
    share = pl.when(total > 0).then(pl.col("dur") / total)
    return series.select(pl.exclude("step"), share=share, step="step")


def _per_1k() -> list[pl.Expr]:
    """Return the slope of a line and its error for a thousand more of what x is."""
    slopes = {"slope_ns_per_1k": "slope", "slope_se_ns_per_1k": "slope_se"}
    return [(pl.col(c).cast(pl.Float64) * 1000).alias(name) for name, c in slopes.items()]


def _numbered(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the distinct words of a column in their order, null last, and the number of each entry's."""
    words = distinct(column) if column.dtype == pl.Categorical else column.unique().drop_nulls()
    words = words.sort()
    numbers = rows_of(words.to_physical(), column.to_physical(), keep="last").fill_null(words.len())
    return words.extend(words.clear(1)), numbers


def _whole(series: pl.DataFrame) -> pl.DataFrame:
    """Return all that was measured, step by step, judged by its own line."""
    sums = (
        series.group_by("step").agg(pl.col("x", "steps", "tokens").first(), pl.col("dur").sum()).sort("step")
    )
    points = sums.with_columns(row=pl.lit("total"), y=pl.col("dur") / pl.col("tokens"))
    return points.drop("row").hstack(laws.fit(points).points.select("expected", "outlier"))


def _table(series: pl.DataFrame, lines: pl.DataFrame, judged: pl.DataFrame, axis: str) -> pl.DataFrame:
    """Return one row a group, largest total first."""
    off = judged.filter("outlier").group_by("row").agg(pl.col("step").sort())
    off = off.select("row", outliers=pl.col("step").map_elements(stretches, return_dtype=pl.String))
    ends = series.group_by("row").agg(_ends()).join(_trends(series), on="row", nulls_equal=True)
    table = ends.join(lines, on="row", nulls_equal=True)
    return (
        table.join(off, on="row", how="left", nulls_equal=True)
        .with_columns(*_per_1k(), axis=pl.lit(axis))
        .sort("total_ns", "row", descending=[True, False], nulls_last=True)
        .select(
            "row",
            "trend",
            "steps",
            "tokens",
            "total_ns",
            "first_ns",
            "last_ns",
            "law",
            "axis",
            "slope_ns_per_1k",
            "slope_se_ns_per_1k",
            "r2",
            "share_first",
            "share_last",
            "half_step",
            "outliers",
        )
    )


def _trends(series: pl.DataFrame) -> pl.DataFrame:
    """Return row → its course, a value a step; where steps were folded, a value for as many steps each."""
    if not (series["steps"] > 1).any():
        return series.group_by("row").agg(pl.col("y").alias("trend"))
    step_sizes = series.select("step", "steps").unique().sort("step")
    placed = series.join(
        step_sizes.select("step", cell=steps.cells(step_sizes, TREND_CELLS)),
        on="step",
        maintain_order="left",
    )
    mean = pl.col("dur").sum() / pl.col("tokens").sum()
    return (
        placed.group_by("row", "cell")
        .agg(y=mean)
        .sort("cell")
        .group_by("row")
        .agg(pl.col("y").alias("trend"))
    )


def _ends() -> list[pl.Expr]:
    share, y = pl.col("share"), pl.col("y")
    crossed = (share >= HALF) & (share.first() < HALF)
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


def _slow(judged: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Return, for each step whose total leaves its line, every row against what its own line expects."""
    off = whole.filter("outlier")["step"]
    ratio = pl.when(pl.col("expected") > 0).then(pl.col("y") / pl.col("expected"))
    return judged.filter(pl.col("step").is_in(off.implode())).select(
        "step", "row", "y", "expected", ratio=ratio
    )


def stretches(numbers: pl.Series) -> str:
    """Write numbers as ranges: 27, 28, 39 → '27–28, 39'."""
    ranges: list[list[int]] = []
    for n in numbers:
        if ranges and n == ranges[-1][1] + 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return ", ".join(f"{a}–{b}" if a < b else str(a) for a, b in ranges)
