"""The compiled scanner of trace events, where it is built and wanted; `_events.c` says what it does."""

from types import ModuleType
from typing import Final

from capture.compiled import Part

_PART: Final = Part(f"{__name__}._events", 1, "the slower readers give the same")

state = _PART.state


def scanner() -> ModuleType | None:
    """Return the compiled scanner; None where it is not built, is of another version or not wanted."""
    return _PART.module()
