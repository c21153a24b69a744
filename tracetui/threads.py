"""Threads and memory of the tables: all cores to read a file, one beside a program that needs them; memory is
kept from one question to the next.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

# Of its allocator: memory that was just used is kept for the next question, since a page that is given back
# and asked for again costs as much as what is computed in it.
_ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
_KEPT: Final = "dirty_decay_ms:10000,muzzy_decay_ms:10000"
# The same for arrays, whose memory is C's: what is smaller than 32 MB lies in one heap for all threads, of
# which a free end of half a gigabyte is kept: glibc's M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX.
_HEAP: Final = {-3: 1 << 25, -1: 1 << 29, -8: 1}
# One thread has nobody to stream to: a small table is sooner asked as a whole.
_ALONE: Final = {"POLARS_MAX_THREADS": "1", "POLARS_ENGINE_AFFINITY": "in-memory"}


def leave_the_cores() -> None:
    """Ask polars for one thread, and to keep its memory between pictures.

    A run that is followed is small, and threads that wake for a part of a millisecond cost more than they do.
    """
    _import_polars(_ALONE | {_ALLOCATOR: f"background_thread:false,{_KEPT}"})


def keep_memory() -> None:
    """Have memory kept from one question to the next: polars' for ten seconds, and that of arrays."""
    _keep_heap()
    _import_polars({_ALLOCATOR: f"background_thread:true,{_KEPT}"})


def _keep_heap() -> None:
    """Tell the allocator of C how much to keep; only that of glibc can be told."""
    import ctypes  # polars does so, too

    if sys.platform != "linux":
        return
    heap = ctypes.CDLL(None)
    if hasattr(heap, "mallopt"):
        for option, value in _HEAP.items():
            heap.mallopt(option, value)


def _import_polars(wishes: Mapping[str, str]) -> None:
    """Import polars, which reads them once, when it is imported first. Keys that are set stay as they are,
    and no program started here sees any.
    """
    ours = wishes.keys() - os.environ.keys()
    os.environ |= {name: wishes[name] for name in ours}
    import polars  # noqa: F401

    for name in ours:
        del os.environ[name]
