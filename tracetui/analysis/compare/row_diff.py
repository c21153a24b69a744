"""Compare one row of a diff in both runs: its launches, its course over steps, the counters meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tracetui.analysis import detail, select
from tracetui.analysis.select import start
from tracetui.look import Look

TAIL: Final = 0.99  # of the launches, beyond which they are far out
FAR: Final = 1.5  # times as long as these
SHOWN: Final = 5  # launches of either side, from the longest


@dataclass(frozen=True, eq=False)
class RowDiff:
    """Both sides of a row."""

    rows: pl.DataFrame  # one a side: launches, total, mean, median, smallest, largest
    bins: pl.DataFrame  # low_ns, high_ns, a, b: how many launches of either side lie between
    series: pl.DataFrame  # side, step, y: ns per token, or per step where tokens are unknown
    launches: pl.DataFrame  # the longest of either side, with what is known of them
    counters: pl.DataFrame  # counter, unit, a, b, change_pct: the mean while the row ran


def row_diff(
    runs: Sequence[Run], names: Sequence[Sequence[str]], group: str, look: Look, rank: int | None = None
) -> RowDiff:
    """Return launches, bins, course and counters of the rows of these names in either run, of one rank if it
    is given.
    """
    look = replace(look, per="total", filter="", focus=())
    sides = [(s, only(run, group, n, look.phase, rank)) for s, run, n in zip("ab", runs, names, strict=True)]
    launches = {s: detail.launches(run, look) for s, run in sides}
    durations = {s: table["dur_ns"] for s, table in launches.items()}
    return RowDiff(
        pl.DataFrame([_statistics(s, d) for s, d in durations.items()], schema=_SCHEMA),
        _bins(durations["a"], durations["b"]),
        pl.concat([_series(s, run, look) for s, run in sides]),
        pl.concat([_longest(s, table) for s, table in launches.items()], how="diagonal_relaxed"),
        counters(dict(sides), look),
    )


def only(run: Run, group: str, names: Sequence[str], phase: str | None, rank: int | None = None) -> Run:
    """Return the run with the kernels of these names alone, of one rank if given; its steps and counters
    stay.
    """
    label = pl.col(group).cast(pl.String).fill_null("–") if run.has(group) else pl.lit("–")
    fits = label.is_in(list(names))
    if phase is not None and run.has("phase"):
        fits &= pl.col("phase") == phase
    if rank is not None:
        tracks = [track for track, number in select.rank_tracks(run).items() if number == rank]
        fits &= pl.col("track").cast(pl.String).is_in(tracks)
    kept = run.events.filter((pl.col("kind") != "kernel") | fits.fill_null(False))
    return Run(run.name, run.meta, kept, run.log)


_SCHEMA: Final = {
    "side": pl.String,
    "count": pl.Int64,
    "total_ns": pl.Int64,
    "mean_ns": pl.Int64,
    "p50_ns": pl.Int64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
}


def _statistics(side: str, durations: pl.Series) -> dict[str, object]:
    frame = pl.DataFrame({"v": durations}).select(
        side=pl.lit(side),
        count=pl.len(),
        total_ns=pl.col("v").sum(),
        mean_ns=pl.col("v").mean().round(),
        p50_ns=pl.col("v").median().round(),
        min_ns=pl.col("v").min(),
        max_ns=pl.col("v").max(),
    )
    return frame.cast({c: t for c, t in _SCHEMA.items() if c != "side"}).row(0, named=True)


def _bins(a: pl.Series, b: pl.Series) -> pl.DataFrame:
    """Return both distributions in the same bins; the last bin holds its upper edge too."""
    edges = _edges(pl.concat([a, b]))
    last = edges.height - 1
    counts = {
        side: [
            int(((values >= low) & ((values < high) | (i == last))).sum())
            for i, (low, high) in enumerate(edges.iter_rows())
        ]
        for side, values in (("a", a), ("b", b))
    }
    return edges.with_columns(pl.Series(s, n, pl.Int64) for s, n in counts.items())


def _edges(durations: pl.Series) -> pl.DataFrame:
    """Return low_ns and high_ns of each bin; a few launches far out share the last bin."""
    most = durations.quantile(TAIL, "higher")
    near = durations if most is None else durations.filter(durations <= most)
    edges = detail.histogram(near).select("low_ns", "high_ns")
    longest = durations.max()
    if most is None or longest <= FAR * most:  # type: ignore[operator]
        return detail.histogram(durations).select("low_ns", "high_ns")
    far = pl.DataFrame({"low_ns": [edges["high_ns"][-1]], "high_ns": [longest]}, schema=edges.schema)
    return pl.concat([edges, far])


def _series(side: str, run: Run, look: Look) -> pl.DataFrame:
    y = pl.coalesce("per_token_ns", pl.col("total_ns").cast(pl.Float64))
    return detail.by_step(run, look).select(side=pl.lit(side), step="step", y=y)


def _longest(side: str, launches: pl.DataFrame) -> pl.DataFrame:
    columns = [c for c in ("dur_ns", "step", "layer", "name") if c in launches.columns]
    longest = launches.sort("dur_ns", descending=True, maintain_order=True).head(SHOWN)
    return longest.select(pl.lit(side).alias("side"), *columns)


def counters(sides: dict[str, Run], look: Look) -> pl.DataFrame:
    """Return what was sampled in both runs: each counter's mean, weighted by the time of the row."""
    means = {side: _while_running(run, look) for side, run in sides.items()}
    both = means["a"].join(means["b"], on=("counter", "unit"), suffix="_b", nulls_equal=True)
    change = pl.when(pl.col("value") != 0).then(100 * (pl.col("value_b") / pl.col("value") - 1))
    return both.select("counter", "unit", a="value", b="value_b", change_pct=change).sort(
        pl.col("change_pct").abs().fill_null(0), "counter", descending=[True, False]
    )


def _while_running(run: Run, look: Look) -> pl.DataFrame:
    """Return counter, unit, value: interpolated at the middle of each launch."""
    schema = {"counter": pl.String, "unit": pl.String, "value": pl.Float64}
    if not all(run.has(c) for c in ("t", "dur", "value")):
        return pl.DataFrame(schema=schema)
    work = detail.launches(run, look).drop_nulls("at_ns")
    samples = run.events.filter(
        (pl.col("kind") == "counter") & pl.col("t").is_not_null() & pl.col("value").is_not_null()
    )
    if work.is_empty() or samples.is_empty():
        return pl.DataFrame(schema=schema)
    middle = _floats(work["at_ns"] + work["dur_ns"] / 2 + start(run))
    weights = _floats(work["dur_ns"].clip(1))
    unit = pl.col("unit").cast(pl.String) if run.has("unit") else pl.lit(None, pl.String)
    rows = samples.select("t", "value", counter=pl.col("name").cast(pl.String), unit=unit).sort("t")
    means = [
        (
            *key,
            float(np.average(np.interp(middle, _floats(part["t"]), _floats(part["value"])), weights=weights)),
        )
        for key, part in rows.group_by("counter", "unit", maintain_order=True)
    ]
    return pl.DataFrame(means, schema=schema, orient="row")


def _floats(values: pl.Series) -> NDArray[np.float64]:
    return values.cast(pl.Float64).to_numpy()
