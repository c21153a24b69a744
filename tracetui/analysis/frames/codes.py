"""Group, look up and sum rows by integer codes and segments, which is faster than hashing or joining.

Measured on 1.5 million rows: grouping 1.05 to 1.7 times as fast as polars, a lookup 10 times as a join.
"""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl
from msgspec import Struct

from capture.dense_lookup import has_value

_KEY: Final = "_packed"
_MAX_COMBINATIONS: Final = 1 << 62  # that fit one integer key
_MIN_ROWS: Final = 1 << 12  # below this, polars' own group_by is as fast


class _KeyDigit(Struct, frozen=True):
    """A column as one digit of the packed key: 0 is null, 1 its lowest code."""

    column: str
    dtype: pl.DataType
    physical: pl.DataType
    lowest: int
    size: int

    def encode(self) -> pl.Expr:
        """Return the digit of each row."""
        if self.size == 1:
            return pl.lit(0, pl.Int64)
        return (pl.col(self.column).to_physical().cast(pl.Int64) - (self.lowest - 1)).fill_null(0)

    def decode(self, digit: pl.Expr) -> pl.Expr:
        """Return the column's value for each digit."""
        if self.size == 1:
            return pl.lit(None, self.dtype).alias(self.column)
        codes = pl.when(digit > 0).then(digit + (self.lowest - 1)).cast(self.physical)
        is_text = isinstance(self.dtype, pl.Categorical | pl.Enum)
        return (codes.cat.to(self.dtype) if is_text else codes.cast(self.dtype)).alias(self.column)


def group_by_packed_key(rows: pl.LazyFrame, by: Sequence[str], aggs: Sequence[pl.Expr] = ()) -> pl.DataFrame:
    """Return `rows.group_by(by).agg(aggs)` in any order; the distinct rows without `aggs`."""
    columns = dict.fromkeys((*by, *(root for agg in aggs for root in agg.meta.root_names())))
    frame = rows.select(*columns).collect()
    digits = _build_digits(frame, by) if len(by) > 1 and frame.height > _MIN_ROWS else None
    if digits is None:
        return frame.group_by(by).agg(aggs)
    key = pl.lit(0, pl.Int64)
    for digit in digits:
        key = key * digit.size + digit.encode()
    groups = frame.lazy().group_by(key.alias(_KEY)).agg(aggs)
    keys, remainder = [], pl.col(_KEY)
    for digit in reversed(digits):
        keys.append(digit.decode(remainder % digit.size))
        remainder = remainder // digit.size
    return groups.select(*reversed(keys), pl.exclude(_KEY)).collect()


def _build_digits(frame: pl.DataFrame, by: Sequence[str]) -> list[_KeyDigit] | None:
    """Return the columns as digits; None if one has no integer codes or the key would overflow."""
    digits, combinations = [], 1
    for column in by:
        column_values = frame[column]
        codes, is_empty = column_values.to_physical(), column_values.null_count() == frame.height
        if not (is_empty or codes.dtype.is_integer()):
            return None
        lowest: Any = 0 if is_empty else codes.min()
        highest: Any = -1 if is_empty else codes.max()
        digits.append(_KeyDigit(column, column_values.dtype, codes.dtype, lowest, highest - lowest + 2))
        combinations *= digits[-1].size
    return digits if combinations < _MAX_COMBINATIONS else None


def map_by_code(column: str, words: pl.Series, values: pl.Series) -> pl.Expr:
    """Return for each row of `column` the value that belongs to its word; null if `words` lacks it.

    `words` are distinct, and categories if `column` is categorical.
    """
    is_word, codes = has_value(words), words.to_physical()
    highest = codes.max()
    table = pl.Series([None], dtype=values.dtype)
    table = table.new_from_index(0, highest + 1 if isinstance(highest, int) else 0)
    table.scatter(codes.filter(is_word), values.filter(is_word))
    return pl.lit(table).gather(pl.col(column).to_physical(), null_on_oob=True).alias(values.name or column)


def sum_segments(values: pl.Series, starts: pl.Series) -> pl.Series:
    """Return the sum of each segment of values; `starts` are the first rows, beginning with 0."""
    return sum_segments_of_cumsum(values.fill_null(0).cum_sum(), starts)


def sum_segments_of_cumsum(cumsum: pl.Series, starts: pl.Series) -> pl.Series:
    """Return the sum of each segment, given the cumulative sum over all rows."""
    at_end = cumsum.gather(starts.shift(-1, fill_value=cumsum.len()) - 1)
    return at_end - at_end.shift(1, fill_value=0)
