"""Fit a line to each series, find the points off it, and name the law of its growth.

The line is the least-squares line over all points but the outliers: those further than OUTLIER_DEVIATIONS
robust deviations from a resistant line through the medians of the outer thirds, so that a spike of a few
steps does not bend it. The law is one of

- `step`: two levels explain the points far better than the line, and differ by `FLAT_SHARE` or more;
- `linear`: the line changes by `FLAT_SHARE` of its level or more, by all of the 95 % interval of its slope
  (± `slope_margin`);
- `flat`: it changes by less, and the points spread around it by less than `FLAT_SHARE` of the level;
- `noisy`: anything else. Fewer than `MIN_POINTS` points have no law.
"""

from statistics import NormalDist
from typing import Final

import polars as pl
from msgspec import Struct

OUTLIER_DEVIATIONS: Final = 5.0
OUTLIER_MIN_SHARE: Final = 0.05  # of the line: an outlier is off by at least this
FLAT_SHARE: Final = 0.10
MIN_POINTS: Final = 4

# SD of a normal variable over its median absolute deviation
MAD_TO_SD: Final = 1 / NormalDist().inv_cdf(0.75)
Z_975: Final = 1.959964  # its 97.5 % quantile
LINE_COLUMNS: Final = ("row", "slope", "intercept", "slope_se", "slope_margin", "r2", "law")


class LineFit(Struct, frozen=True, eq=False):
    """The line of each row, and all points with their expectation."""

    lines: pl.DataFrame  # LINE_COLUMNS
    points: pl.DataFrame  # row, x, y, outlier, expected: y of the row's line


def fit_lines(points: pl.DataFrame) -> LineFit:
    """Fit rows with `row`, `x`, `y`, ordered by x in each row; the points keep their order."""
    marked = mark_outliers(points)
    lines = fit_least_squares(marked.filter(~pl.col("outlier")))
    lines = name_laws(lines, points)
    joined = marked.join(lines, on="row", how="left", nulls_equal=True, maintain_order="left")
    expected = pl.col("intercept") + pl.col("slope").fill_null(0) * pl.col("x")
    return LineFit(lines, joined.select("row", "x", "y", "outlier", expected=expected))


