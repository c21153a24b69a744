"""How many cores the tables take: all of them to read a file, one beside a program that needs the others."""

import os
from typing import Final

# Read once, when polars is imported; no program started here shall see it.
_LIMIT: Final = "POLARS_MAX_THREADS"


def leave_the_cores() -> None:
    """Call it before polars is imported; who has set a number of threads keeps it.

    A run that is followed is small, and threads that wake for a part of a millisecond cost more than they do.
    """
    if _LIMIT in os.environ:
        return
    os.environ[_LIMIT] = "1"
    import polars  # noqa: F401

    del os.environ[_LIMIT]
