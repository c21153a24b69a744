"""Threads and memory of the tables: all cores to read a file, one beside a program that needs them; memory is
kept from one question to the next.
"""

import os
from collections.abc import Mapping
from typing import Final

# Of its allocator: memory that was just used is kept for the next question, since a page that is given back
# and asked for again costs as much as what is computed in it.
_ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
_KEPT: Final = "dirty_decay_ms:10000,muzzy_decay_ms:10000"


def leave_the_cores() -> None:
    """Ask polars for one thread, and to keep its memory between pictures.

    A run that is followed is small, and threads that wake for a part of a millisecond cost more than they do.
    """
    _import_polars({"POLARS_MAX_THREADS": "1", _ALLOCATOR: f"background_thread:false,{_KEPT}"})


def keep_memory() -> None:
    """Ask polars to keep memory for ten seconds, from one question to the next."""
    _import_polars({_ALLOCATOR: f"background_thread:true,{_KEPT}"})


def _import_polars(wishes: Mapping[str, str]) -> None:
    """Import polars, which reads them once, when it is imported first. Keys that are set stay as they are,
    and no program started here sees any.
    """
    ours = wishes.keys() - os.environ.keys()
    os.environ |= {name: wishes[name] for name in ours}
    import polars  # noqa: F401

    for name in ours:
        del os.environ[name]
