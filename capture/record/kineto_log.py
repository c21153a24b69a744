"""Has torch's profiler print nothing for windows of ours, and what it would for those of the program's."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVEL: Final = "KINETO_LOG_LEVEL"  # the profiler asks for it once, as it is made ready for the first time
_VARIABLE: Final = "_ZN9libkineto6Logger14severityLevel_E"  # libkineto::Logger::severityLevel_
_NOTHING: Final = 99

_levels: list[Any] = []  # the variable that holds the level, or None, once it was looked for


@contextmanager
def silent() -> Iterator[None]:
    """Have nothing printed within. A torch that does not show its level prints nothing from then on."""
    level = _level()
    stated = os.environ.pop(LEVEL, None)
    if level is None:
        os.environ[LEVEL] = stated or str(_NOTHING)
        before = 0
    else:
        before, level.value = level.value, _NOTHING
    try:
        yield
    finally:
        os.environ.pop(LEVEL, None)
        if stated is not None:
            os.environ[LEVEL] = stated
        if level is not None:
            level.value = _asked(level.value, stated) if level.value != _NOTHING else before


def _asked(found: int, stated: str | None) -> int:
    """Return the level of a profiler that has just asked for it, and found none stated."""
    with suppress(ValueError):
        return int(stated or found)
    return found


def _level() -> Any:
    if not _levels:
        _levels.append(_find_level())
    return _levels[0]


def _find_level() -> Any:
    folder = Path(sys.modules["torch"].__file__ or "").parent / "lib"
    for path in (folder / "libtorch_cpu.so", folder / "libtorch_cpu.dylib"):
        if path.exists():
            with suppress(OSError, ValueError):
                return ctypes.c_int.in_dll(ctypes.CDLL(str(path)), _VARIABLE)
    return None
