"""Columns that are computed beside each other: polars leaves the interpreter free while it works on one."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import polars as pl

T = TypeVar("T")

_FEW: Final = 1 << 14  # rows of which it is sooner to compute one column after the other


def at_once(work: Sequence[Callable[[], T]], rows: int) -> list[T]:
    """Return what each piece of work returns, in their order; `rows` says how long the columns are."""
    if rows <= _FEW:
        return [piece() for piece in work]
    with ThreadPoolExecutor(pl.thread_pool_size()) as threads:
        return list(threads.map(lambda piece: piece(), work))
