"""Rows grouped by several columns as by one: the words of a row make one number, which is sooner found."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl
from msgspec import Struct

_KEY: Final = "_packed"
_MOST: Final = 1 << 62  # combinations that one number tells apart
_FEWEST: Final = 1 << 12  # rows, from which it is worth it


class _Digit(Struct, frozen=True):
    """A column as a digit of a number: 0 is null, 1 its least code."""

    column: str
    dtype: pl.DataType
    physical: pl.DataType
    least: int
    kinds: int

    def of_row(self) -> pl.Expr:
        """Return the digit of each row."""
        if self.kinds == 1:
            return pl.lit(0, pl.Int64)
        return (pl.col(self.column).to_physical().cast(pl.Int64) - (self.least - 1)).fill_null(0)

    def value(self, digit: pl.Expr) -> pl.Expr:
        """Return what the digits stand for."""
        if self.kinds == 1:
            return pl.lit(None, self.dtype).alias(self.column)
        codes = pl.when(digit > 0).then(digit + (self.least - 1)).cast(self.physical)
        worded = isinstance(self.dtype, pl.Categorical | pl.Enum)
        return (codes.cat.to(self.dtype) if worded else codes.cast(self.dtype)).alias(self.column)


def grouped(rows: pl.LazyFrame, by: Sequence[str], aggs: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return what `rows.group_by(by).agg(aggs)` does, in any order; without `aggs` what is distinct."""
    needed = dict.fromkeys((*by, *(root for agg in aggs for root in agg.meta.root_names())))
    frame = rows.select(*needed).collect()
    digits = _digits(frame, by) if len(by) > 1 and frame.height > _FEWEST else None
    if digits is None:
        return frame.group_by(by).agg(aggs)
    key = pl.lit(0, pl.Int64)
    for digit in digits:
        key = key * digit.kinds + digit.of_row()
    found = frame.lazy().group_by(key.alias(_KEY)).agg(aggs)
    values, rest = [], pl.col(_KEY)
    for digit in reversed(digits):
        values.append(digit.value(rest % digit.kinds))
        rest = rest // digit.kinds
    return found.select(*reversed(values), pl.exclude(_KEY)).collect()


def _digits(frame: pl.DataFrame, by: Sequence[str]) -> list[_Digit] | None:
    """Return the columns as digits; None where one of them has no codes, or they are too many together."""
    digits, every = [], 1
    for column in by:
        values = frame[column]
        codes, empty = values.to_physical(), values.null_count() == frame.height
        if not (empty or codes.dtype.is_integer()):
            return None
        least: Any = 0 if empty else codes.min()
        most: Any = -1 if empty else codes.max()
        digits.append(_Digit(column, values.dtype, codes.dtype, least, most - least + 2))
        every *= digits[-1].kinds
    return digits if every < _MOST else None
