"""Fit lines to the rows of steps after taking out what the whole step did.

A machine slows all rows of a step; growth changes one. The pace of a step is the median, over the names that
every step has, of the logarithm of their time relative to their own median; it is 0 in the fastest tenth of
the steps. With the pace p(s), row i follows

    y(i,s) = (a(i) + b(i) x(s)) · exp(β(i) p(s) + ε)

A load moves each row in its own way, so β is estimated, with a prior of 1 ± PACE_SD: the model of the guide
`evidence`, over steps instead of runs. The line is fitted to the even times y · exp(−β p). The error of its
slope includes that of β, and is widened where neighbouring steps are alike.
"""

from typing import Final

import polars as pl

from tracetui.analysis.frames.line_fit import fit_least_squares, mark_outliers, name_laws

MIN_ROWS: Final = 5  # names, below which a step has no pace
MIN_STEPS: Final = 8
FAST_SHARE: Final = 0.1  # of the steps: the pace is relative to them
PACE_SD: Final = 1.0  # prior SD of a row's response to the pace around 1, as that of rows between runs
ROUNDS: Final = 2  # of line and response in turn


def compute_pace(points: pl.DataFrame) -> pl.DataFrame:
    """Return `step` and `pace` from the `x` and time `y` per `row` and `step`; no rows if it is unknown.

    Rows that grow or shrink beside the others are left out, unless these are the majority.
    """
    steps = points["step"].n_unique()
    complete = points.filter((pl.len().over("row") == steps) & (pl.col("y").min().over("row") > 0))
    if steps < MIN_STEPS or complete["row"].n_unique() < MIN_ROWS:
        return points.select("step", pace=pl.col("y").cast(pl.Float64)).clear()
    pace = _compute_median_pace(complete)
    lines, _ = fit_even_lines(complete.join(pace, on="step", maintain_order="left"))
    moving = lines.filter(pl.col("law") == "linear")["row"]
    if 0 < 2 * moving.len() < lines.height:
        return _compute_median_pace(complete.filter(~pl.col("row").is_in(moving.implode())))
    return pace


def _compute_median_pace(points: pl.DataFrame) -> pl.DataFrame:
    """Return the median of all rows for each step, relative to the fastest steps."""
    log_time = pl.col("y").log()
    deviations = points.select("step", off=log_time - log_time.median().over("row"))
    medians = deviations.group_by("step").agg(pace=pl.col("off").median())
    return medians.with_columns(pl.col("pace") - pl.col("pace").quantile(FAST_SHARE)).sort("step")


