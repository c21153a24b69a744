"""Waits for the program's own import of torch or llama_cpp, and has it watched from then on. Stdlib only."""

from __future__ import annotations  # what runs in a program of the user's reads on Python 3.8

import importlib
import importlib.abc
import platform
import sys
from typing import TYPE_CHECKING

from . import account

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


# what is watched, and by which module of ours
_WATCHERS = {"torch": ".attach", "llama_cpp.llama_cpp": ".llama"}


def start() -> None:
    """Note that this process can be watched, and look out for what is."""
    account.note("python " + platform.python_version())
    for name in _WATCHERS:
        sys.meta_path.insert(0, _Finder(name))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a module as it would be found without us, has it watched after its import, and is gone."""

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
            _watch_after_import(spec.loader)
        return spec


def _watch_after_import(loader: importlib.abc.Loader) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        run(module)
        _watch(module)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _watch(module: ModuleType) -> None:
    """Watch a module; where that fails the program goes on, and one line says that it is not watched."""
    package = module.__name__.partition(".")[0]
    version = getattr(sys.modules.get(package), "__version__", "") or getattr(module, "__version__", "")
    account.note(f"{package} {version}".rstrip())
    try:
        importlib.import_module(_WATCHERS[module.__name__], __package__).install(module)
    except Exception as e:
        why = " ".join(f"{type(e).__name__}: {e}".split())
        account.note("fault " + why)
        sys.stderr.write(f"tracetui: the program is not watched: {why}\n")
