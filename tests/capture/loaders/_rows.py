"""What tests ask of a run that a loader made."""

from pathlib import Path
from typing import Any

import polars as pl

from capture.load_runs import load
from capture.run import Run


def opened(path: Path, raw: bytes) -> Run:
    """Return the one run of these bytes, written to a path."""
    path.write_bytes(raw)
    (run,) = load(path, cache=False)
    return run


def rows(run: Run, *columns: str, **where: Any) -> list[tuple[Any, ...]]:
    """Return some columns of the rows that have these values, in the order of time."""
    events = run.events
    for column, value in where.items():
        events = events.filter(events[column].cast(str if isinstance(value, str) else int) == value)
    return events.sort("t").select(columns).rows()


def matching(run: Run, **equal: str) -> pl.DataFrame:
    """Return the rows that have these values."""
    return run.events.filter(pl.col(c) == v for c, v in equal.items())


def notices(run: Run) -> dict[str, int]:
    """Return notice → how often."""
    return {n.id: n.count for n in run.log.notices}
