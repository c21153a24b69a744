"""Causes of a change other than the code: a moved clock, a shared machine, other bytes."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.frames import selection
from tracetui.compare import params
from tracetui.compare.cycle_statistics import compute_cycle_statistics, read_published_statistics
from tracetui.compare.explained_change import ExplainedChange, explain_change
from tracetui.look import Look

Finding = tuple[str, str, str | None]  # kind, sentence, row

_CLOCK: Final = "freq|clock|mhz"
_PRESSURE: Final = "cpu_pressure"


@dataclass(frozen=True)
class TrafficChange:
    """Bytes and ns of an op in the median decode step of two runs; op None is the whole step."""

    op: str | None
    bytes_a: float
    bytes_b: float
    ns_a: float
    ns_b: float

    @property
    def bytes_ratio(self) -> float:
        """Bytes of b over those of a."""
        return self.bytes_b / self.bytes_a

    @property
    def time_ratio(self) -> float:
        """Time of b over that of a."""
        return self.ns_b / self.ns_a

    @property
    def rates(self) -> str:
        """Rates of both runs as text: `20.0 → 15.0 GB/s`."""
        return f"{self.bytes_a / self.ns_a:.1f} → {self.bytes_b / self.ns_b:.1f} GB/s"

    @property
    def explained_share(self) -> float:
        """Share of the log change of time that the bytes explain at a constant rate."""
        return math.log(self.bytes_ratio) / math.log(self.time_ratio) if self.time_ratio != 1 else 0.0

    @property
    def is_explained(self) -> bool:
        """True if the bytes explain the change of time."""
        return params.MOST <= self.explained_share <= 1 / params.MOST


def compute_traffic_changes(a: Run, b: Run, look: Look) -> list[TrafficChange]:
    """Compute the whole step and every op whose bytes changed, longest first; empty if bytes are unknown."""
    return [t for t in compute_role_traffic(a, b, look) if abs(t.bytes_ratio - 1) >= params.MIN_CHANGE]


def compute_role_traffic(a: Run, b: Run, look: Look) -> list[TrafficChange]:
    """Compute the whole step, then every op whose bytes both runs report."""
    left, right = _sum_by_op(a, look), _sum_by_op(b, look)
    if left is None or right is None:
        return []
    step = [_compute_step_median(side, column) for column in ("bytes", "dur") for side in (left, right)]
    both = _compute_op_medians(left).join(_compute_op_medians(right), on="op", suffix="_b")
    both = both.sort("dur", "op", descending=[True, False])
    rows = [TrafficChange(*row) for row in both.select("op", "bytes", "bytes_b", "dur", "dur_b").iter_rows()]
    return [t for t in (TrafficChange(None, *step), *rows) if min(t.bytes_a, t.bytes_b, t.ns_a, t.ns_b) > 0]


def _sum_by_op(run: Run, look: Look) -> pl.DataFrame | None:
    """Sum bytes and ns of each op in each decode step; None if no row reports its bytes."""
    if not all(run.has(c) for c in ("bytes", "dur", "step", "op", "phase")):
        return None
    has_bytes = pl.col("bytes").is_not_null() & pl.col("step").is_not_null()
    rows = selection.select_timed(run, look).filter((pl.col("phase") == "decode") & has_bytes)
    sums = rows.group_by("step", pl.col("op").cast(pl.String)).agg(pl.col("bytes", "dur").sum()).collect()
    return None if sums.is_empty() else sums


def _compute_op_medians(sums: pl.DataFrame) -> pl.DataFrame:
    return sums.drop_nulls("op").group_by("op").agg(pl.col("bytes", "dur").median())


def _compute_step_median(sums: pl.DataFrame, column: str) -> float:
    totals = sums.group_by("step").agg(pl.col(column).sum())
    return float(totals[column].median() or 0)  # type: ignore[arg-type]


def iter_causes(a: Run, b: Run, look: Look, *, compares_steps: bool = True) -> Iterator[Finding]:
    """Iterate over the causes that counters and bytes support.

    Shares of the step time are attributed only if the steps of the runs can be compared.
    """
    explained = explain_change(a, b, look) if compares_steps else None
    if explained is not None:
        yield from _iter_explained(explained)
    is_named = pl.col("share") >= params.NEGLIGIBLE
    shares = None if explained is None else explained.metrics.filter(is_named)["metric"].to_list()
    yield from _iter_counter_causes(a, b, shares)
    yield from _iter_traffic_causes(a, b, look)


def _iter_explained(change: ExplainedChange) -> Iterator[Finding]:
    """Yield each metric with the share of the step time's change that it explains."""
    lead = f"{change.phase} {change.what}" if change.phase else change.what
    times = f"{units.format_duration(change.before_ns)} → {units.format_duration(change.after_ns)}"
    head = f"{lead} {times} ({100 * (change.after_ns / change.before_ns - 1):+.0f}%)"
    causes = change.metrics.filter(pl.col("share") >= params.NEGLIGIBLE)
    if causes.is_empty():
        moved = ", ".join(_describe_move(row) for row in change.metrics.iter_rows(named=True))
        detail = f", though these moved: {moved}" if moved else f": none of {change.metric_count} moved"
        yield "no cause seen", f"{head}: no sampled metric explains it{detail}", None
        return
    rest = change.unexplained_share
    note = f"; {rest:.0%} of it is not explained" if rest >= params.NEGLIGIBLE else ""
    for row in causes.iter_rows(named=True):
        yield "cause", f"{_describe_move(row)} explains {row['share']:.0%} of {head}{note}", row["metric"]


