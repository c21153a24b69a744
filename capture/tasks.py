"""Long work: run polars computations on threads, cancel them, announce what takes its time.

Cancelling is cooperative, because a Python thread cannot be stopped from outside: long work calls
`check_cancelled` between steps. The token is a context variable, so that no analysis has to pass it on.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Final, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

_FEW_ROWS: Final = 1 << 14  # up to which one column after the other is faster than starting threads
_active: list[str] = []
_listeners: list[Callable[[str], None]] = []


@overload
def run_parallel(tasks: tuple[Callable[[], A], Callable[[], B]], rows: int | None = None) -> tuple[A, B]: ...


@overload
def run_parallel(tasks: Sequence[Callable[[], T]], rows: int | None = None) -> tuple[T, ...]: ...


def run_parallel(tasks: Sequence[Callable[[], T]], rows: int | None = None) -> tuple[T, ...]:
    """Return the results of all tasks, in their order.

    `rows` is the length of the columns that the tasks work on, if they are short enough to need no threads.
    Each task sees the caller's context variables, so that a cancelled question stops its tasks, too.
    """
    import polars as pl  # cancelling must not load it

    threads = min(len(tasks), pl.thread_pool_size())
    if threads < 2 or (rows is not None and rows <= _FEW_ROWS):
        return tuple(task() for task in tasks)
    contexts = [copy_context() for _ in tasks]  # one each: a context can be entered by one thread at a time
    with ThreadPoolExecutor(threads) as pool:
        return tuple(pool.map(lambda context, task: context.run(task), contexts, tasks))


class Cancelled(BaseException):
    """The result is no longer wanted. Not an `Exception`, so that no handler of errors swallows it."""


class CancelToken:
    """Flag shared by the caller, who sets it, and the work, which polls it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Make the work end at its next `check_cancelled`."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


_CURRENT_TOKEN: Final[ContextVar[CancelToken | None]] = ContextVar("current work", default=None)


@contextmanager
def use_token(token: CancelToken) -> Iterator[None]:
    """Make `check_cancelled` look at this token inside the block."""
    before = _CURRENT_TOKEN.set(token)
    try:
        yield
    finally:
        _CURRENT_TOKEN.reset(before)


def check_cancelled() -> None:
    """Raise Cancelled if the token of this context is set; do nothing without a token."""
    token = _CURRENT_TOKEN.get()
    if token is not None and token.cancelled:
        raise Cancelled


def describe_activity() -> str:
    """Return the latest work that is still going on, or an empty text."""
    return _active[-1] if _active else ""


def add_listener(listener: Callable[[str], None]) -> None:
    """Call a function with a description of each piece of work that starts."""
    _listeners.append(listener)


def announce(text: str) -> None:
    """Call the listeners with a description of what is going on."""
    for listener in _listeners:
        listener(text)


@contextmanager
def report_activity(description: str) -> Iterator[Callable[[str], None]]:
    """Announce work while the block runs; calling the value announces its progress."""
    current = description

    def update(text: str) -> None:
        nonlocal current
        _active[_active.index(current)] = text
        current = text
        announce(text)

    _active.append(description)
    announce(description)
    try:
        yield update
    finally:
        _active.remove(current)
