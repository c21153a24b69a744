"""Waits for the program's own import of torch, and has it watched from then on. Standard library only."""

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


def start() -> None:
    """Note that this process can be watched, and look out for torch."""
    account.note("python " + platform.python_version())
    sys.meta_path.insert(0, _TorchFinder())


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as it would be found without us, has it watched after its import, and is gone."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
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


def _watch(torch: ModuleType) -> None:
    """Watch torch; where that fails the program goes on, and one line says that it is not watched."""
    account.note("torch " + str(getattr(torch, "__version__", "")))
    try:
        importlib.import_module(".attach", __package__).install(torch)
    except Exception as e:
        why = " ".join(f"{type(e).__name__}: {e}".split())
        account.note("fault " + why)
        sys.stderr.write(f"tracetui: the program is not watched: {why}\n")
