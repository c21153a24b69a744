"""What to look at next in a run: the views with something to show, the most telling first, and what it is."""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import device_time, ledger, select, steps, verdict
from tracetui.analysis.kernels import total_tables
from tracetui.look import Look
from tracetui.shown_names import shown_name

MOST: Final = 3  # that are told
IDLE: Final = 0.1  # of the time of a device: worth a look at when
GROWS: Final = 0.25  # of its time at the beginning: an op that grows
HEAVY: Final = 0.05  # of the time at the end: less is not worth a look
FEWEST: Final = 8  # steps in which growth is seen


class Next(NamedTuple):
    """A view, and what it has to show."""

    view: str
    text: str


def next_looks(run: Run) -> list[Next]:
    """Return what to look at next, the most telling first: at most so many as are worth telling."""
    return list(islice(_all(run), MOST))


def _all(run: Run) -> Iterator[Next]:
    told = {v.name: v.text for v in verdict.verdicts(run)}
    if "lever" in told:
        yield Next("fix", told["lever"])
        yield from _odd_layer(run)
    if len(set(select.rank_tracks(run).values())) > 1 and run.has("step"):
        yield Next("ranks", "which rank the others wait for")
    yield from _growing(run)
    if run.log.dropped:
        yield Next("import", f"{run.log.dropped:,} of {run.log.read:,} records could not be read")
    yield from _idle(run)
    yield from _largest(run)


def _odd_layer(run: Run) -> Iterator[Next]:
    """Yield the layer that loses much more than the others in some op."""
    book = ledger.ledger(run, Look())
    odd = book.items.filter(pl.col("odd").is_not_null()) if book is not None else None
    if book is None or odd is None or odd.is_empty():
        return
    over = pl.col("odd_ns") - pl.col("usual_ns")
    worst = odd.sort(over, descending=True, maintain_order=True).row(0, named=True)
    most, usual = (units.duration(worst[c] / book.steps) for c in ("odd_ns", "usual_ns"))
    yield Next("layers", f"layer {worst['odd']} loses {most} in {worst['op']}, other layers {usual}")


def _growing(run: Run) -> Iterator[Next]:
    """Yield the op whose time a token has grown the most over the decode steps, where none was folded."""
    marks = steps.marks(run).filter(pl.col("phase") == "decode")
    if marks.height < FEWEST or not run.has("op") or (marks["steps"] > 1).any():
        return
    part = marks.height // 4
    ends = {"first": marks.head(part), "last": marks.tail(part)}
    if any(end["tokens"].null_count() for end in ends.values()):
        return
    taken = [_taken(run, end, name) for name, end in ends.items()]
    first, last = pl.col("first"), pl.col("last")
    table = taken[0].join(taken[1], on="op").with_columns(excess=last - first)
    heavy = last >= HEAVY * last.sum()
    found = table.filter(heavy, last >= (1 + GROWS) * first).sort("excess", "op", descending=[True, False])
    for op, before, after in found.select("op", "first", "last").head(1).iter_rows():
        times = f"{units.duration(before)} a token at first, {units.duration(after)} at last"
        yield Next("growth", f"{op} grows: {times}")


def _taken(run: Run, marks: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return op → its time a token in these steps."""
    tokens = max(1, int(marks["tokens"].sum()))
    rows = select.timed(run, Look()).filter(pl.col("step").is_in(marks["step"].implode()))
    named = rows.filter(pl.col("op").is_not_null()).group_by(pl.col("op").cast(pl.String))
    return named.agg((pl.col("dur").sum() / tokens).alias(name)).collect()


def _idle(run: Run) -> Iterator[Next]:
    """Yield how long the busiest device idled, where that is much."""
    usages = device_time.usages(run)
    if usages and run.has("t"):
        use = max(usages, key=lambda each: each.busy_ns)
        share = use.idle_ns / use.span_ns
        if share >= IDLE:
            yield Next("timeline", f"when {use.device} idles: {units.share(share)} of the time")


def _largest(run: Run) -> Iterator[Next]:
    """Yield the kernel that takes most of the time."""
    if not (run.has("dur") and run.has("name")):
        return
    (table,) = total_tables(run, Look(), ["name"])
    for name, share in table.select("name", "share").head(1).iter_rows():
        if name is not None and share is not None:
            yield Next("kernels", f"{shown_name(str(name))} takes {units.share(share)} of the time")
