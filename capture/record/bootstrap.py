"""Wait for the program's own import of torch or llama_cpp, then start recording. Standard library only."""

from __future__ import annotations  # runs in users' programs, from Python 3.8 on

import importlib
import importlib.abc
import platform
import sys
from typing import TYPE_CHECKING

from . import process_notes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


# imported module → our module that records it
_INSTALLERS = {"torch": ".patch_torch", "llama_cpp.llama_cpp": ".llama_cpp"}


def start() -> None:
    """Note that this process can be recorded, and watch its imports."""
    process_notes.append_note("python " + platform.python_version())
    for name in _INSTALLERS:
        sys.meta_path.insert(0, _ImportHook(name))


class _ImportHook(importlib.abc.MetaPathFinder):
    """Finds a module as usual, installs the recorder after its import, and removes itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _install_after_import(spec.loader)
        return spec


def _install_after_import(loader: importlib.abc.Loader) -> None:
    original = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        original(module)
        _install(module)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _install(module: ModuleType) -> None:
    """Record a module; if that fails, the program continues and one line says so."""
    package = module.__name__.partition(".")[0]
    version = getattr(sys.modules.get(package), "__version__", "") or getattr(module, "__version__", "")
    process_notes.append_note(f"{package} {version}".rstrip())
    try:
        importlib.import_module(_INSTALLERS[module.__name__], __package__).install(module)
    except Exception as e:
        why = " ".join(f"{type(e).__name__}: {e}".split())
        process_notes.append_note("fault " + why)
        sys.stderr.write(f"tracetui: this program is not recorded: {why}\n")
