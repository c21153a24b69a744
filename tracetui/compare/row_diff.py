"""Compare one row of a diff in both runs: its launches, its time per step, the counters meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.run import Run
from tracetui.analysis import detail
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.selection import find_start_ns
from tracetui.compare import params
from tracetui.look import Look

_SCHEMA: Final = {
    "side": pl.String,
    "count": pl.Int64,
    "total_ns": pl.Int64,
    "mean_ns": pl.Int64,
    "p50_ns": pl.Int64,
    "min_ns": pl.Int64,
    "max_ns": pl.Int64,
}
_COUNTERS_SCHEMA: Final = {"counter": pl.String, "unit": pl.String, "value": pl.Float64}


@dataclass(frozen=True, eq=False)
class RowDiff:
    """Both sides of a row."""

    rows: pl.DataFrame  # one per side: count, total, mean, median, smallest, largest
    bins: pl.DataFrame  # low_ns, high_ns, a, b: histogram of the launches of each side
    series: pl.DataFrame  # side, step, y: ns per token, or per step if tokens are unknown
    launches: pl.DataFrame  # the longest of each side, with their labels
    counters: pl.DataFrame  # counter, unit, a, b, change_pct: the mean while the row ran


def compare_row(
    runs: Sequence[Run], names: Sequence[Sequence[str]], group: str, look: Look, rank: int | None = None
) -> RowDiff:
    """Compare the kernels of these names per run, of one rank if it is given."""
    look = replace(look, per="total", filter="", focus=())
    sides = [
        (s, select_kernels(run, group, n, look.phase, rank))
        for s, run, n in zip("ab", runs, names, strict=True)
    ]
    launches = {s: detail.select_launches(run, look) for s, run in sides}
    durations = {s: table["dur_ns"] for s, table in launches.items()}
    return RowDiff(
        pl.DataFrame([_summarise_durations(s, d) for s, d in durations.items()], schema=_SCHEMA),
        _count_bins(durations["a"], durations["b"]),
        pl.concat([_compute_step_series(s, run, look) for s, run in sides]),
        pl.concat([_select_longest(s, table) for s, table in launches.items()], how="diagonal_relaxed"),
        compare_counters(dict(sides), look),
    )


def select_kernels(
    run: Run, group: str, names: Sequence[str], phase: str | None, rank: int | None = None
) -> Run:
    """Select the kernels of these names, and of one rank if given; keep steps and counters."""
    label = pl.col(group).cast(pl.String).fill_null("–") if run.has(group) else pl.lit("–")
    is_selected = label.is_in(list(names))
    if phase is not None and run.has("phase"):
        is_selected &= pl.col("phase") == phase
    if rank is not None:
        tracks = [track for track, number in selection.find_rank_tracks(run).items() if number == rank]
        is_selected &= pl.col("track").cast(pl.String).is_in(tracks)
    events = run.events.filter((pl.col("kind") != "kernel") | is_selected.fill_null(False))
    return Run(run.name, run.meta, events, run.log)


def _summarise_durations(side: str, durations: pl.Series) -> dict[str, object]:
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


def _count_bins(a: pl.Series, b: pl.Series) -> pl.DataFrame:
    """Count both distributions in the same bins; the last bin includes its upper edge."""
    edges = _find_bin_edges(pl.concat([a, b]))
    last = edges.height - 1
    counts = {
        side: [
            int(((values >= low) & ((values < high) | (i == last))).sum())
            for i, (low, high) in enumerate(edges.iter_rows())
        ]
        for side, values in (("a", a), ("b", b))
    }
    return edges.with_columns(pl.Series(s, n, pl.Int64) for s, n in counts.items())


def _find_bin_edges(durations: pl.Series) -> pl.DataFrame:
    """Find low_ns and high_ns of each bin; a few launches far out share the last bin."""
    tail = durations.quantile(params.TAIL_QUANTILE, "higher")
    near = durations if tail is None else durations.filter(durations <= tail)
    edges = detail.compute_histogram(near).select("low_ns", "high_ns")
    longest = durations.max()
    if tail is None or longest <= params.TAIL_RATIO * tail:  # type: ignore[operator]
        return detail.compute_histogram(durations).select("low_ns", "high_ns")
    far = pl.DataFrame({"low_ns": [edges["high_ns"][-1]], "high_ns": [longest]}, schema=edges.schema)
    return pl.concat([edges, far])


def _compute_step_series(side: str, run: Run, look: Look) -> pl.DataFrame:
    y = pl.coalesce("per_token_ns", pl.col("total_ns").cast(pl.Float64))
    return detail.sum_by_step(run, look).select(side=pl.lit(side), step="step", y=y)


def _select_longest(side: str, launches: pl.DataFrame) -> pl.DataFrame:
    columns = [c for c in ("dur_ns", "step", "layer", "name") if c in launches.columns]
    longest = launches.sort("dur_ns", descending=True, maintain_order=True).head(params.MAX_LAUNCHES_SHOWN)
    return longest.select(pl.lit(side).alias("side"), *columns)


def compare_counters(sides: dict[str, Run], look: Look) -> pl.DataFrame:
    """Compare the counters that both runs sampled: each one's mean while the row ran."""
    means = {side: _average_while_running(run, look) for side, run in sides.items()}
    both = means["a"].join(means["b"], on=("counter", "unit"), suffix="_b", nulls_equal=True)
    change = pl.when(pl.col("value") != 0).then(100 * (pl.col("value_b") / pl.col("value") - 1))
    return both.select("counter", "unit", a="value", b="value_b", change_pct=change).sort(
        pl.col("change_pct").abs().fill_null(0), "counter", descending=[True, False]
    )


def _average_while_running(run: Run, look: Look) -> pl.DataFrame:
    """Average each counter at the middle of the launches, weighted by their durations."""
    if not all(run.has(c) for c in ("t", "dur", "value")):
        return pl.DataFrame(schema=_COUNTERS_SCHEMA)
    work = detail.select_launches(run, look).drop_nulls("at_ns")
    samples = run.events.filter(pl.col("kind") == "counter").drop_nulls(["t", "value"])
    if work.is_empty() or samples.is_empty():
        return pl.DataFrame(schema=_COUNTERS_SCHEMA)
    middle = _to_floats(work["at_ns"] + work["dur_ns"] / 2 + find_start_ns(run))
    weights = _to_floats(work["dur_ns"].clip(1))
    unit = pl.col("unit").cast(pl.String) if run.has("unit") else pl.lit(None, pl.String)
    rows = samples.select("t", "value", counter=pl.col("name").cast(pl.String), unit=unit).sort("t")
    means = []
    for key, group in rows.group_by("counter", "unit", maintain_order=True):
        values = np.interp(middle, _to_floats(group["t"]), _to_floats(group["value"]))
        means.append((*key, float(np.average(values, weights=weights))))
    return pl.DataFrame(means, schema=_COUNTERS_SCHEMA, orient="row")


def _to_floats(values: pl.Series) -> NDArray[np.float64]:
    return values.cast(pl.Float64).to_numpy()
