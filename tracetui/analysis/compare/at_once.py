"""Questions asked at the same time: what is found of one does not wait for the other."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

import polars as pl

Asked = TypeVar("Asked")
Found = TypeVar("Found")
Other = TypeVar("Other")


def of_each(find: Callable[[Asked], Found], every: Sequence[Asked]) -> list[Found]:
    """Return what is found of each run, or phase, on as many threads as the tables may use."""
    threads = min(len(every), pl.thread_pool_size())
    if threads < 2:
        return [find(one) for one in every]
    contexts = [copy_context() for _ in every]  # work that nobody waits for any more is stopped there, too
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda context, one: context.run(find, one), contexts, every))


def both(find: Callable[[], Found], other: Callable[[], Other]) -> tuple[Found, Other]:
    """Return what two questions find, the second on a thread of its own where tables may use two."""
    if pl.thread_pool_size() < 2:
        return find(), other()
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(copy_context().run, other)
        return find(), beside.result()
