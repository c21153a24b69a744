"""Stopping work that nobody waits for any more: a token that is set elsewhere and looked at between steps.

A Python thread cannot be ended from outside. Work that may take long calls `check` now and then; what it
runs on behalf of is known by the thread it runs in, so that no analysis has to pass a token on.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Cancelled(BaseException):
    """Work is no longer wanted. It is no `Exception`, so that nobody takes it for a fault."""


class Token:
    """Says whether a piece of work is still wanted."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Say that the work is no longer wanted; it ends at its next `check`."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()


_CURRENT: Final[ContextVar[Token | None]] = ContextVar("current work", default=None)


@contextmanager
def working_for(token: Token) -> Iterator[None]:
    """Let `check` look at this token inside the block."""
    before = _CURRENT.set(token)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def check() -> None:
    """Raise Cancelled where the work of this thread is no longer wanted. Without a token nothing happens."""
    token = _CURRENT.get()
    if token is not None and token.cancelled:
        raise Cancelled