def _describe_move(row: dict[str, Any]) -> str:
    change = f" ({100 * (row['after'] / row['before'] - 1):+.0f}%)" if row["before"] else ""
    return f"{row['metric']} {_format_levels(row)}{change}"


def _format_levels(row: dict[str, Any]) -> str:
    before, after = (units.format_quantity(float(row[side]), row["unit"]) for side in ("before", "after"))
    return f"{before} → {after}"


def _iter_counter_causes(a: Run, b: Run, explained: Collection[str] | None) -> Iterator[Finding]:
    """Yield moved clocks and pressure, unless the shares of metrics, if there are any, name them already."""
    table = read_published_statistics([a, b])
    if table is None:
        table = compute_cycle_statistics(a, b, f"{_CLOCK}|{_PRESSURE}")
    if table is None or table.is_empty():
        return
    clocks = _find_moved_clocks(table)
    for row in clocks.head(params.MAX_EXAMPLES if explained is None else 0).iter_rows(named=True):
        is_slower = row["change"] < 0
        effect = "explains slower work without a change of code" if is_slower else "speeds the work up"
        lead = f"{row['metric']} on {row['device']} {_format_levels(row)}"
        evidence = f"{100 * row['change']:+.0f}%, evident in {row['evident']} of {row['functions']} functions"
        yield "cause", f"{lead} ({evidence}): it {effect}", row["metric"]
    if "cycles_a" in table.columns:
        yield from _iter_clock_causes(table.filter(pl.col("metric").is_in(clocks["metric"].implode())))
    pressure = table.filter(~pl.col("metric").is_in(explained or [""]))
    yield from _iter_pressure_causes(pressure, has_shares=explained is not None)


def _find_moved_clocks(table: pl.DataFrame) -> pl.DataFrame:
    """Find by metric and device the clocks that moved while functions ran, and in how many evidently."""
    moved = _find_moved_metrics(table.filter(pl.col("metric").str.contains(f"(?i){_CLOCK}")))
    moved = moved.filter((pl.col("before") > 0) & (pl.col("after") > 0))
    moved = moved.with_columns(change=pl.col("after") / pl.col("before") - 1)
    size = pl.col("change").abs()
    return moved.filter(size >= params.MIN_CHANGE).sort(size, "metric", descending=[True, False])


