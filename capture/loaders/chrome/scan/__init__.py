"""The compiled scanner, where it is built and wanted: of trace events (`_events.c`), of lines (`lines.h`)."""

import importlib
import os
from types import ModuleType
from typing import Final

OFF: Final = "TRACETUI_NO_COMPILED"  # an environment variable: where it is set, the scanner is left aside
VERSION: Final = 2  # of the scanner, as `_events.c` states it


def scanner() -> ModuleType | None:
    """Return the compiled scanner; None where it is not built, is of another version or not wanted."""
    return None if os.environ.get(OFF) else _built()


def state() -> str:
    """Return in a few words whether the compiled scanner is used, and why not."""
    if os.environ.get(OFF):
        return f"off ({OFF} is set)"
    return "in use" if _built() else "not built; the slower readers give the same"


def _built() -> ModuleType | None:
    try:
        module = importlib.import_module(f"{__name__}._events")
    except ImportError:
        return None
    return module if getattr(module, "VERSION", None) == VERSION else None
