"""What belongs to each word of a column, looked up by the words' codes: a join would hash every row."""

import polars as pl


def looked_up(column: str, words: pl.Series, values: pl.Series) -> pl.Expr:
    """Return for each row the value that stands beside its word; null where `words` has it not.

    `words` are distinct, and of a column of categories as `column` is.
    """
    codes = words.drop_nulls().to_physical()
    highest = codes.max()
    known = pl.DataFrame({"code": codes, "value": values.filter(words.is_not_null())})
    every = pl.select(code=pl.int_range(highest + 1 if isinstance(highest, int) else 0, dtype=pl.UInt32))
    table = every.join(known, on="code", how="left", maintain_order="left")["value"]
    return pl.lit(table).gather(pl.col(column).to_physical(), null_on_oob=True).alias(values.name or column)
