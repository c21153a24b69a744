"""The Python line that launched a kernel: the innermost function of its thread that counts."""

import polars as pl


def with_lines(kernels: pl.DataFrame, frames: pl.DataFrame) -> pl.DataFrame:
    """Return kernels (with `at` and `by` of their launch) and `line`, the label of the function around it.

    `frames` are the functions that count, with label, t, dur and place. They nest on their thread: the one
    that is innermost at a moment began last among those that are as deep as the stack is at that moment.
    """
    if frames.is_empty():
        return kernels
    parts = []
    for (place,), mine in frames.partition_by("place", as_dict=True).items():
        here = kernels.filter(pl.col("by") == place)
        parts.append(here.with_columns(line=_innermost(mine, here["at"])))
    elsewhere = kernels.filter(~pl.col("by").is_in(frames["place"].unique().implode()))
    return pl.concat([*parts, elsewhere], how="diagonal")


def _innermost(frames: pl.DataFrame, times: pl.Series) -> pl.Series:
    """Return the label of the innermost frame of one thread at each time, null where none is open."""
    frames = frames.sort("t", "dur", descending=[False, True], maintain_order=True)
    ends = (frames["t"] + frames["dur"]).sort()
    began = frames.select("t", "label", end=pl.col("t") + pl.col("dur")).with_columns(
        depth=pl.int_range(1, pl.len() + 1) - ends.search_sorted(frames["t"], side="right").cast(pl.Int64)
    )
    opened = frames["t"].search_sorted(times, side="right").cast(pl.Int64)
    closed = ends.search_sorted(times, side="right").cast(pl.Int64)
    asked = pl.DataFrame({"at": times, "depth": opened - closed}).with_row_index("row").sort("at")
    found = asked.join_asof(
        began, left_on="at", right_on="t", by="depth", strategy="backward", check_sortedness=False
    ).sort("row")
    return found.select(pl.when(pl.col("end") > pl.col("at")).then("label").alias("line"))["line"]