def _find_moved_metrics(table: pl.DataFrame) -> pl.DataFrame:
    """Find by metric and device the levels that differ evidently in at least half of the functions."""
    is_evident = pl.col("p_mu").fill_nan(None) < params.CAUSE_ALPHA
    levels = table.group_by("metric", "device").agg(
        pl.col("unit").first(),
        before=pl.col("level_a").median(),
        after=pl.col("level_b").median(),
        functions=pl.len(),
        evident=is_evident.sum(),
    )
    return levels.filter(2 * pl.col("evident") >= pl.col("functions"))


def _iter_clock_causes(table: pl.DataFrame) -> Iterator[Finding]:
    """Yield functions whose time evidently changed, and the share that the clock explains."""
    rows = table.filter(pl.col("cycles_a") > 0).with_columns(
        time=pl.col("time_b_ns") / pl.col("time_a_ns") - 1, cycles=pl.col("cycles_b") / pl.col("cycles_a") - 1
    )
    is_evident = pl.col("p_time") < params.CAUSE_ALPHA
    changed = rows.filter(is_evident & (pl.col("time").abs() >= params.MIN_CHANGE))
    changed = changed.sort("time_b_ns", descending=True).head(params.MAX_NAMED)
    for row in changed.iter_rows(named=True):
        share = 1 - row["cycles"] / row["time"]
        is_explained = share >= params.MOST
        explains = "it" if is_explained else f"{max(0.0, share):.0%} of it"
        a, b = units.format_duration(row["time_a_ns"]), units.format_duration(row["time_b_ns"])
        times = f"time {row['time']:+.0%} ({a} → {b} per step), cycles {row['cycles']:+.0%}"
        yield "cause", f"{row['function']}: {times}: the clock explains {explains}", row["function"]


def _iter_pressure_causes(table: pl.DataFrame, *, has_shares: bool) -> Iterator[Finding]:
    """Yield pressure counters that moved: work waited because others used the machine."""
    rows = _find_moved_metrics(table.filter(pl.col("metric").str.contains(f"(?i){_PRESSURE}")))
    for row in rows.sort("metric").iter_rows(named=True):
        if abs(row["after"] - row["before"]) >= params.MIN_PRESSURE_CHANGE_PCT:
            more = "more" if row["after"] > row["before"] else "less"
            effect = "which changes times without a change of code"
            if has_shares:
                effect = "but the steps within the runs do not show what it costs"
            sentence = (
                f"{row['metric']} {row['before']:.0f}% → {row['after']:.0f}%: work waited for resources that "
                f"others used during {more} of the time, {effect}"
            )
            yield "not concluded" if has_shares else "cause", sentence, row["metric"]


def _iter_traffic_causes(a: Run, b: Run, look: Look) -> Iterator[Finding]:
    """Yield ops whose time changed as their bytes did; of the whole step also if it did not."""
    for t in compute_traffic_changes(a, b, look)[: params.MAX_NAMED]:
        if not t.is_explained and t.op:
            continue
        sizes = f"{units.format_size(t.bytes_a)} → {units.format_size(t.bytes_b)} ({t.bytes_ratio:.2f}×)"
        times = f"{units.format_duration(t.ns_a)} → {units.format_duration(t.ns_b)} ({t.time_ratio:.2f}×)"
        sentence = f"{t.op or 'a decode step'} moves {sizes} and takes {times}: {_describe_traffic(t)}"
        yield "cause" if t.is_explained else "bytes", f"{sentence}, at {t.rates}", t.op


def _describe_traffic(t: TrafficChange) -> str:
    if t.is_explained:
        return "the bytes explain the change"
    if t.explained_share <= 0:
        return "the bytes do not explain the change"
    return f"the bytes alone would make it {t.bytes_ratio:.2f}×"
