"""A run that stands for many: its steps, and rows that are sums of theirs, in the columns of any run."""

from typing import Final

import polars as pl

from capture.importlog import ImportLog
from capture.run import DTYPES, Run, tidy
from tracetui.analysis import steps
from tracetui.analysis.partial.algebra import Partial, Shape

_KNOWN: Final = ("tokens", "context", "batch", "wall_ns", "steps")  # of several ranks the largest
STEPS: Final = {
    "steps": Shape(("step",), {"phase": "same", **dict.fromkeys((*_KNOWN, "asked"), "last")}),
}
_EVENT: Final = {"wall_ns": "dur", "steps": "count"}  # column of the steps → that of an event


def plain(run: Run, column: str) -> pl.Expr:
    """Return a column as it may be merged: text as text, numbers as whole ones of 64 bits."""
    known = DTYPES.get(column, pl.String()) if run.has(column) else pl.String()
    return pl.col(column).cast(pl.Int64 if known.is_integer() else pl.String)


def steps_of(run: Run, marks: pl.DataFrame | None = None) -> dict[str, pl.DataFrame]:
    """Return what a run states of its steps; none where it has no steps."""
    marks = steps.marks(run) if marks is None else marks
    kept = ("step", "phase", *_KNOWN, *(c for c in ("asked",) if c in marks.columns))
    numbers = [c for c in kept if c != "phase"]
    return {"steps": marks.select(kept).with_columns(pl.col(numbers).cast(pl.Int64))} if marks.height else {}


def bare(whole: Partial) -> Run:
    """Return a run without events, with what all files agree on."""
    return Run("files", whole.meta, pl.DataFrame(), ImportLog())


def run_of(whole: Partial, rows: pl.DataFrame) -> Run:
    """Return a run of these rows and of the steps of all files, with what all files agree on."""
    frames = [rows]
    if "steps" in whole.frames:
        marks = whole.frames["steps"].rename(_EVENT).drop("asked", strict=False)
        frames.append(marks.with_columns(kind=pl.lit("step")))
    events = pl.concat(frames, how="diagonal_relaxed")
    known = [pl.col(c).cast(DTYPES[c]) for c in events.columns]
    return Run("files", whole.meta, tidy(events.select(known)), ImportLog())
