"""Has what libraries print by themselves go nowhere: polars tells the terminal of its panics in many lines.

Our own words pass through `sys.stderr` before and after; the screen draws on a descriptor of its own.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

STDERR: Final = 2

_lock = threading.Lock()
_within = 0  # how many threads are
_kept: int | None = None  # what standard error was before the first of them


@contextmanager
def unheard() -> Iterator[None]:
    """Have nothing that is written to standard error be seen meanwhile, whichever thread writes it."""
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _within, _kept
    with _lock:
        _within += 1
        if _within == 1:
            with suppress(OSError):  # it is closed
                _kept = os.dup(STDERR)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, STDERR)
                os.close(nowhere)


def _leave() -> None:
    global _within, _kept
    with _lock:
        _within -= 1
        if _within == 0 and _kept is not None:
            os.dup2(_kept, STDERR)
            os.close(_kept)
            _kept = None
