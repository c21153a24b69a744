"""What let each row of a device start: the end of another row, or the host that launched it only then.

A row that begins as soon after its predecessor on the same stream as rows usually do was held up by that one.
Else it was held up by whatever ended last before it, on any stream. A launch that reaches the device after
that end is late, and the host held the row up.
"""

from typing import Final

import polars as pl

NONE: Final = -1
USUAL: Final = 2  # times the median time from one row to the next of a stream: as soon as usual
LONGEST_NS: Final = 10_000  # that a device needs from one row to the next


def released(rows: pl.DataFrame, delay: int) -> pl.DataFrame:
    """Return for each of rows that are in the order of their starts (`t`, `dur`, perhaps `track`, `launch`):
    `own`, the row before it on its stream, `by`, the row whose end let it start, and `late`, whether its
    launch came so late that the host held it up. Rows are numbered from 0, NONE is for none.

    Of overlapping rows of a stream the one that ends last counts. A launch takes `delay` ns to the device.
    """
    stream = pl.col("track").to_physical() if "track" in rows.columns else pl.lit(0)
    end = pl.col("t") + pl.col("dur")
    table = (
        rows.select("t", end=end, on=stream).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    )
    last = pl.when(pl.col("end") >= pl.col("end").cum_max().over("on")).then("row")
    own = last.forward_fill().shift(1).over("on")
    table = table.with_columns(own=own.fill_null(NONE), free=pl.col("end").cum_max().shift(1).over("on"))
    ends = table.select("end", any="row").sort("end", "any")
    table = table.join_asof(ends, left_on="t", right_on="end", suffix="_any", check_sortedness=False)
    after = pl.col("t") - pl.col("free")
    usual = table.filter(after.is_between(1, LONGEST_NS)).select(after.median()).item() or 0
    soon = after <= USUAL * usual
    table = table.with_columns(by=pl.when(soon | (pl.col("free") > pl.col("t"))).then("own").otherwise("any"))
    table = table.with_columns(pl.col("by").fill_null(NONE))
    if "launch" not in rows.columns:
        return table.select("own", "by", late=pl.lit(value=False))
    until = table["end"].gather(pl.Series(table["by"]).clip(lower_bound=0))
    until = pl.select(pl.when(table["by"] != NONE).then(until)).to_series()
    late = (rows["launch"] + delay > until).fill_null(value=False) | (
        until.is_null() & rows["launch"].is_not_null()
    )
    return table.select("own", "by", late=late)
