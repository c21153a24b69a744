"""Fit a line to a series, find the points that leave it, and name the law of its growth.

The line is the least-squares line over all points but the outliers, which are those further than `FAR` robust
deviations from a resistant line (through the medians of the outer thirds): a spike of a few steps does not
bend it. Law is one of

- `step`: two levels explain the points far better than the line, and differ by `FLAT` or more;
- `linear`: from first to last the line changes by `FLAT` of its level or more, with R² of `STRAIGHT` or more;
- `flat`: it changes by less than that, and the points spread around it by less than `FLAT` of the level;
- `noisy`: anything else. Fewer than `FEWEST` points have no law.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

FAR: Final = 5.0
NEAR: Final = 0.05  # an outlier is off its line by this part of it at least
FLAT: Final = 0.10
STRAIGHT: Final = 0.80
FEWEST: Final = 4

_DEVIATION: Final = 1.4826  # of a normal distribution, in median absolute deviations


@dataclass(frozen=True, eq=False)
class Fit:
    """What was made of points: the line of each row, and the points beside it."""

    lines: pl.DataFrame  # row, slope, intercept, slope_se, r2, law
    points: pl.DataFrame  # row, x, y, outlier, expected: what the line of the row expects


def fit(points: pl.DataFrame) -> Fit:
    """Return the fit of row, x, y, ordered by x in each row; the points stay in their order."""
    marked = _with_outliers(points)
    lines = _least_squares(marked.filter(~pl.col("outlier")))
    lines = lines.join(_two_levels(points), on="row", nulls_equal=True).with_columns(_law())
    lines = lines.select("row", "slope", "intercept", "slope_se", "r2", "law")
    judged = marked.join(lines, on="row", how="left", nulls_equal=True, maintain_order="left")
    expected = pl.col("intercept") + pl.col("slope").fill_null(0) * pl.col("x")
    return Fit(lines, judged.select("row", "x", "y", "outlier", expected=expected))


def _with_outliers(points: pl.DataFrame) -> pl.DataFrame:
    """Mark points far from the resistant line of their row, by its own spread and by its own level."""
    lines = points.group_by("row").agg(_resistant()).with_columns(_resistant_slope())
    residual = pl.col("y") - pl.col("_slope") * (pl.col("x") - pl.col("_middle"))
    near = points.join(lines, on="row", how="left", nulls_equal=True, maintain_order="left")
    near = near.with_columns(_r=residual)
    off = (pl.col("_r") - pl.col("_r").median().over("row")).abs()
    near = near.with_columns(_off=off, _line=pl.col("y") - pl.col("_r") + pl.col("_r").median().over("row"))
    spread = pl.col("_off").median().over("row") * _DEVIATION
    far = (pl.col("_off") > FAR * spread) & (pl.col("_off") > NEAR * pl.col("_line").abs())
    return near.select(*points.columns, outlier=far & (pl.len().over("row") >= FEWEST))


def _resistant() -> list[pl.Expr]:
    third = (pl.len() // 3).clip(lower_bound=1)
    return [
        pl.col("x").median().alias("_middle"),
        *(pl.col(c).head(third).median().alias(f"_{c}_left") for c in ("x", "y")),
        *(pl.col(c).tail(third).median().alias(f"_{c}_right") for c in ("x", "y")),
    ]


def _resistant_slope() -> pl.Expr:
    run = pl.col("_x_right") - pl.col("_x_left")
    return (
        pl.when(run > 0).then((pl.col("_y_right") - pl.col("_y_left")) / run).otherwise(0.0).alias("_slope")
    )


def _least_squares(points: pl.DataFrame) -> pl.DataFrame:
    """Return row → its least-squares line and how far the points lie from it.

    Column by column: what is asked of each group with its own mean inside is worked out group by group.
    """
    x, y = pl.col("x"), pl.col("y")
    width = x.max() - x.min()
    middles = points.group_by("row").agg(_n=pl.len(), _x=x.mean(), _level=y.mean(), _width=width)
    beside = points.join(middles, on="row", how="left", nulls_equal=True, maintain_order="left")
    dx, dy = x - pl.col("_x"), y - pl.col("_level")
    squares = beside.select("row", _xx=dx * dx, _xy=dx * dy, _yy=dy * dy)
    sums = squares.sort("row", nulls_last=True, maintain_order=True).group_by("row").agg(pl.all().sum())
    sxx, sxy, syy = pl.col("_xx"), pl.col("_xy"), pl.col("_yy")
    table = sums.join(middles, on="row", nulls_equal=True)
    table = table.with_columns(slope=pl.when(sxx > 0).then(sxy / sxx))
    bend = pl.col("slope").fill_null(0)
    table = table.with_columns(_error=(syy - bend * sxy).clip(lower_bound=0))
    error, n = pl.col("_error"), pl.col("_n").cast(pl.Int64)
    return table.with_columns(
        intercept=pl.col("_level") - bend * pl.col("_x"),
        slope_se=pl.when((sxx > 0) & (n > 2)).then((error / (n - 2) / sxx).sqrt()),
        r2=pl.when((syy > 0) & (sxx > 0)).then(1 - error / syy),
        _change=(pl.col("_width") * bend).abs(),
        _spread=(error / n).sqrt(),
    )


def _two_levels(points: pl.DataFrame) -> pl.DataFrame:
    """Return row → the variance that two levels leave at the best cut, and how far they are apart."""
    n, i = pl.len().over("row"), pl.int_range(1, pl.len() + 1).over("row")
    y = pl.col("y") - pl.col("y").mean().over("row")  # around zero, so that squares keep their digits
    parts = points.select("row", _n=n, _i=i, _y=y, _m=pl.col("y").mean().over("row")).with_columns(
        _left=pl.col("_y").cum_sum().over("row") / pl.col("_i"),
        _all=(pl.col("_y") ** 2).sum().over("row"),
    )
    right = -pl.col("_left") * pl.col("_i") / (pl.col("_n") - pl.col("_i"))
    explained = pl.col("_i") * pl.col("_left") ** 2 + (pl.col("_n") - pl.col("_i")) * right**2
    shortest = pl.max_horizontal(pl.lit(3), pl.col("_n") // 10)
    inside = pl.col("_i").is_between(shortest, pl.col("_n") - shortest)
    best = pl.col("_explained").arg_max()
    return (
        parts.with_columns(_explained=pl.when(inside).then(explained), _jump=right - pl.col("_left"))
        .group_by("row")
        .agg(
            _left_over=1 - pl.col("_explained").max() / pl.col("_all").first(),
            _jump=(pl.col("_jump").get(best) / pl.col("_m").first()).abs(),
        )
    )


def _law() -> pl.Expr:
    level = pl.col("_level").abs()
    changed = pl.col("_change") >= FLAT * level
    steady = pl.col("_spread") < FLAT * level
    two = (pl.col("_left_over") < 0.1) & (pl.col("_left_over") < 0.25 * (1 - pl.col("r2").fill_null(0)))
    return (
        pl.when(pl.col("_n") < FEWEST)
        .then(None)
        .when(two & (pl.col("_jump") >= FLAT))
        .then(pl.lit("step"))
        .when(changed & (pl.col("r2") >= STRAIGHT))
        .then(pl.lit("linear"))
        .when(~changed & steady)
        .then(pl.lit("flat"))
        .otherwise(pl.lit("noisy"))
        .alias("law")
    )
