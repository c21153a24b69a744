"""Rows of unequal length as one array, one row behind the other, and what is asked of each row.

What is nearly nothing but zeros is kept without them: a row may have as many zeros beside its values as fill
it to its size.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        length = places.shape[1]
        both = np.concatenate([_sortable(a[places], 0), _sortable(b[places], 1)], axis=1)
        both.sort(axis=1)
        of_b = np.flatnonzero((both & np.uint64(1)).astype(bool)).reshape(len(rows), length)
        ranks = of_b.sum(axis=1) - 2 * length * length * np.arange(len(rows))
        out[rows] = ranks - length * (length - 1) / 2 - _equal(both) / 2
    return out


def _sortable(values: Floats, side: int) -> NDArray[np.uint64]:
    """Return whole numbers in the order of the values, and of equal ones in that of the sides."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    return np.asarray(bits << np.uint64(1) | np.uint64(side), dtype=np.uint64)


def _equal(ordered: NDArray[np.uint64]) -> Floats:
    """Return for each row how many pairs of both sides are equal."""
    apart = ordered[:, 1:] ^ ordered[:, :-1]
    if not (apart == 1).any():
        return np.zeros(len(ordered))
    near = np.zeros(ordered.shape, dtype=bool)  # those that have an equal beside them
    near[:, 1:] = apart <= 1
    near[:, :-1] |= near[:, 1:].copy()
    row, some = np.nonzero(near)[0], ordered[near]
    value, new = some >> np.uint64(1), np.ones(len(some), dtype=bool)
    new[1:] = (value[1:] != value[:-1]) | (row[1:] != row[:-1])
    stretch = np.cumsum(new) - 1
    of_b = np.bincount(stretch, weights=some & np.uint64(1))
    pairs = of_b * (np.bincount(stretch) - of_b)
    return np.asarray(np.bincount(row[new], weights=pairs, minlength=len(ordered)), dtype=np.float64)
