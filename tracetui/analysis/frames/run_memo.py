"""Cache values computed from a run, or from the chunks of a growing run.

A run never changes, but every question asks for the same values again.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from capture import dense_lookup
from capture.live_run import Chunk, list_chunks
from capture.run import Run, select_or_null

Value = TypeVar("Value")

_CACHE: Final[WeakKeyDictionary[Run, dict[Callable[[Run], Any], Any]]] = WeakKeyDictionary()

Result = TypeVar("Result")
MAX_CACHED_RESULTS: Final = 16  # per chunk, the newest


def cache_per_run(compute: Callable[[Run], Value]) -> Callable[[Run], Value]:
    """Decorate a function of a run: compute its value once per run."""

    @wraps(compute)
    def find_or_compute(run: Run) -> Value:
        values = _CACHE.setdefault(run, {})
        if compute not in values:
            values[compute] = compute(run)
        value: Value = values[compute]
        return value

    return find_or_compute


def list_distinct(run: Run, column: str) -> pl.Series:
    """Return the distinct values of an event column, without null; categories for text."""
    cache = _make_distinct_cache(run)
    if column not in cache:
        values = run.events[column]
        is_text = values.dtype == pl.Categorical
        cache[column] = dense_lookup.find_distinct(values) if is_text else values.unique().drop_nulls()
    return cache[column]


@cache_per_run
def _make_distinct_cache(run: Run) -> dict[str, pl.Series]:
    """Return the run's dict from column to its distinct values, empty at first."""
    return {}


def map_chunks(run: Run, key: Hashable, compute: Callable[[pl.DataFrame], Result]) -> list[Result]:
    """Return `compute(events)` of each chunk of a run, in order; of all events if it has no chunks.

    Chunks have all columns of the run. Earlier snapshots share the chunks, so results are cached in them;
    `key` identifies everything besides the events that the result depends on.
    """
    chunks = list_chunks(run)
    if not chunks:
        return [compute(run.events)]
    columns = tuple(run.events.columns)
    return [_compute_cached(piece, (key, columns), columns, compute) for piece in chunks]


def _compute_cached(
    piece: Chunk, key: Hashable, columns: tuple[str, ...], compute: Callable[[pl.DataFrame], Result]
) -> Result:
    if key in piece.cache:
        cached: Result = piece.cache[key]
        return cached
    result = piece.cache[key] = compute(select_or_null(piece.events, columns))
    for old in list(piece.cache)[:-MAX_CACHED_RESULTS]:
        piece.cache.pop(old, None)
    return result
