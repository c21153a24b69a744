"""Locate the packages `capture` and `engines`, and import ours, whatever else is on the path.

Users have modules called `capture` or `engines` too. The wheel keeps ours in a private folder,
`tracetui/_packages`; in a checkout they are next to `tracetui`. Standard library only: this runs first.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

PACKAGES: Final = ("capture", "engines")
PRIVATE_CAPTURE_NAME: Final = "_tracetui_capture"  # our `capture` in the user's program

_HERE: Final = Path(__file__).resolve().parent


def find_packages_folder() -> Path:
    """Return the folder that contains `capture` and `engines`."""
    packed = _HERE / "_packages"
    return packed if packed.is_dir() else _HERE.parent


def prefer_our_packages() -> None:
    """Make this process import our packages, whatever its folder or path contains.

    Foreign modules of these names that are already imported are removed from `sys.modules`.
    """
    folder = str(find_packages_folder())
    sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and not _is_ours(module):
            del sys.modules[name]


def import_capture() -> None:
    """Import our `capture` into a program of others, whose path stays unchanged: the user's, or a worker.

    Raise ImportError if a foreign one is already imported: ours would replace it.
    """
    if "capture" not in sys.modules:
        sys.path.insert(0, str(find_packages_folder()))
        try:
            importlib.import_module("capture")
        finally:
            sys.path.remove(str(find_packages_folder()))
    if not _is_ours(sys.modules["capture"]):
        raise ImportError(
            "another module called capture is already imported; `tracetui query` reads without it"
        )


def import_api() -> ModuleType:
    """Import the Python API into the user's program; raise ImportError as `import_capture` does."""
    import_capture()
    return importlib.import_module("tracetui.api")


def build_environment() -> dict[str, str]:
    """Return the environment of this process, with our packages first on its Python path."""
    paths = [str(find_packages_folder()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def import_private(module: str) -> ModuleType:
    """Import a module of our `capture` under a private package name, by file location.

    Independent of `sys.path` and of any module of the user called `capture`.
    """
    if PRIVATE_CAPTURE_NAME not in sys.modules:
        init = find_packages_folder() / "capture" / "__init__.py"
        spec = importlib.util.spec_from_file_location(
            PRIVATE_CAPTURE_NAME, init, submodule_search_locations=[str(init.parent)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{init} cannot be loaded")
        package = importlib.util.module_from_spec(spec)
        sys.modules[PRIVATE_CAPTURE_NAME] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{PRIVATE_CAPTURE_NAME}.{module}")


def _is_ours(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).resolve().is_relative_to(find_packages_folder())
