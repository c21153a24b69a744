"""Cache values computed from a run, or from the chunks of a growing run.

A run never changes, but every question asks for the same values again.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

import polars as pl

from capture import dense_lookup
from capture.run import Chunk, Run, list_chunks, select_or_null

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

_CACHE: Final[WeakKeyDictionary[Run, dict[tuple[Any, ...], Any]]] = WeakKeyDictionary()
MAX_CACHED_RESULTS: Final = 16  # per chunk, the newest


def cache_per_run(compute: Callable[[Run, *Args], Result]) -> Callable[[Run, *Args], Result]:
    """Decorate a function of a run and hashable arguments: compute each value once per run."""

    @wraps(compute)
    def find_or_compute(run: Run, *args: *Args) -> Result:
        values, key = _CACHE.setdefault(run, {}), (compute, *args)
        if key not in values:
            values[key] = compute(run, *args)
        value: Result = values[key]
        return value

    return find_or_compute


@cache_per_run
def list_distinct(run: Run, column: str) -> pl.Series:
    """Return the distinct values of an event column, without null; categories for text."""
    values = run.events[column]
    is_text = values.dtype == pl.Categorical
    return dense_lookup.find_distinct(values) if is_text else values.unique().drop_nulls()


def map_chunks(run: Run, key: Hashable, compute: Callable[[pl.DataFrame], Result]) -> list[Result]:
    """Return `compute(events)` of each chunk of a run, in order; of all events if it has no chunks.

    Chunks have all columns of the run. Earlier snapshots share the chunks, so results are cached in them;
    `key` identifies everything besides the events that the result depends on.
    """
    columns = tuple(run.events.columns)
    full_key = key, columns

    def find_or_compute(chunk: Chunk) -> Result:
        if full_key in chunk.cache:
            cached: Result = chunk.cache[full_key]
            return cached
        result = chunk.cache[full_key] = compute(select_or_null(chunk.events, columns))
        for old in list(chunk.cache)[:-MAX_CACHED_RESULTS]:
            chunk.cache.pop(old, None)
        return result

    chunks = list_chunks(run)
    return [find_or_compute(chunk) for chunk in chunks] if chunks else [compute(run.events)]
