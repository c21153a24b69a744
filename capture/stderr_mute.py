"""Mute writes of native libraries to stderr (fd 2) while a block runs: polars prints long panic messages.

Our own messages use `sys.stderr` outside such blocks; the screen draws on its own descriptor.
In a process that only imports this package nothing is muted.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

STDERR_FD: Final = 2

_lock = threading.Lock()
_is_allowed = False  # whether this process is our own command line
_depth = 0  # blocks that are running, over all threads
_saved_fd: int | None = None  # stderr as it was before the first block


def allow_stderr_muting() -> None:
    """Declare that this process is ours: no foreign threads write to stderr."""
    global _is_allowed
    _is_allowed = True


@contextmanager
def mute_stderr() -> Iterator[None]:
    """Discard everything written to stderr while the block runs, if muting is allowed."""
    if not _is_allowed:
        yield
        return
    _start_muting()
    try:
        yield
    finally:
        _stop_muting()


def _start_muting() -> None:
    global _depth, _saved_fd
    with _lock:
        _depth += 1
        if _depth == 1:
            with suppress(OSError):  # stderr is closed
                _saved_fd = os.dup(STDERR_FD)
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, STDERR_FD)
                os.close(null)


def _stop_muting() -> None:
    global _depth, _saved_fd
    with _lock:
        _depth -= 1
        if _depth == 0 and _saved_fd is not None:
            os.dup2(_saved_fd, STDERR_FD)
            os.close(_saved_fd)
            _saved_fd = None
