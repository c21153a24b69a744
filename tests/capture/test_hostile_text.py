"""Hostile tables and texts: each does what its entry states, quickly and in little memory."""

import time
from pathlib import Path

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.load_runs import load
from tests.hostile import TABLES, Hostile


@pytest.mark.parametrize("case", TABLES, ids=lambda c: c.file)
def test_each_does_what_is_expected(case: Hostile, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    start = time.process_time()
    if case.expect == "refuse":
        with pytest.raises(UnreadableError) as refused:
            load(path, cache=False)
        assert "\n" not in str(refused.value)
    else:
        (run,) = load(path, cache=False)
        assert run.log.lost_data == (case.expect == "partial")
        total = run.events["dur"].sum() if run.has("dur") else 0
        assert case.total_us is not None and total == case.total_us * 1000
        names = run.events["name"].cast(pl.String).to_list()
        assert all(text.isprintable() for text in names)
    assert time.process_time() - start < 2