def mark_outliers(points: pl.DataFrame) -> pl.DataFrame:
    """Return points with `outlier`: far from their row's resistant line, by its spread and by its level."""
    third = (pl.len() // 3).clip(lower_bound=1)
    run, rise = (pl.col(c).tail(third).median() - pl.col(c).head(third).median() for c in ("x", "y"))
    lines = points.group_by("row").agg(_middle=pl.col("x").median(), _run=run, _rise=rise)
    slope = pl.when(pl.col("_run") > 0).then(pl.col("_rise") / pl.col("_run")).otherwise(0.0)
    joined = points.join(lines, on="row", how="left", nulls_equal=True, maintain_order="left")
    joined = joined.with_columns(_r=pl.col("y") - slope * (pl.col("x") - pl.col("_middle")))
    distance = (pl.col("_r") - pl.col("_r").median().over("row")).abs()
    line = pl.col("y") - pl.col("_r") + pl.col("_r").median().over("row")
    joined = joined.with_columns(_off=distance, _line=line)
    spread = pl.col("_off").median().over("row") * MAD_TO_SD
    is_far = pl.col("_off") > OUTLIER_DEVIATIONS * spread
    is_far &= pl.col("_off") > OUTLIER_MIN_SHARE * pl.col("_line").abs()
    return joined.select(*points.columns, outlier=is_far & (pl.len().over("row") >= MIN_POINTS))


def fit_least_squares(points: pl.DataFrame) -> pl.DataFrame:
    """Return for each row its least-squares line and the spread of the points around it.

    Computed column by column: an aggregation with the group's own mean inside runs group by group, which is
    slow.
    """
    x, y = pl.col("x"), pl.col("y")
    width = x.max() - x.min()
    means = points.group_by("row").agg(n=pl.len(), _x=x.mean(), level=y.mean(), _width=width)
    joined = points.join(means, on="row", how="left", nulls_equal=True, maintain_order="left")
    dx, dy = x - pl.col("_x"), y - pl.col("level")
    squares = joined.select("row", _xx=dx * dx, _xy=dx * dy, _yy=dy * dy)
    sums = squares.sort("row", nulls_last=True, maintain_order=True).group_by("row").agg(pl.all().sum())
    sxx, sxy, syy = pl.col("_xx"), pl.col("_xy"), pl.col("_yy")
    table = sums.join(means, on="row", nulls_equal=True)
    table = table.with_columns(slope=pl.when(sxx > 0).then(sxy / sxx))
    slope = pl.col("slope").fill_null(0)
    table = table.with_columns(_error=(syy - slope * sxy).clip(lower_bound=0))
    error, n = pl.col("_error"), pl.col("n").cast(pl.Int64)
    return table.with_columns(
        intercept=pl.col("level") - slope * pl.col("_x"),
        slope_se=pl.when((sxx > 0) & (n > 2)).then((error / (n - 2) / sxx).sqrt()),
        r2=pl.when((syy > 0) & (sxx > 0)).then(1 - error / syy),
        change=(pl.col("_width") * slope).abs(),
        spread=(error / n).sqrt(),
    )


def _fit_two_levels(points: pl.DataFrame) -> pl.DataFrame:
    """Return for each row the variance that two levels leave at the best cut, and the gap between them."""
    n, i = pl.len().over("row"), pl.int_range(1, pl.len() + 1).over("row")
    y = pl.col("y") - pl.col("y").mean().over("row")  # centred, so that squares keep their digits
    parts = points.select("row", _n=n, _i=i, _y=y, _m=pl.col("y").mean().over("row"))
    left_mean, squares = pl.col("_y").cum_sum().over("row") / pl.col("_i"), (pl.col("_y") ** 2).sum()
    parts = parts.with_columns(_left=left_mean, _all=squares.over("row"))
    right = -pl.col("_left") * pl.col("_i") / (pl.col("_n") - pl.col("_i"))
    explained = pl.col("_i") * pl.col("_left") ** 2 + (pl.col("_n") - pl.col("_i")) * right**2
    shortest = pl.max_horizontal(pl.lit(3), pl.col("_n") // 10)
    inside = pl.col("_i").is_between(shortest, pl.col("_n") - shortest)
    cuts = parts.with_columns(_explained=pl.when(inside).then(explained), _jump=right - pl.col("_left"))
    jump = pl.col("_jump").get(pl.col("_explained").arg_max())
    return cuts.group_by("row").agg(
        _left_over=1 - pl.col("_explained").max() / pl.col("_all").first(),
        _jump=(jump / pl.col("_m").first()).abs(),
    )


def name_laws(lines: pl.DataFrame, points: pl.DataFrame) -> pl.DataFrame:
    """Return the lines with `law`; the points show whether two levels fit better."""
    level = pl.col("level").abs()
    has_changed = pl.col("change") >= FLAT_SHARE * level
    margin = pl.col("slope_margin") * pl.col("_width")
    is_evident = pl.col("change") - margin >= FLAT_SHARE * level
    is_steady = pl.col("spread") < FLAT_SHARE * level
    two = (pl.col("_left_over") < 0.1) & (pl.col("_left_over") < 0.25 * (1 - pl.col("r2").fill_null(0)))
    law = (
        pl.when(pl.col("n") < MIN_POINTS).then(None)
        .when(two & (pl.col("_jump") >= FLAT_SHARE)).then(pl.lit("step"))
        .when(is_evident).then(pl.lit("linear"))
        .when(~has_changed & is_steady).then(pl.lit("flat"))
        .otherwise(pl.lit("noisy"))
    )  # fmt: skip
    lines = lines.join(_fit_two_levels(points), on="row", nulls_equal=True)
    margin = pl.col("slope_se") * _compute_t_quantile(pl.col("n").cast(pl.Float64) - 2)
    return lines.with_columns(slope_margin=margin).with_columns(law=law).select(LINE_COLUMNS)


def _compute_t_quantile(df: pl.Expr) -> pl.Expr:
    """Return the 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5: within 1 % from 4 on)."""
    z = Z_975
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
