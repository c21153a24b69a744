"""The compiled scanner, where it is built: of events (`_events.c`), lines (`lines.h`), tables (`cells.h`)."""

from types import ModuleType
from typing import Final

from capture.compiled import Part

_PART: Final = Part(f"{__name__}._events", 3, "the slower readers give the same")

state = _PART.state


def scanner() -> ModuleType | None:
    """Return the compiled scanner; None where it is not built, is of another version or not wanted."""
    return _PART.module()
