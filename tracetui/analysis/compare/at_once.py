"""The runs of a comparison asked at the same time: what is found of one does not wait for the other."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import polars as pl

from capture.run import Run

Found = TypeVar("Found")


def of_each(find: Callable[[Run], Found], runs: Sequence[Run]) -> list[Found]:
    """Return what is found of each run, on as many threads as the tables may use."""
    threads = min(len(runs), pl.thread_pool_size())
    if threads < 2:
        return [find(run) for run in runs]
    contexts = [copy_context() for _ in runs]  # work that nobody waits for any more is stopped there, too
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda context, run: context.run(find, run), contexts, runs))
