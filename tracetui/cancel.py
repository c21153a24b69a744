"""Cooperative cancellation: long work calls `check_cancelled` between steps.

A Python thread cannot be stopped from outside. The token is a context variable, so that no analysis has to
pass it on.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


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
