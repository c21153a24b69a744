"""Nesting of intervals in time: path sums, and the rows of a timeline lane."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from capture.interval_nesting import NO_SCOPE, Bools, Ints, compute_self_times, find_enclosing_scopes
from capture.native.schema import MAX_PATH_DEPTH, PATH_SEPARATOR


def sum_by_path(rows: pl.DataFrame, place: Sequence[str] = (), *, is_thread: bool = False) -> pl.DataFrame:
    """Return one row per scope path: `count`, `own_ns` of its kernels, `span_ns`, `has_kernel`.

    `rows` have `t`, `dur`, `name`, `kernel` and perhaps `track`. A row belongs to the innermost span of its
    track that contains it; a kernel contains nothing, so kernels that overlap on a stream are siblings. On a
    thread every row may contain others, and `own_ns` is what each row takes itself; `span_ns` is 0. A kernel
    in no span gets the scopes named by the columns of `place`, from the outermost. A path has at most
    MAX_PATH_DEPTH scopes above its last name; spans deeper than that are left out.
    """
    track = pl.lit(0)
    if "track" in rows.columns:
        track = pl.col("track").to_physical().cast(pl.Int64).fill_null(-1)
    label = pl.col("name").to_physical()
    rows = rows.select("t", "dur", "kernel", track.alias("on"), "name", *place, label=label)
    order = ("on", "t", *(("dur", "kernel") if is_thread else ("kernel", "dur")))
    rows = rows.sort(order, descending=[c == "dur" for c in order], maintain_order=True)
    end = (rows["t"] + rows["dur"]).to_numpy()
    track_codes, start, kernel_rows = (rows[c].to_numpy() for c in ("on", "t", "kernel"))
    enclosing = find_enclosing_scopes(track_codes, start, end, is_thread | ~kernel_rows)
    parents, is_deep = _limit_depth(enclosing)
    labels = rows["label"].to_numpy().astype(np.int64)
    path_code, paths = _build_paths(parents, labels, rows.select("label", "name").unique())
    kernel = pl.col("kernel")
    own_ns, span_ns = pl.col("dur").filter(kernel).sum(), pl.col("dur").filter(~kernel).sum()
    if is_thread:
        self_times = pl.Series("self_ns", compute_self_times(track_codes, start, end, enclosing))
        rows = rows.with_columns(self_times)
        own_ns, span_ns = pl.col("self_ns").sum(), pl.lit(0, pl.Int64)
    is_free = pl.Series(enclosing == NO_SCOPE) & rows["kernel"]
    placement = [pl.when(is_free).then(pl.col(c)).alias(c) for c in place]
    sums = (
        rows.select("dur", "kernel", pl.col("^self_ns$"), *placement, code=pl.Series(path_code))
        .filter(~pl.Series(is_deep) | kernel | is_thread)
        .group_by("code", *place)
        .agg(count=pl.len().cast(pl.Int64), own_ns=own_ns, span_ns=span_ns, has_kernel=kernel.any())
    )
    return _place_paths(sums.with_columns(paths.gather(sums["code"])).drop("code"), place)


def _place_paths(sums: pl.DataFrame, place: Sequence[str]) -> pl.DataFrame:
    """Return the sums with the scopes named by the columns of `place` before their paths."""
    placed = [c for c in place if sums[c].null_count() < sums.height]
    if not placed:
        return sums.drop(*place)
    parts = [*(pl.col(c).cast(pl.String) for c in placed), pl.col("path")]
    full_path = pl.concat_str(parts, separator=PATH_SEPARATOR, ignore_nulls=True)
    return sums.with_columns(path=full_path).drop(*place)


def _compute_depths(enclosing: Ints) -> Ints:
    """Return the number of scopes around each row, doubling the looked-up distance each round."""
    ancestor = enclosing.copy()
    depth = (ancestor >= 0).astype(np.int64)
    remaining = np.flatnonzero(ancestor >= 0)
    while remaining.size:
        depth[remaining] += depth[ancestor[remaining]]
        ancestor[remaining] = ancestor[ancestor[remaining]]
        remaining = remaining[ancestor[remaining] >= 0]
    return depth


def _limit_depth(enclosing: Ints) -> tuple[Ints, Bools]:
    """Return the innermost scope around each row that a path has room for, and which rows are deeper."""
    is_deep = _compute_depths(enclosing) >= MAX_PATH_DEPTH
    outer = np.where(is_deep, enclosing, np.arange(len(enclosing)))
    while is_deep[outer].any():
        outer = outer[outer]
    return np.where(enclosing >= 0, outer[enclosing], NO_SCOPE), is_deep


def _build_paths(enclosing: Ints, labels: Ints, names: pl.DataFrame) -> tuple[Ints, pl.Series]:
    """Return a path code for each row, and the text of each code."""
    name_of: dict[int, str] = dict(names.cast({"name": pl.String}).iter_rows())
    depth = _compute_depths(enclosing)
    order = np.argsort(depth, kind="stable")
    level_starts = np.flatnonzero(np.diff(depth[order], prepend=-1))
    width = int(labels.max(initial=0)) + 1
    code, texts = np.zeros(len(enclosing), dtype=np.int64), list[str]()
    for level in np.split(order, level_starts[1:]) if len(order) else []:
        parent_code = np.where(enclosing[level] >= 0, code[enclosing[level]], NO_SCOPE)
        keys, place = np.unique((parent_code + 1) * width + labels[level], return_inverse=True)
        code[level] = len(texts) + place
        for key in keys.tolist():
            parent, label = divmod(key, width)
            texts.append(texts[parent - 1] + PATH_SEPARATOR + name_of[label] if parent else name_of[label])
    return code, pl.Series("path", texts, dtype=pl.String)


def stack_nested(start: Ints, end: Ints, nests: bool) -> Ints:
    """Return the row of each slice of one lane, counted from the top.

    Slices come by start, the longest first. With `nests`, a slice lies below the innermost slice that
    contains it, otherwise at the top; if that row is still taken by an overlapping slice, in the next free
    one.
    """
    row, busy_until = np.zeros(len(start), dtype=np.int64), list[int]()
    scopes = np.full(len(start), nests)
    enclosing = find_enclosing_scopes(np.zeros(len(start), dtype=np.int64), start, end, scopes).tolist()
    for i, (a, b, parent) in enumerate(zip(start.tolist(), end.tolist(), enclosing, strict=True)):
        level = 0 if parent == NO_SCOPE else int(row[parent]) + 1
        while level < len(busy_until) and busy_until[level] > a:
            level += 1
        row[i] = level
        busy_until[level : level + 1] = [max(b, a + 1)]
    return row


def stack_short(start: Ints, end: Ints, row: Ints, times: Ints, nests: bool) -> Ints:
    """Return the row of slices too short to be placed one by one, given their start `times`.

    With `nests` it is the row below everything open then, otherwise the first free row.
    """
    rows = np.full(len(times), 0 if nests or not len(row) else int(row.max()) + 1, dtype=np.int64)
    pending = np.arange(len(times)) if len(row) else np.zeros(0, dtype=np.int64)
    levels = list(enumerate(_split_by(row)))
    for level, on_level in reversed(levels) if nests else levels:
        if not pending.size:
            break
        at = times[pending]
        latest = np.searchsorted(start[on_level], at, side="right") - 1
        is_taken = (latest >= 0) & (end[on_level][latest] > at)
        is_placed = is_taken if nests else ~is_taken
        rows[pending[is_placed]] = level + 1 if nests else level
        pending = pending[~is_placed]
    return rows


def _split_by(codes: Ints) -> list[Ints]:
    """Return the places of each code from 0 to the largest, in their order."""
    return (
        np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1]) if len(codes) else []
    )


def stack_slices(slices: pl.DataFrame, is_wide: pl.Series) -> pl.Series:
    """Return the lane row of each slice of a frame with `lane`, `t`, `end` and `nests`.

    Slices that are `wide` are placed one by one; no other slice may contain one of them.
    """
    row = np.zeros(slices.height, dtype=np.int64)
    t, end, nests, wide = (c.to_numpy() for c in (slices["t"], slices["end"], slices["nests"], is_wide))
    order = np.lexsort((-end, t))
    lanes = slices["lane"].rank("dense").to_numpy().astype(np.int64)[order] - 1
    for of_lane in _split_by(lanes):
        if len(of_lane) == 1:
            continue  # alone in row 0
        places = order[of_lane]
        is_nest = bool(nests[places[0]])
        wide_places, short = places[wide[places]], places[~wide[places]]
        row[wide_places] = stack_nested(t[wide_places], end[wide_places], is_nest)
        row[short] = stack_short(t[wide_places], end[wide_places], row[wide_places], t[short], is_nest)
    return pl.Series("row", row, dtype=pl.Int32)
