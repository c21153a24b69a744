"""Python runs this first when its folder leads PYTHONPATH: it instruments torch as soon as that is imported.

Nothing happens unless TRACETUI_OUT is set. The sitecustomize that this one hides is run all the same.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent


class _WatchTorch(importlib.abc.MetaPathFinder):
    """Finds torch as ever, and installs the hooks once it has run; then it is gone."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _after(spec.loader)
        return spec


def _after(loader: importlib.abc.Loader) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        with suppress(Exception):  # the program comes first: it runs, watched or not
            _capture()
            from capture.record import attach

            attach.install()

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _capture() -> None:
    """The package that this file is of, found without a word on the program's own search path."""
    if importlib.util.find_spec("capture") is not None:
        return
    root = _HERE.parent.parent
    spec = importlib.util.spec_from_file_location(
        "capture", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["capture"] = module
        spec.loader.exec_module(module)


def _run_the_hidden_one() -> None:
    """The sitecustomize that Python would have run without us."""
    elsewhere = [p for p in sys.path if Path(p or ".").resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TRACETUI_OUT"):
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # else torch prints two lines for every window
    sys.meta_path.insert(0, _WatchTorch())
_run_the_hidden_one()
