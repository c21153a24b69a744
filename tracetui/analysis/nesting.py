"""Nesting by time: which scope holds each row of a track, and the sums of every path that comes of it."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from capture.native.schema import PATH_SEPARATOR

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_SCOPE: Final = -1


def path_sums(rows: pl.DataFrame, place: Sequence[str] = ()) -> pl.DataFrame:
    """Return for rows with `t`, `dur`, `name`, `kernel` and perhaps `track` the scopes that their times tell:
    one row a path with `count`, the time of its kernels and of its spans, and `work` where there is a kernel.

    A row lies in the innermost span of its track that contains it. A kernel holds nothing: kernels that
    overlap on a stream lie beside each other. One that no span holds lies in the scopes that the columns of
    its `place` name, from the outermost.
    """
    on = pl.col("track").to_physical().cast(pl.Int64).fill_null(-1) if "track" in rows.columns else pl.lit(0)
    label = pl.col("name").to_physical()
    rows = rows.select("t", "dur", "kernel", on.alias("on"), "name", *place, label=label)
    rows = rows.sort("on", "t", "kernel", "dur", descending=[False, False, False, True], maintain_order=True)
    end = (rows["t"] + rows["dur"]).to_numpy()
    holder = holders(rows["on"].to_numpy(), rows["t"].to_numpy(), end, ~rows["kernel"].to_numpy())
    labels = rows["label"].to_numpy().astype(np.int64)
    code, texts = _paths(holder, labels, rows.select("label", "name").unique())
    kernel = pl.col("kernel")
    free = pl.Series(holder == NO_SCOPE) & rows["kernel"]
    around = [pl.when(free).then(pl.col(c)).alias(c) for c in place]
    sums = (
        rows.select("dur", "kernel", *around, code=pl.Series(code))
        .group_by("code", *place)
        .agg(
            count=pl.len().cast(pl.Int64),
            own_ns=pl.col("dur").filter(kernel).sum(),
            span_ns=pl.col("dur").filter(~kernel).sum(),
            work=kernel.any(),
        )
    )
    path = pl.Series("path", texts, dtype=pl.String).gather(sums["code"])
    parts = [*(pl.col(c).cast(pl.String) for c in place), pl.col("path")]
    whole = pl.concat_str(parts, separator=PATH_SEPARATOR, ignore_nulls=True)
    return sums.with_columns(path).with_columns(path=whole).drop("code", *place)


def holders(track: Ints, start: Ints, end: Ints, is_scope: Bools) -> Ints:
    """Return for each row the row of the innermost scope of its track that contains it, else NO_SCOPE.

    Rows come by track and start, the longest first. The holder is the nearest scope before a row that ends
    no earlier. Where a scope ends too early, so do all between it and its own holder: the search goes on
    from there, for all rows at once, in about as many rounds as the number of rows has binary digits.
    """
    places = np.arange(len(start), dtype=np.int64)
    last = np.maximum.accumulate(np.where(is_scope, places, NO_SCOPE))
    holder = np.concatenate(([NO_SCOPE], last))[:-1].astype(np.int64)
    open_rows = places[holder >= 0]
    while open_rows.size:
        scope = holder[open_rows]
        elsewhere = track[scope] != track[open_rows]
        short = elsewhere | (end[scope] < end[open_rows]) | (end[scope] <= start[open_rows])
        open_rows = open_rows[short]
        holder[open_rows] = np.where(elsewhere[short], NO_SCOPE, holder[scope[short]])
        open_rows = open_rows[holder[open_rows] >= 0]
    return holder


def _depths(holder: Ints) -> Ints:
    """Return how many scopes lie around each row, by doubling the distance that is looked up at once."""
    above = holder.copy()
    depth = (above >= 0).astype(np.int64)
    rest = np.flatnonzero(above >= 0)
    while rest.size:
        depth[rest] += depth[above[rest]]
        above[rest] = above[above[rest]]
        rest = rest[above[rest] >= 0]
    return depth


def _paths(holder: Ints, labels: Ints, names: pl.DataFrame) -> tuple[Ints, list[str]]:
    """Return a code for the path of each row, and the text of each code."""
    name_of: dict[int, str] = dict(names.cast({"name": pl.String}).iter_rows())
    depth = _depths(holder)
    order = np.argsort(depth, kind="stable")
    bounds = np.flatnonzero(np.diff(depth[order], prepend=-1))
    width = int(labels.max(initial=0)) + 1
    code, texts = np.zeros(len(holder), dtype=np.int64), list[str]()
    for level in np.split(order, bounds[1:]) if len(order) else []:
        above = np.where(holder[level] >= 0, code[holder[level]], NO_SCOPE)
        keys, place = np.unique((above + 1) * width + labels[level], return_inverse=True)
        code[level] = len(texts) + place
        for key in keys.tolist():
            around, label = divmod(key, width)
            texts.append(texts[around - 1] + PATH_SEPARATOR + name_of[label] if around else name_of[label])
    return code, texts
