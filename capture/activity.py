"""Slow work other than reading, such as a download, announced so that the screen can show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_active: list[str] = []
_listeners: list[Callable[[str], None]] = []


def describe_activity() -> str:
    """Return the latest work that is still going on, or an empty text."""
    return _active[-1] if _active else ""


def add_listener(listener: Callable[[str], None]) -> None:
    """Call a function with a description of each piece of work that starts."""
    _listeners.append(listener)


@contextmanager
def report_activity(description: str) -> Iterator[None]:
    """Announce work while the block runs."""
    _active.append(description)
    for listener in _listeners:
        listener(description)
    try:
        yield
    finally:
        _active.remove(description)
