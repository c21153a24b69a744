"""What is being done on the way to a run besides reading, for whoever shows how far it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_doing: list[str] = []
_listeners: list[Callable[[str], None]] = []


def current() -> str:
    """Return what is being done now; empty where it is plain reading."""
    return _doing[-1] if _doing else ""


def listen(listener: Callable[[str], None]) -> None:
    """Have a function called with each thing that begins to be done."""
    _listeners.append(listener)


@contextmanager
def doing(words: str) -> Iterator[None]:
    """Say what is being done while the block runs."""
    _doing.append(words)
    for listener in _listeners:
        listener(words)
    try:
        yield
    finally:
        _doing.remove(words)
