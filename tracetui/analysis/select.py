"""The rows of a run that a look speaks of."""

import re
from collections.abc import Sequence

import polars as pl

from capture.errors import UsageError
from capture.events import LENSES
from capture.run import Run
from tracetui.look import Look


def lenses(run: Run) -> list[str]:
    """The lenses under which a run has timed leaf rows, in the order in which they are preferred."""
    if not run.has("lens"):
        return []
    kernels = run.events.filter(pl.col("kind") == "kernel")
    found = set(kernels["lens"].unique().cast(pl.String).drop_nulls())
    return [lens for lens in LENSES if lens in found]


def lens(run: Run, look: Look) -> str | None:
    """The stopwatch in use: the one asked for, else that of the most kernel rows' time."""
    known = lenses(run)
    if look.lens is not None:
        if look.lens not in LENSES:
            raise UsageError(f"no lens is called {look.lens!r}", todo=f"choose one of: {', '.join(LENSES)}")
        return look.lens
    return known[0] if known else None


def total(run: Run) -> int | None:
    """The time of all kernel rows under the lens in use, in ns."""
    if not run.has("dur"):
        return None
    return int(timed(run, Look()).select(pl.col("dur").sum()).collect().item())


def phases(run: Run) -> list[str]:
    """The phases of a run, in the order in which they begin."""
    if not run.has("phase"):
        return []
    return [str(p) for p in run.events["phase"].unique(maintain_order=True).cast(pl.String).drop_nulls()]


def timed(run: Run, look: Look, kind: str = "kernel") -> pl.LazyFrame:
    """Rows of one kind with a duration, under one lens, in the phase, window and filter asked for."""
    rows = run.events.lazy().filter((pl.col("kind") == kind) & pl.col("dur").is_not_null())
    chosen = lens(run, look)
    if chosen is not None:
        rows = rows.filter(pl.col("lens") == chosen)
    if look.phase is not None and run.has("phase"):
        rows = rows.filter(pl.col("phase") == look.phase)
    if look.window is not None and run.has("step"):
        rows = rows.filter(pl.col("step").is_between(*look.window))
    for column, value in look.focus:
        if run.has(column):
            rows = rows.filter(pl.col(column).eq_missing(pl.lit(value)))
    return matching(rows, run.events, look.filter)


def matching(rows: pl.LazyFrame, events: pl.DataFrame, pattern: str, column: str = "name") -> pl.LazyFrame:
    """Rows whose name fits the regular expression; each distinct name is looked at once."""
    if not pattern:
        return rows
    fits = regex(pattern)
    names = events[column].unique().cast(pl.String).drop_nulls()
    kept = pl.Series([n for n in names if fits.search(n)], dtype=pl.String).cast(pl.Categorical())
    return rows.filter(pl.col(column).is_in(kept.implode()))


def regex(pattern: str) -> re.Pattern[str]:
    """The user's pattern, case-blind unless it has a capital."""
    try:
        return re.compile(pattern, 0 if pattern != pattern.lower() else re.IGNORECASE)
    except re.error as e:
        raise UsageError(f"the filter {pattern!r} is no regular expression", why=str(e)) from None


def have(run: Run, columns: Sequence[str]) -> list[str]:
    return [c for c in columns if run.has(c)]
