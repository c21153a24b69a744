"""What the tables take: all cores to read a file; beside a program that needs them one, and steady memory."""

import os
from typing import Final

# Read once, when polars is imported; no program started here shall see it.
_BESIDE: Final = {
    "POLARS_MAX_THREADS": "1",
    # Its allocator: memory that is asked for again four times a second is not given back in between.
    "_RJEM_MALLOC_CONF": "background_thread:false,dirty_decay_ms:10000,muzzy_decay_ms:10000",
}


def leave_the_cores() -> None:
    """Call it before polars is imported; who has set one of these keeps it.

    A run that is followed is small, and threads that wake for a part of a millisecond cost more than they do.
    """
    ours = _BESIDE.keys() - os.environ.keys()
    os.environ |= {name: _BESIDE[name] for name in ours}
    import polars  # noqa: F401

    for name in ours:
        del os.environ[name]
