"""One row of a diff, entered: the same work in both runs, launch by launch and step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from capture.run import Run
from tracetui.analysis import detail
from tracetui.look import Look


@dataclass(frozen=True, eq=False)
class Pair:
    """Both sides of a row."""

    rows: pl.DataFrame  # one a side: launches, total, mean, median, smallest, largest
    bins: pl.DataFrame  # low_ns, high_ns, a, b: how many launches of either side lie between
    series: pl.DataFrame  # side, step, y: ns per token, or per step where tokens are unknown


def pair(runs: Sequence[Run], looks: Sequence[Look]) -> Pair:
    """What is in focus in either run; the looks differ where the names do."""
    sides = [(s, r, replace(k, per="total", filter="")) for s, r, k in zip("ab", runs, looks, strict=True)]
    launches = {s: detail.launches(run, look)["dur_ns"] for s, run, look in sides}
    series = [_series(s, run, look) for s, run, look in sides]
    return Pair(
        pl.DataFrame([_statistics(s, durations) for s, durations in launches.items()], schema=_SCHEMA),
        _bins(launches["a"], launches["b"]),
        pl.concat(series),
    )


_SCHEMA = {
    "side": pl.String, "count": pl.Int64, "total_ns": pl.Int64, "mean_ns": pl.Int64, "p50_ns": pl.Int64,
    "min_ns": pl.Int64, "max_ns": pl.Int64,
}  # fmt: skip


def _statistics(side: str, durations: pl.Series) -> dict[str, object]:
    frame = pl.DataFrame({"v": durations}).select(
        side=pl.lit(side), count=pl.len(), total_ns=pl.col("v").sum(), mean_ns=pl.col("v").mean().round(),
        p50_ns=pl.col("v").median().round(), min_ns=pl.col("v").min(), max_ns=pl.col("v").max(),
    )  # fmt: skip
    return frame.cast({c: t for c, t in _SCHEMA.items() if c != "side"}).row(0, named=True)


def _bins(a: pl.Series, b: pl.Series) -> pl.DataFrame:
    """Both distributions in the same bins; the last bin holds its upper edge too."""
    edges = detail.histogram(pl.concat([a, b])).select("low_ns", "high_ns")
    last = edges.height - 1
    counts = {
        side: [
            int(((values >= low) & ((values < high) | (i == last))).sum())
            for i, (low, high) in enumerate(edges.iter_rows())
        ]
        for side, values in (("a", a), ("b", b))
    }
    return edges.with_columns(pl.Series(s, n, pl.Int64) for s, n in counts.items())


def _series(side: str, run: Run, look: Look) -> pl.DataFrame:
    y = pl.coalesce("per_token_ns", pl.col("total_ns").cast(pl.Float64))
    return detail.by_step(run, look).select(side=pl.lit(side), step="step", y=y)
