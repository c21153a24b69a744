"""Columns as numbers, so that rows are grouped through tables that these numbers index: nothing is hashed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from tracetui.analysis.ragged import Ints

_SPARSE: Final = 8  # times more numbers between the least and the greatest than entries: those are sorted
_FEW: Final = 1 << 16


@dataclass(frozen=True, eq=False)
class Coded:
    """A column as numbers: of each entry the place of its word."""

    words: pl.Series  # the last is null
    codes: Ints

    @classmethod
    def of(cls, column: pl.Series) -> "Coded":
        """Return a column of categories or of whole numbers."""
        known = column.is_not_null().to_numpy() if column.null_count() else None
        numbers = column.to_physical().drop_nulls().cast(pl.Int64).to_numpy()
        kinds, rows = _kinds(numbers)
        codes = kinds
        if known is not None:
            codes = np.full(column.len(), len(rows))
            codes[known] = kinds
            rows = np.flatnonzero(known)[rows]
        words = column.gather(rows)
        return cls(words.extend(words.clear(1)), codes)

    def beside(self, other: "Coded") -> tuple[Ints, Ints, Ints]:
        """Return of each entry which pair of words it has in both columns, and of each pair the places of its
        words; no entry need have a pair.
        """
        width = len(other.words)
        pairs = self.codes * width + other.codes
        if len(self.words) * width <= len(pairs):  # so few pairs can be that some may be of no entry
            return pairs, *np.divmod(np.arange(len(self.words) * width), width)
        kinds, rows = _kinds(pairs)
        return kinds, self.codes[rows], other.codes[rows]

    def placed(self, places: Sequence[int] | Ints, of: Ints | slice = slice(None)) -> Ints:
        """Return for each entry, or for some, the place that its word is given."""
        return np.asarray(places, dtype=np.int64)[self.codes[of]]


def _kinds(numbers: Ints) -> tuple[Ints, Ints]:
    """Return which kind each number is, counted from 0, and where each kind stands for one."""
    if not len(numbers):
        return numbers, numbers
    least, greatest = int(numbers.min()), int(numbers.max())
    if least == greatest:
        return np.zeros(len(numbers), dtype=np.int64), np.zeros(1, dtype=np.int64)
    if (numbers[1:] >= numbers[:-1]).all():
        rises, kinds = numbers[1:] != numbers[:-1], np.zeros(len(numbers), dtype=np.int64)
        np.cumsum(rises, out=kinds[1:])
        return kinds, np.append(0, np.flatnonzero(rises) + 1)
    if greatest - least > _SPARSE * len(numbers) + _FEW:
        _, rows, kinds = np.unique(numbers, return_index=True, return_inverse=True)
        return kinds, rows
    away = numbers - least if least else numbers
    row = np.full(greatest - least + 1, -1)
    row[away] = np.arange(len(numbers))
    there = row >= 0
    return (np.cumsum(there) - 1)[away], row[there]
