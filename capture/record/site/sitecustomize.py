"""Python imports this at its start when its folder leads PYTHONPATH: torch is watched as soon as it is there.

Nothing happens unless TRACETUI_OUT is set. The sitecustomize that this one hides is run all the same.
Our package is loaded by its place under a private name: the program's own `capture` stays the program's.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_PACKAGE = "_tracetui_capture"  # as in tracetui/rooms.py: a Recorder of the program's is of the same package


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as it would be found without us, has it watched after its import, and is gone."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _watch_after_import(spec.loader)
        return spec


def _watch_after_import(loader: importlib.abc.Loader) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        _start_watching()

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _start_watching() -> None:
    """Install the hooks; where that fails the program goes on, and one line says that it is not watched."""
    try:
        _load_package()
        importlib.import_module(f"{_PACKAGE}.record.attach").install()
    except Exception as e:
        why = " ".join(f"{type(e).__name__}: {e}".split())
        sys.stderr.write(f"tracetui: the program is not watched: {why}\n")


def _load_package() -> None:
    """Load the package that this file lies in, by its place, under its private name."""
    if _PACKAGE in sys.modules:
        return
    root = _HERE.parent.parent
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, root / "__init__.py", submodule_search_locations=[str(root)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{root} cannot be loaded")
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)


def _run_hidden_sitecustomize() -> None:
    """Run the sitecustomize that Python would have run without this one."""
    elsewhere = [p for p in sys.path if Path(p or ".").resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TRACETUI_OUT"):
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # else torch prints two lines for every window
    sys.meta_path.insert(0, _TorchFinder())
_run_hidden_sitecustomize()
