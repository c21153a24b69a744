"""Load an optional C extension if it is built, up to date and not disabled."""

import importlib
import os
from dataclasses import dataclass
from types import ModuleType
from typing import Final

OFF_VARIABLE: Final = "TRACETUI_NO_COMPILED"  # environment variable that disables all extensions


@dataclass(frozen=True)
class Extension:
    """A compiled module: full name, required version, and the consequence of its absence."""

    name: str
    version: int
    without: str

    def load(self) -> ModuleType | None:
        """Return the module, or None if it is missing, outdated or disabled."""
        return None if os.environ.get(OFF_VARIABLE) else self._import_built()

    def describe_state(self) -> str:
        """Return `in use`, or why the extension is not used."""
        if os.environ.get(OFF_VARIABLE):
            return f"off ({OFF_VARIABLE} is set)"
        return "in use" if self._import_built() else f"not built; {self.without}"

    def _import_built(self) -> ModuleType | None:
        try:
            module = importlib.import_module(self.name)
        except ImportError:
            return None
        return module if getattr(module, "VERSION", None) == self.version else None
