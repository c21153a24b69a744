"""Rows of unequal length as one array, one row behind the other, and what is asked of each row.

What is nearly nothing but zeros is kept without them: a row may have as many zeros beside its values as fill
it to its size.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ONE: Final = np.uint64(1)


def blocks(counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows of each length, and the places of their values, rows × length; rows of none never."""
    starts = np.cumsum(counts) - counts
    order = np.argsort(counts, kind="stable")[(counts == 0).sum() :]
    for rows in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1):
        if len(rows):
            yield rows, starts[rows][:, None] + np.arange(counts[rows[0]])


def stable_order(codes: Ints, kinds: int) -> Ints:
    """Return the places of numbers from 0 in their order, those of one number as they stand."""
    few = kinds <= 1 << 16  # numbers of 16 bits are counted, others compared
    return np.argsort(codes.astype(np.uint16) if few else codes, kind="stable")


def in_order(values: NDArray[Any], counts: Ints) -> NDArray[Any]:
    """Return the values, those of each row in their order."""
    out = np.empty_like(values)
    for _, places in blocks(counts):
        out[places] = np.sort(values[places], axis=1)
    return out


def medians(values: Floats, row: Ints, size: Ints) -> Floats:
    """Return the median of each row, of its values that are numbers and of zeros up to its `size`; NaN for a
    size of none. `row` says which row a value is of, in order.
    """
    known = ~np.isnan(values)
    if not known.all():
        values, row = values[known], row[known]
    counts = np.bincount(row, minlength=len(size))
    ordered, starts = in_order(values, counts), np.cumsum(counts) - counts
    below = np.bincount(row[values < 0], minlength=len(size))
    zeros = size - counts
    middle = np.zeros(len(size))
    for rank in ((size - 1) // 2, size // 2):
        place = np.where(rank < below, rank, rank - zeros)
        stands = (size > 0) & ((rank < below) | (place >= below))
        middle[stands] += ordered[(starts + place)[stands]]
    return np.where(size > 0, middle / 2, np.nan)


def means(values: Floats, row: Ints, rows: int) -> Floats:
    """Return the mean of each row, NaN for one without values."""
    counts = np.bincount(row, minlength=rows)
    sums = np.bincount(row, weights=values, minlength=rows)
    return np.asarray(np.divide(sums, counts, out=np.full(rows, np.nan), where=counts > 0))


def above(a: Floats, b: Floats, counts: Ints) -> Floats:
    """Return for each row how many of its pairs have the value of b above that of a, equal ones as half.

    No value is below zero.
    """
    out = np.zeros(len(counts))
    for rows, places in blocks(counts):
        x, y = _doubled(a[places]), _doubled(b[places])
        together = _together(x, y | _ONE)  # of equal ones those of b stand behind
        out[rows] = _ranks(together)
        if ((together[:, 1:] ^ together[:, :-1]) == _ONE).any():
            before = _together(x | _ONE, y) ^ _ONE  # and here before
            out[rows] = (out[rows] + _ranks(before)) / 2
    return out


def _doubled(values: Floats) -> NDArray[np.uint64]:
    """Return even numbers in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    return np.asarray(bits << _ONE, dtype=np.uint64)


def _together(x: NDArray[np.uint64], y: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers of both sides, those of each row in their order."""
    both = np.concatenate([x, y], axis=1)
    both.sort(axis=1)
    return both


def _ranks(ordered: NDArray[np.uint64]) -> Floats:
    """Return for each row how many even numbers stand before its odd ones, which are half of them."""
    rows, half = len(ordered), ordered.shape[1] // 2
    odd = np.flatnonzero((ordered & _ONE).astype(bool)).reshape(rows, half)
    return np.asarray(odd.sum(axis=1) - 2 * half * half * np.arange(rows) - half * (half - 1) / 2)
