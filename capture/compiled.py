"""Whether a compiled part of the program is there and wanted; what it does is done without it, too."""

import importlib
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Final

OFF: Final = "TRACETUI_NO_COMPILED"  # an environment variable: where it is set, compiled parts are left aside


@dataclass(frozen=True)
class Part:
    """A compiled module: its full name, the version that its callers know, and what is so without it."""

    name: str
    version: int
    without: str

    def module(self) -> ModuleType | None:
        """Return the module; None where it is not built, is of another version or not wanted."""
        return None if os.environ.get(OFF) else self._built()

    def state(self) -> str:
        """Return in a few words whether it is used, and why not."""
        if os.environ.get(OFF):
            return f"off ({OFF} is set)"
        return "in use" if self._built() else f"not built; {self.without}"

    def _built(self) -> ModuleType | None:
        try:
            module = importlib.import_module(self.name)
        except ImportError:
            return None
        return module if getattr(module, "VERSION", None) == self.version else None
