"""Rows of unequal length, each against a plain count over its own values."""

from math import isnan
from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracetui.analysis.frames import ragged

Rows = list[list[float]]
ROWS = st.lists(st.lists(st.integers(0, 4).map(float), max_size=6), max_size=7)


def flat(rows: Rows) -> tuple[ragged.Floats, ragged.Ints]:
    """The values of all rows, and which row each is of."""
    row = [i for i, values in enumerate(rows) for _ in values]
    return np.array([v for values in rows for v in values], dtype=float), np.array(row, dtype=np.int64)


@given(
    st.lists(
        st.lists(st.one_of(st.just(float("nan")), st.integers(-9, 9).map(float)), max_size=6), max_size=7
    )
)
def test_a_median_counts_the_zeros_that_are_not_kept(rows: Rows) -> None:
    known = [[v for v in values if not isnan(v)] for values in rows]
    size = np.array([len(values) + i % 4 for i, values in enumerate(known)], dtype=np.int64)
    actual = ragged.compute_medians(*flat(rows), size)
    for i, (values, middle) in enumerate(zip(known, actual, strict=True)):
        whole = values + [0.0] * (i % 4)
        assert np.isnan(middle) if not whole else middle == median(whole)


@given(ROWS)
def test_means_are_of_what_is_there(rows: Rows) -> None:
    actual = ragged.compute_means(*flat(rows), len(rows))
    for values, middle in zip(rows, actual, strict=True):
        assert np.isnan(middle) if not values else middle == pytest.approx(mean(values))


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6), max_size=7))
def test_pairs_above_are_those_that_a_loop_counts(rows: list[list[tuple[int, int]]]) -> None:
    (a, _), (b, _) = (flat([[float(pair[side]) for pair in row] for row in rows]) for side in (0, 1))
    actual = ragged.count_pairs_above(a, b, np.array([len(row) for row in rows], dtype=np.int64))
    for row, count in zip(rows, actual, strict=True):
        assert count == sum((y > x) + (y == x) / 2 for x, _ in row for _, y in row)
