"""Run independent polars computations on threads: polars releases the interpreter while it computes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar, overload

import polars as pl

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_FEW_ROWS: Final = 1 << 14  # up to which one column after the other is faster than starting threads


@overload
def run_parallel(tasks: tuple[Callable[[], A], Callable[[], B]]) -> tuple[A, B]: ...


@overload
def run_parallel(tasks: Sequence[Callable[[], T]], rows: int | None = None) -> tuple[T, ...]: ...


def run_parallel(tasks: Sequence[Callable[[], T]], rows: int | None = None) -> tuple[T, ...]:
    """Return the results of all tasks, in their order.

    `rows` is the length of the columns that the tasks work on, if they are short enough to need no threads.
    Each task sees the caller's context variables, so that a cancelled question stops its tasks, too.
    """
    threads = min(len(tasks), pl.thread_pool_size())
    if threads < 2 or (rows is not None and rows <= _FEW_ROWS):
        return tuple(task() for task in tasks)
    contexts = [copy_context() for _ in tasks]  # one each: a context can be entered by one thread at a time
    with ThreadPoolExecutor(threads) as pool:
        return tuple(pool.map(lambda context, task: context.run(task), contexts, tasks))
