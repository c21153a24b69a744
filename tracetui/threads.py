"""Threads and memory of the tables: all cores to read a file, one beside a program that needs them."""

import os
from typing import Final

# Read once, when polars is imported; no program started here shall see it.
_BESIDE: Final = {
    "POLARS_MAX_THREADS": "1",
    # Its allocator: memory that is asked for again four times a second is not given back in between.
    "_RJEM_MALLOC_CONF": "background_thread:false,dirty_decay_ms:10000,muzzy_decay_ms:10000",
}


def leave_the_cores() -> None:
    """Ask polars for one thread; call it before polars is imported. Keys that are set stay as they are.

    A run that is followed is small, and threads that wake for a part of a millisecond cost more than they do.
    """
    ours = _BESIDE.keys() - os.environ.keys()
    os.environ |= {name: _BESIDE[name] for name in ours}
    import polars  # noqa: F401

    for name in ours:
        del os.environ[name]
