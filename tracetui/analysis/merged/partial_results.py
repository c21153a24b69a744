"""Per-file results, their commutative merge, and the tree that merges them as they arrive.

A result is a few small frames. Each frame has a key, and every other column has a rule that merges the values
of rows with the same key. All rules are associative and commutative, so it does not matter who merges what
first: one process, several, or the machines of a cluster.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal

import polars as pl

# sum, low and high are null if any value is null; same is the value that all have, else null; last is the
# largest value that is not null
MergeRule = Literal["sum", "low", "high", "same", "last"]


@dataclass(frozen=True)
class FrameShape:
    """The key of a frame, and the merge rule of every other column; frames without rules are concatenated.

    `compact` keeps a merged frame small; its result must not depend on the order of merging.
    """

    key: tuple[str, ...]
    rules: Mapping[str, MergeRule] = field(default_factory=dict)
    compact: Callable[[pl.DataFrame], pl.DataFrame] | None = None


MEMBERS: Final = "members"  # the frame that every result has: one row per run
_NODE: Final = "_node"  # of the tree of results


@dataclass(frozen=True, eq=False)
class PartialResult:
    """The contribution of some runs: frames by name, and the metadata that they share, as JSON texts."""

    frames: Mapping[str, pl.DataFrame]
    shared_meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> pl.DataFrame:
        """One row per run that takes part."""
        return self.frames[MEMBERS]

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata that all runs share."""
        return {key: json.loads(text) for key, text in self.shared_meta.items()}


def encode_meta(meta: Mapping[str, Any]) -> dict[str, str]:
    """Encode metadata as JSON texts, which can be compared; omit what JSON cannot represent."""
    texts = {}
    for key, value in meta.items():
        with suppress(TypeError, ValueError):
            texts[key] = json.dumps(value, sort_keys=True)
    return texts


def merge_results(results: Sequence[PartialResult], shapes: Mapping[str, FrameShape]) -> PartialResult:
    """Merge results, at least one; their order makes no difference but in the last bit of sums of floats."""
    frames = {}
    for name, shape in {MEMBERS: FrameShape(("member", "run")), **shapes}.items():
        if parts := [result.frames[name] for result in results if name in result.frames]:
            frames[name] = merge_frames(parts, shape)
    first, *others = (result.shared_meta for result in results)
    is_shared = {key: all(other.get(key) == text for other in others) for key, text in first.items()}
    return PartialResult(frames, {key: text for key, text in first.items() if is_shared[key]})


def merge_block(results: Sequence[PartialResult], shapes: Mapping[str, FrameShape]) -> PartialResult:
    """Merge results to what `MergeTree` makes of them: sums of floats pairwise, other frames at once."""
    is_ordered = {
        name: any(_sums_floats(r.frames.get(name), shape) for r in results) for name, shape in shapes.items()
    }
    merged = merge_results(results, {name: shape for name, shape in shapes.items() if not is_ordered[name]})
    frames = dict(merged.frames)
    for name in filter(is_ordered.get, shapes):
        parts = {index: result.frames[name] for index, result in enumerate(results) if name in result.frames}
        frames[name] = _merge_in_pairs(parts, shapes[name])
    return PartialResult(frames, merged.shared_meta)


def _merge_in_pairs(frames: Mapping[int, pl.DataFrame], shape: FrameShape) -> pl.DataFrame:
    """Merge the frames of files by their index, as `MergeTree` does, but all pairs of a level at once."""
    nodes = [index for index, frame in frames.items() for _ in range(frame.height)]
    merged = _concat([*frames.values()]).with_columns(pl.Series(_NODE, nodes, dtype=pl.Int64))
    for _ in range(max(frames).bit_length()):
        merged = merged.with_columns(pl.col(_NODE) // 2)
        merged = _merge_rows(merged, replace(shape, key=(_NODE, *shape.key)))
    return merged.drop(_NODE).sort(shape.key, nulls_last=True)


def _sums_floats(frame: pl.DataFrame | None, shape: FrameShape) -> bool:
    """Whether merging a frame adds up floats, whose sum depends on their order in the last bit."""
    if frame is None:
        return False
    types = (frame.schema.get(column) for column, rule in shape.rules.items() if rule == "sum")
    return any(type is not None and type.is_float() for type in types)


def merge_frames(frames: Sequence[pl.DataFrame], shape: FrameShape) -> pl.DataFrame:
    """Merge frames of one shape, sorted by key."""
    return _merge_rows(_concat(frames), shape).sort(shape.key, nulls_last=True)


def _concat(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    is_same = all(frame.schema == frames[0].schema for frame in frames[1:])
    return pl.concat(frames, how="diagonal" if is_same else "diagonal_relaxed")


def _merge_rows(rows: pl.DataFrame, shape: FrameShape) -> pl.DataFrame:
    """Merge the rows with the same key."""
    if shape.rules:
        columns = [_merge_column(name, rule) for name, rule in shape.rules.items() if name in rows.columns]
        rows = rows.group_by(shape.key).agg(columns)
    return rows if shape.compact is None else shape.compact(rows)


@cache
def _merge_column(name: str, rule: MergeRule) -> pl.Expr:
    column = pl.col(name)
    if rule == "same":
        return pl.when(column.n_unique() == 1).then(column.first()).alias(name)
    if rule == "last":
        return column.max()
    merged = {"sum": column.sum(), "low": column.min(), "high": column.max()}[rule]
    return pl.when(column.null_count() == 0).then(merged).alias(name)


class MergeTree:
    """Merge the results of a known number of files as they arrive, always in the same tree.

    Sums of floats depend on their order in the last bit. The index of a file decides with which one it is
    merged, not the time of its arrival, so the answer is bit-identical wherever it is computed. Few results
    wait, because finished neighbours are merged at once.
    """

    def __init__(self, total: int, shapes: Mapping[str, FrameShape]) -> None:
        self._total, self._shapes = total, shapes
        self._waiting: dict[tuple[int, int], PartialResult | None] = {}
        self.result: PartialResult | None = None  # after the last file; None if no file contributed

    def add(self, index: int, result: PartialResult | None, count: int = 1) -> None:
        """Add the result of the file of this index, None for a failed file; add each index once.

        `count` files from there on were merged before: a power of two, of which the index is a multiple.
        """
        level = count.bit_length() - 1
        index >>= level
        while (1 << level) < self._total:
            neighbour = (level, index ^ 1)
            if (index ^ 1) << level < self._total:
                if neighbour not in self._waiting:
                    self._waiting[level, index] = result
                    return
                other = self._waiting.pop(neighbour)
                pair = (result, other) if index % 2 == 0 else (other, result)
                result = self._merge(*pair)
            level, index = level + 1, index >> 1
        self.result = result

    def merge_arrived(self) -> PartialResult | None:
        """Merge what has arrived so far; None if nothing has."""
        if self.result is not None:
            return self.result
        merged: PartialResult | None = None
        for node in sorted(self._waiting):
            merged = self._merge(merged, self._waiting[node])
        return merged

    def _merge(self, one: PartialResult | None, other: PartialResult | None) -> PartialResult | None:
        if one is None or other is None:
            return one or other
        return merge_results((one, other), self._shapes)
