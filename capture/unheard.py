"""Has what libraries print by themselves go nowhere: polars tells the terminal of its panics in many lines.

Our own words pass through `sys.stderr` before and after; the screen draws on a descriptor of its own. In a
process that is somebody else's, who imports this as a library, nothing is kept from the terminal.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

STDERR: Final = 2

_lock = threading.Lock()
_ours = False  # whether the process is the program's own
_within = 0  # how many threads are
_kept: int | None = None  # what standard error was before the first of them


def own_process() -> None:
    """Say that this process is the program's own: no other threads than ours write to standard error."""
    global _ours
    _ours = True


@contextmanager
def unheard() -> Iterator[None]:
    """Have nothing that is written to standard error be seen meanwhile, in a process of our own."""
    if not _ours:
        yield
        return
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