def fit_even_lines(points: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Return the line of each row, and the even time of each point.

    `points` have `row`, `x`, `y` and `pace`, ordered by x in each row; lines have LINE_COLUMNS.
    """
    rows = points.select("row").unique().with_columns(response=1.0)
    even = mark_outliers(_with_even_times(points, rows))
    for _ in range(ROUNDS):
        rows = _fit_responses(even.filter(~pl.col("outlier")))
        even = mark_outliers(_with_even_times(points, rows))
    inliers = even.filter(~pl.col("outlier"))
    lines = fit_least_squares(inliers).join(rows, on="row", nulls_equal=True)
    lines = lines.join(_measure_widening(inliers, lines), on="row", nulls_equal=True)
    of_pace = pl.col("response_sd") * pl.col("pace_per_x") * pl.col("level")
    error = (pl.col("slope_se") ** 2 * pl.col("widening") + of_pace**2).sqrt()
    return name_laws(lines.with_columns(slope_se=error), even), even["y"]


def _with_even_times(points: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the points with the pace taken out of y, as far as their row responds to it."""
    joined = points.join(rows, on="row", how="left", nulls_equal=True, maintain_order="left")
    even = pl.col("y") * (-pl.col("response") * pl.col("pace")).exp()
    return joined.select("row", "x", "pace", "response", y=even)


def _with_residuals(points: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """Return the points with `off`, the logarithm of y over its line, where both are positive."""
    joined = points.join(
        lines.select("row", "slope", "intercept"), on="row", nulls_equal=True, maintain_order="left"
    )
    line = pl.col("intercept") + pl.col("slope").fill_null(0) * pl.col("x")
    return joined.filter((line > 0) & (pl.col("y") > 0)).with_columns(off=(pl.col("y") / line).log())


def _fit_responses(inliers: pl.DataFrame) -> pl.DataFrame:
    """Return for each row its response to the pace, the SD of that, and the pace's change per x.

    Line and response are fitted in turn, so pace and residuals are regressed on each other without what
    both have in common with x.
    """
    lines = fit_least_squares(inliers)
    points = _with_residuals(inliers, lines)
    # the residual of the measured time: of the even time, and what its response took out
    points = points.with_columns(off=pl.col("off") + pl.col("response") * pl.col("pace"))
    names = ("x", "pace", "off")
    means = points.group_by("row").agg(pl.col(names).mean().name.suffix("_mean"), n=pl.len())
    joined = points.join(means, on="row", nulls_equal=True, maintain_order="left")
    x, p, e = (pl.col(name) - pl.col(f"{name}_mean") for name in names)
    products = joined.select("row", "n", xx=x * x, xp=x * p, xe=x * e, pp=p * p, pe=p * e, ee=e * e)
    sums = products.group_by("row").agg(pl.first("n"), pl.exclude("n").sum())
    xx, xp, xe = (pl.col(name) for name in ("xx", "xp", "xe"))
    sums = sums.filter(xx > 0).with_columns(
        pp=pl.col("pp") - xp * xp / xx, pe=pl.col("pe") - xp * xe / xx, ee=pl.col("ee") - xe * xe / xx
    )
    estimate = pl.when(pl.col("pp") > 0).then(pl.col("pe") / pl.col("pp")).otherwise(1.0)
    variance = (pl.col("ee") - estimate * pl.col("pe")).clip(lower_bound=0) / (pl.col("n").cast(pl.Int64) - 3)
    trust = pl.col("pp") / (pl.col("pp") + variance / PACE_SD**2)
    trust = pl.when(pl.col("pp") > 0, pl.col("n") > 3).then(trust).otherwise(0.0)
    rows = sums.select("row", estimate=estimate, trust=trust, pace_per_x=xp / xx)
    responses = rows.select(
        "row", "pace_per_x",
        response=pl.col("trust") * pl.col("estimate") + 1 - pl.col("trust"),
        response_sd=PACE_SD * (1 - pl.col("trust")).sqrt(),
    )  # fmt: skip
    every = inliers.select("row").unique()
    filled = every.join(responses, on="row", how="left", nulls_equal=True)
    return filled.with_columns(
        pl.col("response").fill_null(1), pl.col("response_sd", "pace_per_x").fill_null(0)
    )


def _measure_widening(inliers: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """Return for each row how much larger the variance of its slope is than that of independent steps.

    From the means of blocks of about √n neighbouring steps: if these differ by more than independent steps
    would, the state of the machine lasted.
    """
    points = _with_residuals(inliers, lines)
    size = pl.len().over("row").sqrt().round().cast(pl.UInt32)
    points = points.with_columns(block=pl.int_range(pl.len(), dtype=pl.UInt32).over("row") // size)
    blocks = points.group_by("row", "block").agg(pl.sum("off"), n=pl.len())
    independent = points.group_by("row").agg(square=(pl.col("off") ** 2).mean())
    of_blocks = blocks.group_by("row").agg(
        square_of_blocks=(pl.col("off") ** 2 / pl.col("n")).sum() / (pl.len().cast(pl.Int64) - 2).clip(1)
    )
    ratio = pl.when(pl.col("square") > 0).then(pl.col("square_of_blocks") / pl.col("square"))
    sums = independent.join(of_blocks, on="row", nulls_equal=True).select("row", widening=ratio)
    every = lines.select("row").join(sums, on="row", how="left", nulls_equal=True)
    return every.with_columns(pl.col("widening").fill_null(1).clip(lower_bound=1))
