"""What the tests of captured graphs share: the maker's files as a test changes them, and kernels as rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.capture.graphs import _graphs
from tests.capture.graphs._graphs import TRACE, Made


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., Run]:
    """Writes the maker's files as they were changed, and opens the trace."""

    def opened(change: Callable[[Made], object] = lambda made: None, **options: Any) -> Run:
        made = _graphs.make()
        change(made)
        for name, events in made.files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(_graphs.document(events))
        (run,) = load(tmp_path / TRACE, cache=False, **options)
        return run

    return opened


def kernels(run: Run) -> pl.DataFrame:
    columns = {"shape": pl.String, "path": pl.String, "layer": pl.Int32, "flops": pl.Float64}
    rows = run.events.filter(kind="kernel").sort("t")
    missing = [pl.lit(None, dtype=t).alias(c) for c, t in columns.items() if c not in rows.columns]
    return rows.with_columns(missing).cast({pl.Categorical: pl.String})
