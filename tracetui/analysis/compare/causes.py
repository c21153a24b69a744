"""Causes of a difference that are no change of code: a clock that moved, a machine that was shared."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis.compare.cycles import cycle_statistics, published
from tracetui.analysis.compare.explained import Explained, explained
from tracetui.analysis.compare.traffic import Traffic, traffic
from tracetui.look import Look

_CLOCK: Final = "freq|clock|mhz"
_PRESSURE: Final = "cpu_pressure"
CLOCK_MOVED: Final = 0.05  # a clock that moved by less explains nothing
ROLES: Final = 4  # of which the bytes are told, the whole step among them
EXPLAINED: Final = 0.8  # of a change, so that its cause is said to explain it
LEAST_SHARE: Final = 0.01  # of a change, from which a metric is named as its cause
PRESSED: Final = 15.0  # points of pressure that are worth a word

Finding = tuple[str, str, str | None]  # kind, sentence, row


def clocks(table: pl.DataFrame) -> pl.DataFrame:
    """Return metric, device: how far each clock moved while functions ran, and in how many evidently."""
    moved = _moved(table.filter(pl.col("metric").str.contains(f"(?i){_CLOCK}")))
    change = pl.col("after") / pl.col("before") - 1
    return (
        moved.filter((pl.col("before") > 0) & (pl.col("after") > 0))
        .with_columns(change=change)
        .filter(pl.col("change").abs() >= CLOCK_MOVED)
        .sort(pl.col("change").abs(), "metric", descending=[True, False])
    )


def _moved(table: pl.DataFrame) -> pl.DataFrame:
    """Return metric, device: the level on both sides, where it evidently differs in half of the functions."""
    evident = pl.col("p_mu").fill_nan(None) < 0.05
    return (
        table.group_by("metric", "device")
        .agg(
            pl.col("unit").first(),
            before=pl.col("level_a").median(),
            after=pl.col("level_b").median(),
            functions=pl.len(),
            evident=evident.sum(),
        )
        .filter(2 * pl.col("evident") >= pl.col("functions"))
    )


def causes(a: Run, b: Run, look: Look, *, weighed: bool = True) -> Iterator[Finding]:
    """Yield each cause that the counters and the bytes support, `weighed` where the steps compare."""
    found = explained(a, b, look) if weighed else None
    if found is not None:
        yield from _weighed(found)
    yield from _counted(a, b, found)
    yield from _traffic(a, b, look)


def _weighed(found: Explained) -> Iterator[Finding]:
    """Yield what explains the change of a step's time, each with its share, and what is left."""
    lead = f"{found.phase} {found.what}" if found.phase else found.what
    times = f"{units.duration(found.before_ns)} → {units.duration(found.after_ns)}"
    change = f"{lead} {times} ({100 * (found.after_ns / found.before_ns - 1):+.0f}%)"
    told = found.metrics.filter(pl.col("share") >= LEAST_SHARE)
    rest = f"; {found.rest:.0%} of it is not explained" if found.rest >= LEAST_SHARE else ""
    if told.is_empty():
        moved = [_moved_words(row) for row in found.metrics.iter_rows(named=True)]
        also = f", though these moved: {', '.join(moved)}" if moved else f": none of {found.seen} moved"
        yield "no cause seen", f"{change}: nothing that was sampled beside explains it{also}", None
        return
    for row in told.iter_rows(named=True):
        sentence = f"{_moved_words(row)} explains {row['share']:.0%} of {change}{rest}"
        yield "cause", sentence, row["metric"]


def _moved_words(row: dict[str, Any]) -> str:
    share = f" ({100 * (row['after'] / row['before'] - 1):+.0f}%)" if row["before"] else ""
    return f"{row['metric']} {_level(row, 'before')} → {_level(row, 'after')}{share}"


def _counted(a: Run, b: Run, weighed: Explained | None) -> Iterator[Finding]:
    table = published([a, b])
    if table is None:
        table = cycle_statistics(a, b, f"{_CLOCK}|{_PRESSURE}")
    if table is None or table.is_empty():
        return
    moved = clocks(table)
    for row in moved.head(2 if weighed is None else 0).iter_rows(named=True):
        word = "explains slower work without a change of code" if row["change"] < 0 else "speeds the work up"
        sentence = (
            f"{row['metric']} on {row['device']} {_level(row, 'before')} → {_level(row, 'after')} "
            f"({100 * row['change']:+.0f}%, evident in {row['evident']} of {row['functions']} functions): "
            f"it {word}"
        )
        yield "cause", sentence, row["metric"]
    if "cycles_a" in table.columns:
        yield from _by_clock(table.filter(pl.col("metric").is_in(moved["metric"].implode())))
    yield from _pressed(table)


def _by_clock(table: pl.DataFrame) -> Iterator[Finding]:
    """Yield functions that evidently took another time, and what part of it the clock explains."""
    time, cycles = (
        pl.col(f"{b}") / pl.col(f"{a}") - 1 for a, b in (("time_a_ns", "time_b_ns"), ("cycles_a", "cycles_b"))
    )
    rows = table.filter(pl.col("cycles_a") > 0).with_columns(time=time, cycles=cycles)
    slow = rows.filter((pl.col("p_time") < 0.05) & (pl.col("time").abs() >= CLOCK_MOVED))
    for row in slow.sort("time_b_ns", descending=True).head(5).iter_rows(named=True):
        part = 1 - row["cycles"] / row["time"]
        word = (
            "the clock explains it" if part >= EXPLAINED else f"the clock explains {max(0.0, part):.0%} of it"
        )
        yield (
            "cause",
            f"{row['function']}: time {row['time']:+.0%} ({units.duration(row['time_a_ns'])} → "
            f"{units.duration(row['time_b_ns'])} a step), cycles {row['cycles']:+.0%}: {word}",
            row["function"],
        )


def _pressed(table: pl.DataFrame) -> Iterator[Finding]:
    """Yield counters of pressure: work had to wait because others used the machine."""
    rows = _moved(table.filter(pl.col("metric").str.contains(f"(?i){_PRESSURE}")))
    for row in rows.sort("metric").iter_rows(named=True):
        if abs(row["after"] - row["before"]) >= PRESSED:
            more = "more" if row["after"] > row["before"] else "less"
            yield (
                "cause",
                f"{row['metric']} {row['before']:.0f}% → {row['after']:.0f}%: {more} of the time something "
                "waited for what others were using, which makes times differ without a change of code",
                row["metric"],
            )


def _traffic(a: Run, b: Run, look: Look) -> Iterator[Finding]:
    """Yield roles whose time changed as their bytes did; for the whole step also where it did not."""
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
    return units.quantity(float(row[side]), row["unit"])
