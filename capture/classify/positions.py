"""Where values stand in a column, found through tables that numbers index: nothing is hashed.

For numbers that lie close together, as the codes of categories and the numbers of launches do.
"""

from typing import Final, Literal

import polars as pl

_SPARSE: Final = 8  # times more numbers between the least and the greatest than keys: those are hashed
_FEW: Final = 1 << 16


def rows_of(keys: pl.Series, asked: pl.Series, *, keep: Literal["first", "last"]) -> pl.Series:
    """Return for each asked number in which row of the keys it stands, null for those in none.

    `keep` says which row it is where a key stands in several.
    """
    least, greatest = keys.min(), keys.max()
    if not isinstance(least, int) or not isinstance(greatest, int):
        return pl.Series([None], dtype=pl.UInt32).new_from_index(0, asked.len())
    rows = pl.DataFrame({"key": keys}).with_row_index("row").drop_nulls("key")
    if greatest - least > _SPARSE * keys.len() + _FEW:
        rows = rows.unique("key", keep=keep)
        joined = pl.DataFrame({"key": asked}).join(rows, on="key", how="left", maintain_order="left")
        return joined["row"]
    rows = rows if keep == "last" else rows.reverse()
    table = pl.Series([None], dtype=pl.UInt32).new_from_index(0, greatest - least + 1)
    table.scatter(rows["key"] - least, rows["row"])
    inside = asked.is_between(least, greatest)
    return table.gather(pl.select(pl.when(inside).then(asked - least))[:, 0])


def kinds_of(keys: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return which kind each number is, counted from 0 and null for null, and a row of each kind."""
    least, greatest = keys.min(), keys.max()
    if not isinstance(least, int) or not isinstance(greatest, int):
        return pl.Series([None], dtype=pl.UInt32).new_from_index(0, keys.len()), pl.Series(
            [], dtype=pl.UInt32
        )
    if greatest - least > _SPARSE * keys.len() + _FEW:
        rows = pl.DataFrame({"key": keys}).with_row_index("row").drop_nulls("key").unique("key", keep="last")
        return rows_of(rows["key"], keys, keep="last"), rows["row"]
    own = pl.int_range(keys.len(), dtype=pl.UInt32, eager=True)
    table = pl.Series([None], dtype=pl.UInt32).new_from_index(0, greatest - least + 1)
    known = pl.DataFrame({"key": keys - least, "row": own}).drop_nulls("key")
    table.scatter(known["key"], known["row"])
    return (table.is_not_null().cum_sum() - 1).gather(keys - least), table.drop_nulls()


def distinct(column: pl.Series) -> pl.Series:
    """Return each value of a categorical column once, without null."""
    known = column.drop_nulls() if column.null_count() else column
    codes = known.to_physical()
    highest = codes.max()
    if not isinstance(highest, int):
        return known
    table = pl.Series([None], dtype=pl.UInt32).new_from_index(0, highest + 1)
    table.scatter(codes, pl.int_range(known.len(), dtype=pl.UInt32, eager=True))
    return known.gather(table.drop_nulls())
