"""What a comparison comes to, in sentences: each with its numbers and the row it speaks of."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.cycles import cycle_statistics, published
from tracetui.analysis.diff import Diff
from tracetui.analysis.growth import growth
from tracetui.analysis.traffic import Traffic, traffic
from tracetui.look import Look

_CLOCK: Final = "freq|clock|mhz"
CLOCK_MOVED: Final = 0.05  # a clock that moved by less explains nothing
ROLES: Final = 4  # of which the bytes are told, the whole step among them
_SCHEMA: Final = {"kind": pl.String, "finding": pl.String, "row": pl.String}

Finding = tuple[str, str, str | None]


def findings(a: Run, b: Run, found: Diff, look: Look) -> pl.DataFrame:
    """Sentences, the most telling first; what cannot be concluded is said as well."""
    told = [
        *_doubts(found),
        *_total(found),
        *_cause(a, b),
        *_traffic(a, b, look),
        *_changes(found),
        *_appeared(found),
        *_laws(a, b, look),
        *_limits(found),
    ]
    return pl.DataFrame(told, schema=_SCHEMA, orient="row")


def _doubts(found: Diff) -> Iterator[Finding]:
    if not found.comparable.ok:
        reasons = "; ".join(found.comparable.reasons)
        yield "not comparable", f"these runs should not be compared: {reasons}", None


def _total(found: Diff) -> Iterator[Finding]:
    before, after = int(found.rows["total_a_ns"].sum()), int(found.rows["total_b_ns"].sum())
    if not before or not after:
        return
    change = units.signed(f"{100 * (after / before - 1):.1f}%", after - before)
    yield "total", f"kernel time {units.duration(before)} → {units.duration(after)} ({change})", None


def clocks(table: pl.DataFrame) -> pl.DataFrame:
    """metric, device: how far a clock moved while functions ran, and in how many of them evidently."""
    evident = pl.col("p_mu").fill_nan(None) < 0.05
    return (
        table.filter(pl.col("metric").str.contains(f"(?i){_CLOCK}"))
        .filter((pl.col("mu_a") > 0) & (pl.col("mu_b") > 0))
        .group_by("metric", "device")
        .agg(
            before=pl.col("mu_a").median(),
            after=pl.col("mu_b").median(),
            functions=pl.len(),
            evident=evident.sum(),
        )
        .with_columns(change=pl.col("after") / pl.col("before") - 1)
        .filter((pl.col("change").abs() >= CLOCK_MOVED) & (2 * pl.col("evident") >= pl.col("functions")))
        .sort(pl.col("change").abs(), "metric", descending=[True, False])
    )


def _cause(a: Run, b: Run) -> Iterator[Finding]:
    """A clock that moved explains time that no code change needs to explain."""
    table = published([a, b])
    if table is None:
        table = cycle_statistics(a, b)
    if table is None or table.is_empty():
        return
    for row in clocks(table).head(2).iter_rows(named=True):
        word = "explains slower work without a change of code" if row["change"] < 0 else "speeds the work up"
        sentence = (
            f"{row['metric']} on {row['device']} {_level(row, 'before')} → {_level(row, 'after')} "
            f"({100 * row['change']:+.0f}%, evident in {row['evident']} of {row['functions']} functions): "
            f"it {word}"
        )
        yield "cause", sentence, row["metric"]


def _traffic(a: Run, b: Run, look: Look) -> Iterator[Finding]:
    """Times that changed as the bytes did; where they did not, that is said of the step."""
    for t in traffic(a, b, look)[:ROLES]:
        if not t.explains and t.op:
            continue
        what = t.op or "a decode step"
        moved = f"{what} moves {units.size(t.bytes_a)} → {units.size(t.bytes_b)} ({t.bytes_ratio:.2f}×)"
        took = f"takes {units.duration(t.ns_a)} → {units.duration(t.ns_b)} ({t.time_ratio:.2f}×)"
        rates = f"{t.bytes_a / t.ns_a:.1f} → {t.bytes_b / t.ns_b:.1f} GB/s"
        yield "cause" if t.explains else "bytes", f"{moved} and {took}: {_verdict(t)}, at {rates}", t.op


def _verdict(t: Traffic) -> str:
    if t.explains:
        return "the bytes explain the change"
    if t.explained <= 0:
        return "the bytes do not explain the change"
    return f"the bytes alone would make it {t.bytes_ratio:.2f}×"


def _level(row: dict[str, Any], side: str) -> str:
    """Cycle statistics give the CPU's clock as a per cent of its maximum, others as a hundredfold of MHz."""
    value = float(row[side])
    if value <= 100 and row["metric"].startswith("cpu"):
        return f"{value:.1f}% of its maximum"
    return f"{value / 100:,.0f} MHz"


def _changes(found: Diff) -> Iterator[Finding]:
    """The largest changes that the evidence supports."""
    real = found.rows.filter(pl.col("verdict").is_in(["slower", "faster"]))
    real = real.sort(pl.col("delta_ns").abs(), "name", descending=[True, False])
    for row in real.head(5).iter_rows(named=True):
        low, high = (units.duration(row[c]) for c in ("low_ns", "high_ns"))
        change = 100 * row["median_delta_ns"] / row["median_a_ns"] if row["median_a_ns"] else float("inf")
        yield (
            row["verdict"],
            f"{row['name']} is {row['verdict']}: {units.duration(row['median_a_ns'])} → "
            f"{units.duration(row['median_b_ns'])} ({change:+.1f}%, 95% interval {low} to {high}, "
            f"n = {row['n_a']} and {row['n_b']})",
            row["name"],
        )


def _appeared(found: Diff) -> Iterator[Finding]:
    for word, column, side in (("new", "total_b_ns", "b"), ("gone", "total_a_ns", "a")):
        rows = found.rows.filter(pl.col("verdict") == word)
        if rows.height:
            largest = rows.sort(column, "name", descending=[True, False]).row(0, named=True)
            total = units.duration(int(rows[column].sum()))
            yield (
                word,
                f"{rows.height} rows stand in {side} alone, {total} in all; the largest is {largest['name']} "
                f"with {units.duration(largest[column])}",
                largest["name"],
            )


def _laws(a: Run, b: Run, look: Look) -> Iterator[Finding]:
    """Rows whose time grows by another law, or at another slope, than before."""
    if not all(run.has("step") and run.has("op") for run in (a, b)):
        return
    left, right = (growth(run, look, "op").rows for run in (a, b))
    if left.is_empty() or right.is_empty():
        return
    both = left.join(right, on="op", suffix="_b")
    for row in both.filter(pl.col("law") != pl.col("law_b")).sort("op").head(5).iter_rows(named=True):
        yield "growth", f"{row['op']} grew {row['law']} and now grows {row['law_b']}", row["op"]


def _limits(found: Diff) -> Iterator[Finding]:
    undecided = found.rows.filter(pl.col("verdict") == "~")
    if undecided.height:
        share = int(undecided["total_b_ns"].sum()) / max(1, int(found.rows["total_b_ns"].sum()))
        yield (
            "not concluded",
            f"{undecided.height} rows ({100 * share:.0f}% of the time) are undecided: {'; '.join(found.how)}",
            None,
        )
