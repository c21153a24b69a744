"""Numpy arrays for comparisons: rows of unequal length in one flat array, and columns as dense codes.

Mostly-zero rows are stored without their zeros: a row's `size` says how many values it has with them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ONE: Final = np.uint64(1)
_MAX_SPREAD: Final = 8  # range of the numbers per entry; a wider range is sorted, not indexed
_MIN_TABLE_SIZE: Final = 1 << 16


def to_floats(values: pl.Series) -> Floats:
    """Return a column as an array of floats, null as NaN."""
    return values.cast(pl.Float64).to_numpy()


def iter_equal_lengths(counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows of each length, with the indices of their values (rows × length); skip empty rows."""
    starts = np.cumsum(counts) - counts
    nonempty = np.argsort(counts, kind="stable")[(counts == 0).sum() :]
    for rows in np.split(nonempty, np.flatnonzero(np.diff(counts[nonempty])) + 1):
        if len(rows):
            yield rows, starts[rows][:, None] + np.arange(counts[rows[0]])


def compute_sort_order(codes: Ints, kinds: int) -> Ints:
    """Return the stable sort order of codes from 0 to `kinds` - 1."""
    is_small = kinds <= 1 << 16  # numpy sorts 16-bit integers by counting
    return np.argsort(codes.astype(np.uint16) if is_small else codes, kind="stable")


def sort_rows(values: NDArray[Any], counts: Ints) -> NDArray[Any]:
    """Return the values, sorted within each row."""
    ordered = np.empty_like(values)
    for _, indices in iter_equal_lengths(counts):
        ordered[indices] = np.sort(values[indices], axis=1)
    return ordered


def compute_medians(values: Floats, row: Ints, size: Ints) -> Floats:
    """Return the median of each row, its zeros included up to `size`; NaN for an empty row.

    `row` is the row of each value, ascending. NaN values are ignored.
    """
    is_number = ~np.isnan(values)
    if not is_number.all():
        values, row = values[is_number], row[is_number]
    counts = np.bincount(row, minlength=len(size))
    ordered, starts = sort_rows(values, counts), np.cumsum(counts) - counts
    below = np.bincount(row[values < 0], minlength=len(size))
    zeros = size - counts
    twice_median = np.zeros(len(size))
    for rank in ((size - 1) // 2, size // 2):
        index = np.where(rank < below, rank, rank - zeros)
        is_stored = (size > 0) & ((rank < below) | (index >= below))
        twice_median[is_stored] += ordered[(starts + index)[is_stored]]
    return np.where(size > 0, twice_median / 2, np.nan)


def compute_means(values: Floats, row: Ints, rows: int) -> Floats:
    """Return the mean of each row, NaN for an empty one."""
    counts = np.bincount(row, minlength=rows)
    sums = np.bincount(row, weights=values, minlength=rows)
    return np.asarray(np.divide(sums, counts, out=np.full(rows, np.nan), where=counts > 0))


def count_pairs_above(a: Floats, b: Floats, counts: Ints) -> Floats:
    """Return for each row the number of pairs with b above a, ties counted as half; values are ≥ 0."""
    pairs = np.zeros(len(counts))
    for rows, indices in iter_equal_lengths(counts):
        x, y = _convert_to_even(a[indices]), _convert_to_even(b[indices])
        b_after_ties = _merge_sorted(x, y | _ONE)  # of equal values, those of b come last
        pairs[rows] = _count_even_before_odd(b_after_ties)
        if ((b_after_ties[:, 1:] ^ b_after_ties[:, :-1]) == _ONE).any():
            b_before_ties = _merge_sorted(x | _ONE, y) ^ _ONE  # and here first
            pairs[rows] = (pairs[rows] + _count_even_before_odd(b_before_ties)) / 2
    return pairs


def _convert_to_even(values: Floats) -> NDArray[np.uint64]:
    """Return even integers in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)
    return np.asarray(bits << _ONE, dtype=np.uint64)


def _merge_sorted(x: NDArray[np.uint64], y: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the integers of both sides, sorted within each row."""
    both = np.concatenate([x, y], axis=1)
    both.sort(axis=1)
    return both


def _count_even_before_odd(merged: NDArray[np.uint64]) -> Floats:
    """Return for each row the number of even integers before its odd ones, which are half of it."""
    rows, half = len(merged), merged.shape[1] // 2
    odd = np.flatnonzero((merged & _ONE).astype(bool)).reshape(rows, half)
    return np.asarray(odd.sum(axis=1) - 2 * half * half * np.arange(rows) - half * (half - 1) / 2)


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """A column as distinct values and the code of each entry."""

    values: pl.Series  # the last is null
    codes: Ints

    @classmethod
    def from_series(cls, column: pl.Series) -> "EncodedColumn":
        """Encode a column of categories or integers."""
        is_known = column.is_not_null().to_numpy() if column.null_count() else None
        numbers = column.to_physical().drop_nulls().cast(pl.Int64).to_numpy()
        dense, rows = _encode_dense(numbers)
        codes = dense
        if is_known is not None:
            codes = np.full(column.len(), len(rows))
            codes[is_known] = dense
            rows = np.flatnonzero(is_known)[rows]
        words = column.gather(rows)
        return cls(words.extend(words.clear(1)), codes)

    def encode_pairs(self, other: "EncodedColumn") -> tuple[Ints, Ints, Ints]:
        """Return a pair code for each entry of two columns, and both columns' codes of each pair.

        Some pairs may occur in no entry.
        """
        width = len(other.values)
        pairs = self.codes * width + other.codes
        if len(self.values) * width <= len(pairs):  # few pairs are possible: list them all
            return pairs, *np.divmod(np.arange(len(self.values) * width), width)
        codes, rows = _encode_dense(pairs)
        return codes, self.codes[rows], other.codes[rows]

    def map_codes(self, targets: Sequence[int] | Ints, entries: Ints | slice = slice(None)) -> Ints:
        """Return for each entry, or for some, the target assigned to its code."""
        return np.asarray(targets, dtype=np.int64)[self.codes[entries]]


def _encode_dense(numbers: Ints) -> tuple[Ints, Ints]:
    """Return a dense code from 0 for each number, and one row in which each code occurs."""
    if not len(numbers):
        return numbers, numbers
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest == highest:
        return np.zeros(len(numbers), dtype=np.int64), np.zeros(1, dtype=np.int64)
    if (numbers[1:] >= numbers[:-1]).all():
        rises, codes = numbers[1:] != numbers[:-1], np.zeros(len(numbers), dtype=np.int64)
        np.cumsum(rises, out=codes[1:])
        return codes, np.append(0, np.flatnonzero(rises) + 1)
    if highest - lowest > _MAX_SPREAD * len(numbers) + _MIN_TABLE_SIZE:
        _, rows, codes = np.unique(numbers, return_index=True, return_inverse=True)
        return codes, rows
    offsets = numbers - lowest if lowest else numbers
    row_of_offset = np.full(highest - lowest + 1, -1)
    row_of_offset[offsets] = np.arange(len(numbers))
    is_used = row_of_offset >= 0
    return (np.cumsum(is_used) - 1)[offsets], row_of_offset[is_used]
