"""Tune this process: garbage collection, the threads of polars, and memory kept by the allocators."""

import gc
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

STARTUP_OBJECTS: Final = 600_000  # more than a start creates with its libraries
USUAL_THRESHOLDS: Final = (50_000, 20, 100)
# For jemalloc in polars: keep freed memory for the next question. Returning a page to the system and getting
# it back costs as much as computing what it holds.
_ALLOCATOR_VARIABLE: Final = "_RJEM_MALLOC_CONF"
_DECAY_SETTINGS: Final = "dirty_decay_ms:10000,muzzy_decay_ms:10000"
# The same for numpy arrays: blocks below 32 MB come from one heap for all threads, which keeps 512 MB of
# free memory at its end: glibc's M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX.
_MALLOPT_SETTINGS: Final = {-3: 1 << 25, -1: 1 << 29, -8: 1}


def defer_gc() -> None:
    """Defer garbage collection during startup, until `enable_gc` or until there are very many objects."""
    gc.set_threshold(STARTUP_OBJECTS, *USUAL_THRESHOLDS[1:])
    if _restore_thresholds not in gc.callbacks:
        gc.callbacks.append(_restore_thresholds)


def enable_gc() -> None:
    """Collect garbage normally from now on, but never the objects that the start has created."""
    if _restore_thresholds in gc.callbacks:
        gc.freeze()
        _restore_thresholds("stop", {})


def _restore_thresholds(phase: str, info: dict[str, Any]) -> None:
    """Restore the usual thresholds after the first collection."""
    if phase == "stop":
        gc.callbacks.remove(_restore_thresholds)
        gc.set_threshold(*USUAL_THRESHOLDS)


def list_polars_settings(threads: int) -> dict[str, str]:
    """List the environment variables by which polars uses so many threads.

    With one thread streaming does not pay off: small tables are faster in memory.
    """
    settings = {"POLARS_MAX_THREADS": str(threads)}
    return settings | ({"POLARS_ENGINE_AFFINITY": "in-memory"} if threads == 1 else {})


def use_one_polars_thread() -> None:
    """Import polars with one thread, and let it keep its memory between redraws.

    A followed run is small, and waking threads for a fraction of a millisecond costs more than they save.
    """
    allocator = {_ALLOCATOR_VARIABLE: f"background_thread:false,{_DECAY_SETTINGS}"}
    _import_polars(list_polars_settings(1) | allocator)


def retain_freed_memory() -> None:
    """Let polars keep freed memory for ten seconds, and the C heap keep that of arrays."""
    _retain_c_heap()
    _import_polars({_ALLOCATOR_VARIABLE: f"background_thread:true,{_DECAY_SETTINGS}"})


def _retain_c_heap() -> None:
    """Configure how much memory glibc keeps; other allocators are left alone."""
    import ctypes  # polars imports it anyway

    if sys.platform != "linux":
        return
    heap = ctypes.CDLL(None)
    if hasattr(heap, "mallopt"):
        for option, value in _MALLOPT_SETTINGS.items():
            heap.mallopt(option, value)


def _import_polars(wishes: Mapping[str, str]) -> None:
    """Import polars with these environment variables, which it reads once.

    Variables that the user has set stay as they are, and no program started from here inherits ours.
    """
    ours = wishes.keys() - os.environ.keys()
    os.environ |= {name: wishes[name] for name in ours}
    import polars  # noqa: F401

    for name in ours:
        del os.environ[name]
