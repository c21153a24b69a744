"""The compiled scanner, where it is built and wanted: of trace events (`_events.c`), of lines (`lines.h`)."""

from types import ModuleType
from typing import Final

from capture.compiled import Part

_PART: Final = Part(f"{__name__}._events", 2, "the slower readers give the same")

state = _PART.state


def scanner() -> ModuleType | None:
    """Return the compiled scanner; None where it is not built, is of another version or not wanted."""
    return _PART.module()
