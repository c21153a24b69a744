"""Compare one row of a diff in both runs: its launches, its time per step, the counters meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl

from capture.run import Run
from tracetui.analysis import detail
from tracetui.analysis.frames import selection
from tracetui.analysis.frames.ragged import to_floats
from tracetui.compare import params
from tracetui.look import Look

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
    a, b = (select_kernels(run, group, n, look.phase, rank) for run, n in zip(runs, names, strict=True))
    launches = {side: detail.select_launches(run, look) for side, run in (("a", a), ("b", b))}
    durations = {side: table["dur_ns"] for side, table in launches.items()}
    return RowDiff(
        pl.concat([_summarise_durations(side, each) for side, each in durations.items()]),
        _count_bins(durations["a"], durations["b"]),
        pl.concat([_compute_step_series("a", a, look), _compute_step_series("b", b, look)]),
        pl.concat([_select_longest(s, table) for s, table in launches.items()], how="diagonal_relaxed"),
        compare_counters(a, b, look),
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


def _summarise_durations(side: str, durations: pl.Series) -> pl.DataFrame:
    ns = pl.col("ns")
    table = durations.to_frame("ns").select(
        count=pl.len(), total_ns=ns.sum(), mean_ns=ns.mean().round(), p50_ns=ns.median().round(),
        min_ns=ns.min(), max_ns=ns.max(),
    )  # fmt: skip
    return table.select(pl.lit(side).alias("side"), pl.all().cast(pl.Int64))


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
    tail = durations.quantile(detail.TAIL_QUANTILE, "higher")
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
    longest = launches.sort("dur_ns", descending=True, maintain_order=True).head(params.MAX_NAMED)
    return longest.select(pl.lit(side).alias("side"), *columns)


def compare_counters(a: Run, b: Run, look: Look) -> pl.DataFrame:
    """Compare the counters that both runs sampled: each one's mean while the row ran."""
    left, right = _average_while_running(a, look), _average_while_running(b, look)
    both = left.join(right, on=("counter", "unit"), suffix="_b", nulls_equal=True)
    change = pl.when(pl.col("value") != 0).then(100 * (pl.col("value_b") / pl.col("value") - 1))
    table = both.select("counter", "unit", a="value", b="value_b", change_pct=change)
    return table.sort(pl.col("change_pct").abs().fill_null(0), "counter", descending=[True, False])


def _average_while_running(run: Run, look: Look) -> pl.DataFrame:
    """Average each counter at the middle of the launches, weighted by their durations."""
    if not all(run.has(c) for c in ("t", "dur", "value")):
        return pl.DataFrame(schema=_COUNTERS_SCHEMA)
    work = detail.select_launches(run, look).drop_nulls("at_ns")
    samples = run.events.filter(pl.col("kind") == "counter").drop_nulls(["t", "value"])
    if work.is_empty() or samples.is_empty():
        return pl.DataFrame(schema=_COUNTERS_SCHEMA)
    middle = to_floats(work["at_ns"] + work["dur_ns"] / 2 + selection.find_start_ns(run))
    weights = to_floats(work["dur_ns"].clip(1))
    unit = pl.col("unit").cast(pl.String) if run.has("unit") else pl.lit(None, pl.String)
    rows = samples.select("t", "value", counter=pl.col("name").cast(pl.String), unit=unit).sort("t")
    means = []
    for key, group in rows.group_by("counter", "unit", maintain_order=True):
        values = np.interp(middle, to_floats(group["t"]), to_floats(group["value"]))
        means.append((*key, float(np.average(values, weights=weights))))
    return pl.DataFrame(means, schema=_COUNTERS_SCHEMA, orient="row")
