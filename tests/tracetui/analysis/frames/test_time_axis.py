"""Sums of stretches, against sums of Python's."""

from itertools import accumulate

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tracetui.analysis.frames import time_axis


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=4), max_size=5))
def test_a_stretch_is_summed_without_its_neighbours(rows: list[list[int | None]]) -> None:
    values = pl.Series([v for row in rows for v in row], dtype=pl.Int64)
    begins = [0, *accumulate(map(len, rows))][: len(rows)]
    actual = time_axis.sum_segments(values, pl.Series(begins, dtype=pl.UInt32))
    assert actual.to_list() == [sum(v or 0 for v in row) for row in rows]
